//! The schema, as plain SQL files, and how far a database has come.

use hapax_core::ports::StoreError;
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row, mysql::MySqlRow};

use super::{super::missing, names::Names, options::MySqlOptions, rows::Columns, statements, wire::Schema};

/// Each migration records its own version in `migration` and, from the second on, in `meta` under `usable_from` how old a
/// program may be that goes on with the database: it stays where a step only adds, and becomes the step's own version where
/// it does not.
pub(super) static SCHEMA: Schema = Schema {
    opening: super::start::OPENING,
    remedy: "apply `MySql::migrate`, or `MySql::schema_sql` by hand, or set `migrate(true)`",
    tables: ["migration", "meta"],
    version: statements::SCHEMA_VERSION,
    rows: &[
        ("the row of `floor`", "SELECT 1 FROM hapax.floor WHERE one = 1"),
        ("the row of `settled`", "SELECT 1 FROM hapax.settled WHERE one = 1"),
        ("the row of `long_memory`", "SELECT 1 FROM hapax.long_memory WHERE one = 1"),
    ],
    framed: Some("hapax.entity"),
    migrations: &[
        (1, include_str!("migrations/0001_initial.sql")),
        (2, include_str!("migrations/0002_schedule.sql")),
        (LONG_MEMORY, include_str!("migrations/0003_long_memory.sql")),
    ],
};
/// From which on a program remembers what others ask it to.
pub(super) const LONG_MEMORY: i64 = 3;
/// How long one of several programs that migrate at once waits for the others.
const LOCK_LIMIT_SECONDS: u32 = 20;

/// What a database holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    /// 0: nothing of ours.
    pub(super) version: i64,
    pub(super) usable_from: Option<i64>,
}

impl Contents {
    pub(super) fn of(row: &MySqlRow) -> Result<Self, sqlx::Error> {
        Ok(Self { version: row.number(0)?, usable_from: row.try_get(1)? })
    }
}

pub(super) fn schema_sql(names: &Names, schema: &Schema) -> String {
    let steps: Vec<String> = schema.migrations.iter().map(|(_, sql)| names.put_into(sql)).collect();
    steps.join("\n")
}

/// What the account that runs the program needs, once somebody else has applied the schema.
pub(super) fn grants_sql(options: &MySqlOptions, account: &str) -> Result<String, StoreError> {
    let rights = [
        ("SELECT", &["migration"][..]),
        ("SELECT, INSERT, UPDATE", &["scope", "meta"]),
        ("SELECT, INSERT, UPDATE, DELETE", &["dead_letter"]),
        ("SELECT, UPDATE", &["floor", "settled", "long_memory"]),
        ("SELECT, INSERT, UPDATE, DELETE", &["entity", "generation", "schedule"]),
        ("SELECT, INSERT, UPDATE, DELETE", &["long_run", "long_key", "long_evidence"]),
        // Emptying a table is dropping it to this server, and making it again.
        ("SELECT, INSERT, UPDATE, DELETE, DROP", &["dedup_0", "dedup_1", "dedup_2", "dedup_3", "dedup_4", "dedup_5"]),
    ];
    let grants = rights.iter().flat_map(|(rights, tables)| {
        tables.iter().map(move |table| format!("GRANT {rights} ON hapax.{table} TO ACCOUNT;\n"))
    });
    with_account(options, SCHEMA.opening, account, &grants.collect::<String>())
}

/// `text` with the tables' names and their database, and the account, in it.
pub(super) fn with_account(
    options: &MySqlOptions,
    opening: &'static str,
    account: &str,
    text: &str,
) -> Result<String, StoreError> {
    let names = Names::new(&options.table_prefix, opening)?;
    let place = options.place(opening)?;
    let database = place.get_database().unwrap_or_default().replace('`', "``");
    let quoted = |name: &str| format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''"));
    let (name, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    let account = format!("{}@{}", quoted(name), quoted(host));
    let tables = format!("`{database}`.{}", names.prefix());
    // Only what is between is searched: the names that are put in may have the same words in them.
    let parts = text.split("ACCOUNT").map(|part| part.replace("hapax.", &tables));
    Ok(parts.collect::<Vec<_>>().join(&account))
}

pub(super) async fn contents(
    connection: &mut MySqlConnection,
    names: &Names,
    schema: &Schema,
) -> Result<Contents, sqlx::Error> {
    let tables = schema.tables.map(|table| names.table(table));
    if engines(connection, &tables).await?.len() < tables.len() {
        return Ok(Contents { version: 0, usable_from: None });
    }
    let text = names.put_into(schema.version);
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    Contents::of(&row)
}

/// Of those tables that there are: the name, and the storage engine.
async fn engines(connection: &mut MySqlConnection, tables: &[String]) -> Result<Vec<(String, String)>, sqlx::Error> {
    // Names are checked, and need no quotes.
    let list: Vec<String> = tables.iter().map(|table| format!("'{table}'")).collect();
    let list = list.join(", ");
    let sql = format!(
        "SELECT CAST(table_name AS CHAR), CAST(engine AS CHAR) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name IN ({list})"
    );
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<Option<String>, _>(1)?.unwrap_or_default()))).collect()
}

