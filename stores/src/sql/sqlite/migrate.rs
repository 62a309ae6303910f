//! The schemas, as plain SQL files, and how far a file has come.

use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection};

use super::{connection::number, ride::Schema, statements};

/// Marks a file as hapax's, see SQLite's `PRAGMA application_id`: the letters `hapx`.
pub(super) const APPLICATION_ID: i64 = 0x6861_7078;

/// Each file records its own version in `hapax_migration`.
pub(super) static STORE: Schema = Schema {
    opening: "opening the SQLite store",
    remedy: "apply `Sqlite::migrate`, or set `migrate(true)`",
    tables: statements::TABLES,
    version: statements::SCHEMA_VERSION,
    probe: "UPDATE hapax_meta SET value = value",
    migrations: &[
        (1, include_str!("migrations/0001_initial.sql")),
        (2, include_str!("migrations/0002_generation_filters.sql")),
    ],
};

pub(super) fn schema_sql() -> String {
    STORE.sql()
}

/// What a file holds.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    pub(super) application_id: i64,
    pub(super) tables: i64,
    /// There are tables that begin with `hapax_`: this schema's or another one's.
    pub(super) shared: bool,
    /// A table of somebody else.
    pub(super) foreign: Option<String>,
    /// 0: nothing of the schema.
    pub(super) version: i64,
}

pub(super) async fn contents(connection: &mut SqliteConnection, schema: &Schema) -> Result<Contents, sqlx::Error> {
    let application_id = number(connection, "PRAGMA application_id").await?;
    let row = connection.fetch_one(schema.tables).await?;
    let (tables, ours): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let version = if ours == 0 { 0 } else { number(connection, schema.version).await? };
    let row = connection.fetch_one(statements::FOREIGN).await?;
    let (shared, foreign) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Contents { application_id, tables, shared, foreign, version })
}

/// Brings the file to the latest version of `schema`. One transaction that begins as a writer and looks again: of several
/// processes that start at once, one does the work and the others find it done.
pub(super) async fn migrate(connection: &mut SqliteConnection, schema: &Schema) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = contents(&mut transaction, schema).await?;
    for (_, sql) in schema.migrations.iter().filter(|(version, _)| *version > before.version) {
        transaction.execute(sqlx::raw_sql(*sql)).await?;
    }
    // An application that shares its file with us keeps its own mark.
    if before.tables == 0 {
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}")))).await?;
    }
    transaction.commit().await
}
