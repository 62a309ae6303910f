//! Room in the store's commits for the tables of others in the same file: an SQLite queue, for one.
//!
//! A file has one writer per process, else two of them would fight for the lock by waiting. So what keeps its tables in
//! the same file rides along: its rows queue with the store's own writes, and whatever rows of one [`Kind`] have queued
//! while the last group was being written go into one statement of the same commit. Each rider learns what became of its
//! own rows by their [`Ticket`]s, never by a key alone. A rider's statements never come between those of the store; they
//! come after, in the order of their kinds.
//!
//! For transports of this project; not part of the stable interface.

use std::{fmt::Write as _, time::Duration};

use hapax_core::ports::StoreError;
use serde::Serialize;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use tokio::sync::oneshot;

use super::{
    Sqlite, SqliteOptions,
    connection::Ran,
    migrate,
    read::{self, Read},
    riders::{AddSchema, KINDS_MAX, Ride},
    rows, start,
    write::{self, Write},
};

/// A handle to the file for one who keeps tables in it.
#[derive(Debug, Clone)]
pub struct Rider {
    file: Sqlite,
    /// The file was opened for this rider alone.
    alone: bool,
}

impl Rider {
    /// Opens a file for `schema` alone, without the store's tables.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn open(options: SqliteOptions, schema: &'static Schema) -> Result<Self, StoreError> {
        Ok(Self { file: start::open(options, schema).await?, alone: true })
    }

    /// Brings `schema` into the file of `store`, or refuses what it finds there.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn on(store: &Sqlite, schema: &'static Schema, may_migrate: bool) -> Result<Self, StoreError> {
        let (answer, answered) = oneshot::channel();
        store.write(schema.opening, Write::Schema(AddSchema { schema, may_migrate, answer }), answered).await?;
        Ok(Self { file: store.clone(), alone: false })
    }

    /// Writes `rows` of one kind of a family with whatever else is being written, and gives what they returned.
    ///
    /// # Errors
    /// As those of a save: an unknown outcome is one for every member of a commit.
    pub async fn ride(
        &self,
        operation: &'static str,
        family: &'static [Kind],
        kind: usize,
        rows: Rows,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        debug_assert!(kind < family.len() && family.len() <= KINDS_MAX);
        let (answer, answered) = oneshot::channel();
        self.file.write(operation, Write::Ride(Ride { operation, family, kind, rows, answer }), answered).await
    }

    /// Writes by itself: the rows returned, and how many rows each statement has changed.
    ///
    /// # Errors
    /// As those of a save.
    pub async fn write_text(
        &self,
        operation: &'static str,
        sql: &'static str,
        statements: usize,
        arguments: SqliteArguments,
    ) -> Result<(Vec<SqliteRow>, Vec<u64>), StoreError> {
        let (answer, answered) = oneshot::channel();
        let alone = write::Alone { operation, sql, statements, arguments, answer };
        let Ran { rows, changed, .. } = self.file.write(operation, Write::Alone(alone), answered).await?;
        Ok((rows, changed))
    }

    /// Reads by itself.
    ///
    /// # Errors
    /// As those of a load.
    pub async fn read_text(
        &self,
        operation: &'static str,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.file.read(operation, Read::Alone(read::Alone { operation, sql, arguments, answer }), answered).await
    }

    /// The file's name, for messages.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.file.file()
    }

    /// Closes a file that was opened for this rider alone; a store goes on.
    pub async fn close(&self) {
        if self.alone {
            self.file.close().await;
        }
    }
}

/// What time it is in the file: the host's, in milliseconds since 1970.
#[must_use]
pub fn now() -> i64 {
    rows::now()
}

/// `age` before `now`.
#[must_use]
pub fn before(now: i64, age: Duration) -> i64 {
    rows::before(now, age)
}

/// The store's own tables.
#[must_use]
pub fn store_schema() -> &'static Schema {
    &migrate::STORE
}

/// Opens a store whose tables are those of `schema`: for tests with a version of the store that is yet to come.
///
/// # Errors
/// See [`SqliteOptions::open`].
pub async fn open_store(options: SqliteOptions, schema: &'static Schema) -> Result<Sqlite, StoreError> {
    start::open(options, schema).await
}