/// What is wrong with the tables: one is missing, a row in one, or one's storage engine knows no transactions.
pub(super) async fn damage(
    connection: &mut MySqlConnection,
    names: &Names,
    schema: &Schema,
) -> Result<Option<String>, sqlx::Error> {
    let texts = schema.migrations.iter().flat_map(|(_, sql)| sql.split("EXISTS hapax.").skip(1));
    let tables: Vec<String> = texts.filter_map(|text| text.split_whitespace().next()).map(|t| names.table(t)).collect();
    let engines = engines(connection, &tables).await?;
    let is_gone = |table: &&String| !engines.iter().any(|(there, _)| there.eq_ignore_ascii_case(table));
    let gone: Vec<&str> = tables.iter().filter(is_gone).map(String::as_str).collect();
    if !gone.is_empty() {
        // The server shows an account only what it has a right to.
        return Ok(Some(missing::tables(&gone.join(", ")) + "; or grant this account its rights (`grants_sql`)"));
    }
    if let Some((table, engine)) = engines.iter().find(|(_, engine)| !engine.eq_ignore_ascii_case("InnoDB")) {
        return Ok(Some(format!(
            "the table {table} is of the storage engine {engine}, which knows no transactions: `ALTER TABLE {table} \
             ENGINE = InnoDB`"
        )));
    }
    let Some(question) = missing::row_question(schema.rows) else { return Ok(None) };
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(names.put_into(&question)))).await?;
    let gone: Option<String> = row.try_get(0)?;
    Ok(gone.map(|gone| format!("{names}: {}", missing::row(&gone))))
}

/// Brings the database to the latest version. Each statement about tables commits by itself, so that a migration may have
/// been done in part: all of it may be repeated, and its last statement says that it was done. Of several programs that start
/// at once one does the work, under a lock, and the others find it done.
pub(super) async fn migrate(
    connection: &mut MySqlConnection,
    names: &Names,
    schema: &Schema,
) -> Result<Contents, sqlx::Error> {
    let lock = format!("CONCAT('hapax-', MD5(CONCAT(DATABASE(), '.{}')), '-m')", names.prefix());
    // Not having it, or a server that knows no such locks, is found out by the statements themselves: they may be repeated.
    let take = format!("DO GET_LOCK({lock}, {LOCK_LIMIT_SECONDS})");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(take))).await?;
    let before = contents(connection, names, schema).await?;
    for (_, sql) in schema.migrations.iter().filter(|(version, _)| *version > before.version) {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(names.put_into(sql)))).await?;
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DO RELEASE_LOCK({lock})")))).await?;
    Ok(before)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sqlx::mysql::MySqlConnectOptions;

    use super::{super::MySql, grants_sql};

    #[test]
    fn no_name_can_end_its_place_in_grants_or_stand_for_another() {
        let server = MySqlConnectOptions::new().database("ACCOUNT`hapax.");
        let options = MySql::with(server).table_prefix("hapax_");
        let grants = grants_sql(&options, "o'hapax.ACCOUNT\\@ACCOUNT").unwrap();
        let expected = "GRANT SELECT ON `ACCOUNT``hapax.`.hapax_migration TO 'o''hapax.ACCOUNT\\\\'@'ACCOUNT';";
        assert_eq!(grants.lines().next(), Some(expected));
        for line in grants.lines() {
            assert!(line.contains(" ON `ACCOUNT``hapax.`.hapax_"), "{line}");
            assert!(line.ends_with(" TO 'o''hapax.ACCOUNT\\\\'@'ACCOUNT';"), "{line}");
        }
    }
}
