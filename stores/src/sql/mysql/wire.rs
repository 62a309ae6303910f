//! Connections to the store's server, for others who keep tables of their own there: a MariaDB queue, for one.
//!
//! They are set, watched and opened again as the store's own are, and what went wrong on them means the same.
//!
//! For transports of this project; not part of the stable interface.

use std::{
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax_core::ports::StoreError;
use sqlx::mysql::{MySqlArguments, MySqlRow};

pub use super::{super::numbers::Numbers, arguments::Text, connection::Answer};
use super::{
    MySql, MySqlOptions,
    connection::{Dial, Link},
    error::Failure,
    migrate,
    names::Names,
    start,
};

/// Tables, and how they are made.
#[derive(Debug)]
pub struct Schema {
    /// What is being done when they are looked for, for errors.
    pub opening: &'static str,
    /// What to do where they are missing.
    pub remedy: &'static str,
    /// Two tables: of the migrations that were applied, and of numbers by name.
    pub tables: [&'static str; 2],
    /// The newest migration and the number `usable_from`, in one row.
    pub version: &'static str,
    /// Rows without which nothing goes on, though no statement fails: what each is called, and a `SELECT` that finds it.
    pub rows: &'static [(&'static str, &'static str)],
    /// A table whose columns `state` and `outbox` are framed, so that it can be told whether this program reads them.
    pub framed: Option<&'static str>,
    /// Each with its version, from 1. Every statement of one may be repeated: each commits by itself.
    pub migrations: &'static [(i64, &'static str)],
}

impl Schema {
    /// The version that this program knows.
    #[must_use]
    pub const fn latest(&self) -> i64 {
        self.migrations.len() as i64
    }

    /// As plain SQL, with the names of `options`.
    ///
    /// # Errors
    /// Names that are none.
    pub fn sql(&self, options: &MySqlOptions) -> Result<String, StoreError> {
        Ok(migrate::schema_sql(&Names::new(&options.table_prefix, self.opening)?, self))
    }

    /// `text` with the names of `options` and their database in it, and with `account` (`NAME`, or `NAME@HOST`) in place of
    /// `ACCOUNT`: for grants.
    ///
    /// # Errors
    /// Names that are none, or no database.
    pub fn with_account(&self, options: &MySqlOptions, account: &str, text: &str) -> Result<String, StoreError> {
        migrate::with_account(options, self.opening, account, text)
    }
}

/// A server, and the names of the tables there.
#[derive(Debug, Clone)]
pub struct Server {
    dial: Dial,
    names: Names,
    packet_bytes_max: usize,
}

impl Server {
    /// Looks whether server and schema are what the promises need.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open(options: &MySqlOptions, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let names = Names::new(&options.table_prefix, schema.opening)?;
        Self::check(start::dial(options, schema.opening)?, names, schema, may_migrate).await
    }

    /// The server of `store`, in the same database and with the same prefix.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn on(store: &MySql, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let dial = store.0.rare.lock().await.dial().clone();
        let dial = Dial { commits: Arc::new(AtomicU64::new(0)), tables: None, ..dial };
        Self::check(dial, store.0.names.clone(), schema, may_migrate).await
    }

    async fn check(mut dial: Dial, names: Names, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let opened = dial.open().await.map_err(|failure| failure.store_error(schema.opening, &dial.place));
        let (mut open, checked) = opened?;
        dial.tables = Some(start::check_tables(&mut open.connection, &names, schema, may_migrate, &dial.place).await?);
        Link::new(dial.clone(), Some(open)).close().await;
        let packet_bytes_max = checked.told(&dial.place).packet_bytes_max;
        Ok(Self { dial, names, packet_bytes_max })
    }

    /// Numbers that the server has given to names, to be remembered for as long as it is one server.
    #[must_use]
    pub fn numbers<K: Eq + Hash>(&self) -> Numbers<K> {
        Numbers::new(self.dial.lost.clone())
    }

    /// A connection, which is opened when it is first used.
    #[must_use]
    pub fn wire(&self) -> Wire {
        Wire(Link::new(self.dial.clone(), None))
    }

    /// `text` with the names in it: `hapax.` becomes the prefix.
    #[must_use]
    pub fn text(&self, text: &str) -> Arc<str> {
        self.names.put_into(text).into()
    }

    /// Host, port and database, for messages.
    #[must_use]
    pub fn place(&self) -> &Arc<str> {
        &self.dial.place
    }

    /// The longest message that the server takes, in bytes: a text in which each byte of data is two.
    #[must_use]
    pub const fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// A statement without an answer for so long is given up.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.dial.limit
    }

    /// How many commits have been made on its connections.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.dial.commits.load(Ordering::Relaxed)
    }
}