/// The tables that somebody keeps in a file, and how far a file has come with them.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// What is being done, for errors: "opening the SQLite store".
    pub opening: &'static str,
    /// What to do about a schema that is missing or old.
    pub remedy: &'static str,
    /// Gives the number of tables that are not SQLite's own, and how many of them are this schema's list of migrations.
    pub tables: &'static str,
    /// Gives the newest migration in the file.
    pub version: &'static str,
    /// A table of names and numbers. A migration that older programs may go on with says there, as `usable_from`, which
    /// version they must know at least; it creates the table where the first migration did not.
    pub numbers: &'static str,
    /// Changes nothing, and fails where nothing can be written.
    pub probe: &'static str,
    /// Rows without which nothing goes on, though no statement fails: what each is called, and a `SELECT` that finds it.
    pub rows: &'static [(&'static str, &'static str)],
    /// A table whose columns `state` and `outbox` are framed, so that it can be told whether this program reads them.
    pub framed: Option<&'static str>,
    /// Version and SQL, in the order of the versions. Each records its own version. Harmless when applied again.
    pub migrations: &'static [(i64, &'static str)],
}

impl Schema {
    /// The version that this program needs.
    #[must_use]
    pub fn latest(&self) -> i64 {
        self.migrations.last().map_or(0, |(version, _)| *version)
    }

    /// The tables that there are once it is applied.
    pub(super) fn table_names(&self) -> Vec<&'static str> {
        let texts = self.migrations.iter().flat_map(|(_, sql)| sql.split("CREATE TABLE IF NOT EXISTS ").skip(1));
        texts.filter_map(|text| text.split([' ', '(']).next()).collect()
    }

    /// All of it, to be applied by hand.
    #[must_use]
    pub fn sql(&self) -> String {
        self.migrations.iter().map(|(_, sql)| *sql).collect::<Vec<_>>().join("\n")
    }
}

/// What a rider can ask for. The kinds of one family stand in one static list, in the order in which they run.
#[derive(Debug)]
pub struct Kind {
    /// Statements, separated by `; `. In the place of `{rows}` is a JSON array, null if there is no row; of `{bytes}` one
    /// blob; of `{now}` the time at which the group is written, in milliseconds since 1970. What a statement returns
    /// begins with the ticket of the row whose doing it is.
    pub sql: &'static str,
    /// How many they are.
    pub statements: usize,
    /// It stands in every commit that has several riders, also when it has no row: so that few texts stay prepared.
    pub usual: bool,
    /// Rows of several rides go into one statement. If not, each ride has its own copy of the statements.
    pub shared: bool,
    /// A row begins with offset and length of its bytes in the blob.
    pub bytes: bool,
}

/// Tells whose doing a returned row is.
pub type Ticket = (i64, i64);

/// The rows of one ride.
#[derive(Debug, Default)]
pub struct Rows {
    pub(super) json: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    /// Where each row ends in the two above, and its ticket.
    pub(super) ends: Vec<(usize, usize, Option<Ticket>)>,
}

impl Rows {
    /// Adds one: `fields`, a tuple or an array, are its values in the array.
    pub fn push(&mut self, ticket: Option<Ticket>, fields: &impl Serialize, bytes: &[u8]) {
        serde_json::to_writer(&mut self.json, fields).expect("numbers and text into memory, nothing can fail");
        self.bytes.extend_from_slice(bytes);
        self.ends.push((self.json.len(), self.bytes.len(), ticket));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What they add to a group, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.json.len() + self.bytes.len()
    }

    /// Adds them to the array and the blob of a statement.
    pub(super) fn write(&self, with_bytes: bool, json: &mut String, blob: &mut Vec<u8>) {
        let (mut row_begins, mut bytes_begin) = (0, 0);
        for &(row_ends, bytes_end, _) in &self.ends {
            json.push(if json.is_empty() { '[' } else { ',' });
            // Fields are written as `[a,b]`; the bytes' place goes in front of them.
            let fields = std::str::from_utf8(&self.json[row_begins..row_ends]).expect("serde_json writes UTF-8");
            if with_bytes {
                let _ = write!(json, "[{},{},", blob.len() + bytes_begin, bytes_end - bytes_begin);
                json.push_str(&fields[1..]);
            } else {
                json.push_str(fields);
            }
            (row_begins, bytes_begin) = (row_ends, bytes_end);
        }
        blob.extend_from_slice(&self.bytes);
    }
}
