//! The hand-written loops' database: the same driver and pragmas as the candidate's, and the leanest tables that can do
//! the job.

use std::path::Path;

use sqlx::{
    ConnectOptions, Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::{
    AnyError,
    books::Books,
    workload::{Account, key_of},
};

/// One at a time, the outbox is cheapest in the entity's row: one page for both. In batches a table of its own is: its
/// rows come and go on the same few pages, while clearing a column would write each entity's page once more.
const SCHEMA: &str = "
CREATE TABLE entity (
    key TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL, outbox BLOB
) WITHOUT ROWID;
CREATE TABLE outbox (id INTEGER PRIMARY KEY, entry BLOB NOT NULL);
CREATE TABLE dedup (id BLOB PRIMARY KEY) WITHOUT ROWID;
";
/// Rows in each statement that fills the table.
const FILL: u32 = 1000;
/// Rows that may wait on their way from the driver's thread: a whole batch, so that the thread never waits for us.
const ROWS_WAITING: usize = 1024;

/// A fresh database with `entities` accounts.
pub(super) async fn create(path: &Path, entities: u32) -> Result<SqliteConnection, AnyError> {
    let mut connection = open(path).await?;
    sqlx::raw_sql(SCHEMA).execute(&mut connection).await?;
    let state = serde_json::to_string(&Account::usual())?;
    for first in (0..entities).step_by(FILL as usize) {
        let keys: Vec<String> = (first..entities.min(first + FILL)).map(key_of).collect();
        sqlx::query("INSERT INTO entity (key, version, state) SELECT value, 1, ?2 FROM json_each(?1)")
            .bind(serde_json::to_string(&keys)?)
            .bind(&state)
            .execute(&mut connection)
            .await?;
    }
    Ok(connection)
}

/// A database that may be there already.
pub(super) async fn open(path: &Path) -> Result<SqliteConnection, AnyError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // As hapax's writer has them (`stores/src/sql/sqlite/start.rs`); whatever is changed there is to be changed here.
        .foreign_keys(true)
        .pragma("cache_size", "-32768")
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", "8000")
        .pragma("journal_size_limit", "268435456")
        .row_buffer_size(ROWS_WAITING)
        .disable_statement_logging();
    Ok(SqliteConnection::connect_with(&options).await?)
}

/// Reads what a run has left, and closes.
pub(super) async fn audit(mut connection: SqliteConnection, books: Books) -> Result<Books, AnyError> {
    const EFFECTS: &str = "
        SELECT sum(json_extract(state, '$.effects')), count(outbox) + (SELECT count(*) FROM outbox),
               (SELECT count(*) FROM dedup)
        FROM entity";
    let row = sqlx::query(EFFECTS).fetch_one(&mut connection).await?;
    let count = |column: usize| -> Result<u64, AnyError> { Ok(row.try_get::<i64, _>(column)?.try_into()?) };
    let (effects, outbox_left, dedup_entries) = (count(0)?, count(1)?, Some(count(2)?));
    connection.close().await?;
    Ok(Books { effects, outbox_left, dedup_entries, ..books })
}