/// One connection, which is opened again after it has failed.
#[derive(Debug)]
pub struct Wire(Link);

impl Wire {
    /// Runs a statement that writes, by itself one transaction.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown.
    pub async fn write(&mut self, sql: &Arc<str>, arguments: MySqlArguments) -> Result<Answer, Fault> {
        self.0.write(sql, arguments).await.map_err(Fault)
    }

    /// Runs a statement that writes nothing.
    ///
    /// # Errors
    /// [`Fault`]; nothing was changed.
    pub async fn read(&mut self, sql: &Arc<str>, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, Fault> {
        self.0.read(sql, arguments).await.map_err(Fault)
    }

    /// As [`Wire::read`], of a text that is one statement.
    ///
    /// # Errors
    /// [`Fault`]; nothing was changed.
    pub async fn read_text(&mut self, text: Text) -> Result<Vec<MySqlRow>, Fault> {
        self.0.read_text(text).await.map_err(Fault)
    }

    /// Runs the statements of `text` in a transaction of their own, in one round trip. One answer for each of them.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown.
    pub async fn transaction(&mut self, text: Text) -> Result<Vec<Answer>, Fault> {
        self.0.transaction(text).await.map_err(Fault)
    }

    /// Begins a transaction and runs the statements of `text` in it, in one round trip. What they lock stays locked until
    /// [`Wire::commit`] or [`Wire::roll_back`]. Who leaves in between leaves nothing behind: the connection is given up.
    ///
    /// # Errors
    /// [`Fault`]; nothing was changed, and there is no transaction.
    pub async fn begin(&mut self, text: Text) -> Result<Vec<Answer>, Fault> {
        self.0.begin(text).await.map_err(Fault)
    }

    /// Runs the statements of `text` within the transaction.
    ///
    /// # Errors
    /// [`Fault`]; nothing was changed, and there is no transaction any more.
    pub async fn steps(&mut self, text: Text) -> Result<Vec<Answer>, Fault> {
        self.0.steps(text).await.map_err(Fault)
    }

    /// Runs the statements of `text`, if there are any, and commits, in one round trip. One answer for each of them.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown; there is no transaction any more.
    pub async fn commit(&mut self, text: Text) -> Result<Vec<Answer>, Fault> {
        self.0.commit(text).await.map_err(Fault)
    }

    /// Undoes what was begun.
    pub async fn roll_back(&mut self) {
        self.0.roll_back().await;
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        self.0.close().await;
    }
}

/// A statement that failed. One may be the answer of all members of a group.
#[derive(Clone)]
pub struct Fault(Failure);

impl Fault {
    /// Of a row of an answer that cannot be read, after what wrote it was committed.
    #[must_use]
    pub fn of_answer(error: sqlx::Error) -> Self {
        Self(Failure::of_write(error))
    }

    /// Of a row that cannot be read, before anything was written.
    #[must_use]
    pub fn of_row(error: sqlx::Error) -> Self {
        Self(Failure::of_read(error))
    }

    /// Whether the write may have taken effect.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.0.is_unknown()
    }

    /// A lost race with another transaction: it was rolled back, and may be tried again at once.
    #[must_use]
    pub fn is_of_a_race(&self) -> bool {
        self.0.is_of_a_race()
    }

    /// Others hold a row for longer than was waited for.
    #[must_use]
    pub fn is_of_a_wait(&self) -> bool {
        self.0.is_of_a_wait()
    }

    /// The server or the way to it is at fault: trying members of a group one by one would only repeat it.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.0.is_of_all()
    }

    /// Others hold what it needs, for longer than was waited.
    #[must_use]
    pub fn is_of_a_lock(&self) -> bool {
        self.0.is_of_a_lock()
    }

    /// What a person is told.
    #[must_use]
    pub fn store_error(&self, operation: &'static str, place: &str) -> StoreError {
        self.0.store_error(operation, place)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
