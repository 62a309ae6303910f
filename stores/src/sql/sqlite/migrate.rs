//! The schema, as plain SQL files, and how far a file has come.

use sqlx::{Connection, Executor, SqliteConnection};

use super::{connection::number, statements};

/// Marks a file as hapax's, see SQLite's `PRAGMA application_id`: the letters `hapx`.
pub(super) const APPLICATION_ID: i64 = 0x6861_7078;

struct Migration {
    version: i64,
    sql: &'static str,
}

/// In the order of their versions. Each file records its own version in `hapax_migration`.
const MIGRATIONS: [Migration; 1] = [Migration { version: 1, sql: include_str!("migrations/0001_initial.sql") }];

/// The version that this program needs.
pub(super) const LATEST: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

pub(super) fn schema_sql() -> String {
    MIGRATIONS.map(|migration| migration.sql).join("\n")
}

/// What a file holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    pub(super) application_id: i64,
    pub(super) tables: i64,
    /// 0: no schema of ours.
    pub(super) version: i64,
}

pub(super) async fn contents(connection: &mut SqliteConnection) -> Result<Contents, sqlx::Error> {
    use sqlx::Row;
    let application_id = number(connection, "PRAGMA application_id").await?;
    let row = connection.fetch_one(statements::TABLES).await?;
    let (tables, ours): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let version = if ours == 0 { 0 } else { number(connection, statements::SCHEMA_VERSION).await? };
    Ok(Contents { application_id, tables, version })
}

/// Brings the file to [`LATEST`]. One transaction that begins as a writer and looks again: of several processes that
/// start at once, one does the work and the others find it done.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = contents(&mut transaction).await?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > before.version) {
        transaction.execute(sqlx::raw_sql(migration.sql)).await?;
    }
    // An application that shares its file with us keeps its own mark.
    if before.tables == 0 {
        transaction
            .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"))))
            .await?;
    }
    transaction.commit().await
}
