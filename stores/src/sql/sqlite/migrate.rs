//! The schemas, as plain SQL files, and how far a file has come.

use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection};

use super::{super::missing, connection::number, ride::Schema, statements};

/// Marks a file as hapax's, see SQLite's `PRAGMA application_id`: the letters `hapx`.
pub(super) const APPLICATION_ID: i64 = 0x6861_7078;

/// Each migration records its own version in `hapax_migration` and, from the second on, in `usable_from` how old a program
/// may be that goes on with the file: it stays where a step only adds, and becomes the step's own version where it does not.
pub(super) static STORE: Schema = Schema {
    opening: "opening the SQLite store",
    remedy: "apply `Sqlite::migrate`, or set `migrate(true)`",
    tables: statements::TABLES,
    version: statements::SCHEMA_VERSION,
    numbers: "hapax_meta",
    probe: "UPDATE hapax_meta SET value = value",
    rows: &[
        ("the row `version_floor` of `hapax_meta`", "SELECT 1 FROM hapax_meta WHERE name = 'version_floor'"),
        ("every row of `hapax_generation`", "SELECT 1 FROM hapax_generation"),
        ("the row of `hapax_long_memory`", "SELECT 1 FROM hapax_long_memory"),
    ],
    framed: Some("hapax_entity"),
    migrations: &[
        (1, include_str!("migrations/0001_initial.sql")),
        (2, include_str!("migrations/0002_generation_filters.sql")),
        (3, include_str!("migrations/0003_schedule.sql")),
        (LONG_MEMORY, include_str!("migrations/0004_long_memory.sql")),
        (5, include_str!("migrations/0005_bodies.sql")),
    ],
};
/// From which on a program remembers what others ask it to.
pub(super) const LONG_MEMORY: i64 = 4;

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
    /// Asked for if the version is not known here: programs that know this one may use the file all the same.
    pub(super) usable_from: Option<i64>,
}

pub(super) async fn contents(connection: &mut SqliteConnection, schema: &Schema) -> Result<Contents, sqlx::Error> {
    let application_id = number(connection, "PRAGMA application_id").await?;
    let row = connection.fetch_one(schema.tables).await?;
    let (tables, ours): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let version = if ours == 0 { 0 } else { number(connection, schema.version).await? };
    let usable_from = if version > schema.latest() { usable_from(connection, schema).await? } else { None };
    let row = connection.fetch_one(statements::FOREIGN).await?;
    let (shared, foreign) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Contents { application_id, tables, shared, foreign, version, usable_from })
}

/// What is not there although the migrations that make it are on record.
pub(super) async fn missing(connection: &mut SqliteConnection, schema: &Schema) -> Result<Option<String>, sqlx::Error> {
    let tables: Vec<String> = schema.table_names().iter().map(|table| format!("('{table}')")).collect();
    if !tables.is_empty() {
        let question = format!(
            "WITH needed (name) AS (VALUES {}) SELECT group_concat('`' || name || '`', ', ') FROM needed \
             WHERE name NOT IN (SELECT name FROM sqlite_schema WHERE type = 'table')",
            tables.join(", ")
        );
        let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(question))).await?;
        if let Some(list) = row.try_get::<Option<String>, _>(0)? {
            return Ok(Some(missing::tables(&list)));
        }
    }
    let Some(question) = missing::row_question(schema.rows) else { return Ok(None) };
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(question))).await?;
    Ok(row.try_get::<Option<String>, _>(0)?.as_deref().map(missing::row))
}

/// What the newest migration in the file says. `None`: nothing, so that only programs which know it may use the file.
async fn usable_from(connection: &mut SqliteConnection, schema: &Schema) -> Result<Option<i64>, sqlx::Error> {
    let Schema { numbers, .. } = schema;
    let there = format!("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{numbers}'");
    if connection.fetch_optional(sqlx::raw_sql(AssertSqlSafe(there))).await?.is_none() {
        return Ok(None);
    }
    let said = format!("SELECT value FROM {numbers} WHERE name = 'usable_from'");
    connection.fetch_optional(sqlx::raw_sql(AssertSqlSafe(said))).await?.map(|row| row.try_get(0)).transpose()
}

/// Brings the file to the latest version of `schema`. One transaction that begins as a writer and looks again: of several
/// processes that start at once, one does the work and the others find it done. Gives what it has found: meanwhile a newer
/// program may have taken the file further.
pub(super) async fn migrate(connection: &mut SqliteConnection, schema: &Schema) -> Result<Contents, sqlx::Error> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let before = contents(&mut transaction, schema).await?;
    for (_, sql) in schema.migrations.iter().filter(|(version, _)| *version > before.version) {
        transaction.execute(sqlx::raw_sql(*sql)).await?;
    }
    // An application that shares its file with us keeps its own mark.
    if before.tables == 0 {
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}")))).await?;
    }
    transaction.commit().await?;
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::STORE;

    /// One that says nothing is taken for one that only adds.
    #[test]
    fn every_migration_but_the_first_says_which_programs_may_go_on() {
        for (version, sql) in STORE.migrations.iter().skip(1) {
            assert!(sql.contains("'usable_from'"), "migration {version} does not say it");
        }
    }
}
