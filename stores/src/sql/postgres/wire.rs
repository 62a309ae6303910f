//! Connections to the store's server, for others who keep tables of their own there: a PostgreSQL queue, for one.
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
use sqlx::{
    AssertSqlSafe, Executor, PgConnection,
    postgres::{PgArguments, PgConnectOptions, PgRow},
};

pub use super::super::numbers::Numbers;
use super::{
    Postgres, PostgresOptions,
    connection::{Dial, Link, Work},
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
    /// Each with its version, from 1.
    pub migrations: &'static [(i32, &'static str)],
}

impl Schema {
    /// The version that this program knows.
    #[must_use]
    pub const fn latest(&self) -> i32 {
        self.migrations.len() as i32
    }

    /// As plain SQL, with the names of `options`.
    ///
    /// # Errors
    /// Names that are none.
    pub fn sql(&self, options: &PostgresOptions) -> Result<String, StoreError> {
        Ok(migrate::schema_sql(&Names::new(options, self.opening)?, self))
    }

    /// `text` with the names of `options` in it.
    ///
    /// # Errors
    /// Names that are none.
    pub fn with_names(&self, options: &PostgresOptions, text: &str) -> Result<String, StoreError> {
        Ok(Names::new(options, self.opening)?.put_into(text))
    }

    /// The name of the schema that the tables are in, in quotes.
    ///
    /// # Errors
    /// Names that are none.
    pub fn name(&self, options: &PostgresOptions) -> Result<String, StoreError> {
        Ok(format!("\"{}\"", Names::new(options, self.opening)?.schema()))
    }
}

/// A server, and the names of the tables there.
#[derive(Debug, Clone)]
pub struct Server {
    dial: Dial,
    names: Names,
}

impl Server {
    /// Looks whether server and schema are what the promises need.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn open(options: &PostgresOptions, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let names = Names::new(options, schema.opening)?;
        Self { dial: start::dial(options, schema.opening)?, names }.check(schema, may_migrate).await
    }

    /// The server of `store`, in the same schema and with the same prefix.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn on(store: &Postgres, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let dial = store.0.rare.lock().await.dial().clone();
        let dial = Dial { commits: Arc::new(AtomicU64::new(0)), tables: None, ..dial };
        Self { dial, names: store.0.names.clone() }.check(schema, may_migrate).await
    }

    async fn check(mut self, schema: &Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let Self { dial, names } = &mut self;
        let mut open = dial.open().await.map_err(|failure| failure.store_error(schema.opening, &dial.place))?;
        let checked = start::check_tables(&mut open.connection, names, schema, may_migrate, &dial.place).await?;
        dial.tables = Some(checked);
        Link::new(dial.clone(), Some(open)).close().await;
        Ok(self)
    }

    /// A connection, which is opened when it is first used.
    #[must_use]
    pub fn wire(&self) -> Wire {
        Wire { link: Link::new(self.dial.clone(), None), pooled: self.dial.pooled.clone() }
    }

    /// `text` with the names in it: `hapax.` becomes the schema and the prefix.
    #[must_use]
    pub fn text(&self, text: &str) -> Arc<str> {
        self.names.put_into(text).into()
    }

    /// Host, port and database, for messages.
    #[must_use]
    pub fn place(&self) -> &Arc<str> {
        &self.dial.place
    }

    /// Schema and prefix: a name that no other tables of the database have.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("{}.{}", self.names.schema(), self.names.table(""))
    }

    /// How the driver reaches it; `None` where a connection pooler stands between, and a session is nobody's own.
    #[must_use]
    pub fn session(&self) -> Option<PgConnectOptions> {
        self.dial.pooled.is_none().then(|| self.dial.options.clone())
    }

    /// Whether a connection may be held for nothing but to be told of what others do: not where many share the right to them.
    #[must_use]
    pub const fn may_listen(&self) -> bool {
        self.dial.seats.is_none()
    }

    /// A statement without an answer for so long is given up.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.dial.limit
    }

    /// Numbers by name that the server has given.
    #[must_use]
    pub fn numbers<K: Eq + Hash>(&self) -> Numbers<K> {
        Numbers::new(self.dial.lost.clone())
    }

    /// How many commits have been made on its connections.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.dial.commits.load(Ordering::Relaxed)
    }
}

/// One connection, which is opened again after it has failed.
#[derive(Debug)]
pub struct Wire {
    link: Link,
    pooled: Option<Arc<str>>,
}

impl Wire {
    /// Runs a statement that writes, by itself one transaction.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown.
    pub async fn write(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Fault> {
        self.link.write(sql, arguments).await.map_err(Fault)
    }

    /// Runs a rare statement that writes, again where it lost a race with others. Where it finds done what it is to do, that
    /// is kept as well once this is told.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown.
    pub async fn write_settled(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Fault> {
        self.link.write_settled(sql, arguments).await.map_err(Fault)
    }

    /// Runs a statement that writes nothing.
    ///
    /// # Errors
    /// [`Fault`]; nothing was changed.
    pub async fn read(&mut self, sql: &Arc<str>, arguments: PgArguments) -> Result<Vec<PgRow>, Fault> {
        self.link.read(sql, arguments).await.map_err(Fault)
    }

    /// Runs `lock`, a statement without arguments, and then one that writes, in one transaction. The second one sees all
    /// that was committed before it had the lock.
    ///
    /// # Errors
    /// [`Fault`]: whether it was written may be unknown.
    pub async fn locked(
        &mut self,
        lock: &Arc<str>,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, Fault> {
        let begin = self.pooled.as_deref().unwrap_or("BEGIN");
        let (first, sql, keeps) = (format!("{begin}; {lock}"), sql.clone(), self.pooled.is_none());
        let work = self.link.with(true, move |connection| {
            Box::pin(async move {
                connection.execute(sqlx::raw_sql(AssertSqlSafe(first))).await.map_err(Failure::of_read)?;
                let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(keeps);
                let rows = query.fetch_all(&mut *connection).await.map_err(Failure::of_read)?;
                connection.execute(sqlx::raw_sql("COMMIT")).await.map_err(Failure::of_write)?;
                Ok(rows)
            })
        });
        work.await.map_err(Fault)
    }

    /// Runs `work` in one transaction: committed if it says so with what it tells, else rolled back.
    pub(super) async fn transaction<T: Send + 'static>(
        &mut self,
        work: impl for<'c> FnOnce(&'c mut PgConnection) -> Work<'c, (bool, T)> + Send + 'static,
    ) -> Result<T, Fault> {
        let begin = self.pooled.as_deref().unwrap_or("BEGIN").to_owned();
        let work = self.link.with(true, move |connection| {
            Box::pin(async move {
                connection.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await.map_err(Failure::of_read)?;
                let (keeps, told) = work(&mut *connection).await?;
                let end = if keeps { "COMMIT" } else { "ROLLBACK" };
                connection.execute(sqlx::raw_sql(end)).await.map_err(Failure::of_write)?;
                Ok(told)
            })
        });
        work.await.map_err(Fault)
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        self.link.close().await;
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

    /// Another transaction has kept a lock for too long.
    #[must_use]
    pub fn is_of_a_lock(&self) -> bool {
        self.0.is_of_a_lock()
    }

    /// The server or the way to it is at fault: trying members of a group one by one would only repeat it.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.0.is_of_all()
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
