//! The schema, as plain SQL files, and how far a database has come.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, postgres::PgRow};

use super::{arguments::put_in, names::Names, statements, wire::Schema};

/// Each migration records its own version in `migration` and, from the second on, in `meta` under `usable_from` how old a
/// program may be that goes on with the database: it stays where a step only adds, and becomes the step's own version where
/// it does not.
pub(super) static SCHEMA: Schema = Schema {
    opening: super::start::OPENING,
    remedy: "apply `Postgres::migrate`, or `Postgres::schema_sql` by hand, or set `migrate(true)`",
    tables: ["migration", "meta"],
    version: statements::SCHEMA_VERSION,
    rows: &[
        ("the row of `floor`", "SELECT 1 FROM hapax.floor"),
        ("the row of `long_memory`", "SELECT 1 FROM hapax.long_memory"),
    ],
    framed: Some("hapax.entity"),
    migrations: &[
        (1, include_str!("migrations/0001_initial.sql")),
        (2, include_str!("migrations/0002_schedule.sql")),
        (LONG_MEMORY, include_str!("migrations/0003_long_memory.sql")),
        (4, include_str!("migrations/0004_bodies.sql")),
    ],
};
/// From which on a program remembers what others ask it to.
pub(super) const LONG_MEMORY: i32 = 3;
/// Programs that start at once migrate one after the other. A number that nobody else uses: the letters `hapaxmig`.
const LOCK: i64 = 0x6861_7061_786d_6967;

/// What a database holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    /// 0: nothing of ours.
    pub(super) version: i32,
    pub(super) usable_from: Option<i64>,
}

impl Contents {
    /// From the answer to [`Schema::version`].
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { version: row.try_get(0)?, usable_from: row.try_get(1)? })
    }
}

pub(super) fn schema_sql(names: &Names, schema: &Schema) -> String {
    let create = format!("CREATE SCHEMA IF NOT EXISTS \"{}\";\n\n", names.schema());
    let steps: Vec<String> = schema.migrations.iter().map(|(_, sql)| names.put_into(sql)).collect();
    create + &steps.join("\n")
}

/// What the role that runs the program needs, once somebody else has applied the schema.
pub(super) fn grants_sql(names: &Names, role: &str) -> String {
    let tables = |list: &[&str]| -> String {
        let named: Vec<String> = list.iter().map(|table| names.put_into(&format!("hapax.{table}"))).collect();
        named.join(", ")
    };
    let role = role.replace('"', "\"\"");
    let schema = names.schema();
    let dedup = tables(&["dedup_0", "dedup_1", "dedup_2", "dedup_3", "dedup_4", "dedup_5"]);
    format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{role}\";\n\
         GRANT SELECT ON {} TO \"{role}\";\n\
         GRANT SELECT, INSERT ON {} TO \"{role}\";\n\
         GRANT SELECT, INSERT, DELETE ON {} TO \"{role}\";\n\
         GRANT SELECT, INSERT, UPDATE ON {} TO \"{role}\";\n\
         GRANT SELECT, UPDATE ON {} TO \"{role}\";\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO \"{role}\";\n\
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {dedup} TO \"{role}\";\n",
        tables(&["migration"]),
        tables(&["scope"]),
        tables(&["dead_letter"]),
        tables(&["meta"]),
        tables(&["floor", "long_memory"]),
        tables(&["entity", "generation", "schedule", "body", "long_run", "long_key", "long_evidence"]),
    )
}

pub(super) async fn contents(
    connection: &mut PgConnection,
    names: &Names,
    schema: &Schema,
) -> Result<Contents, sqlx::Error> {
    // Each in one message, for connection poolers: see `put_in`. Names are checked, and need no quotes.
    let [migration, meta] = schema.tables.map(|table| names.table(table));
    let there = format!(
        "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = '{}' AND tablename IN ('{migration}', '{meta}')",
        names.schema()
    );
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(there))).await?;
    if row.try_get::<i64, _>(0)? < 2 {
        return Ok(Contents { version: 0, usable_from: None });
    }
    let text = names.put_into(schema.version);
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    Contents::of(&row)
}

/// Brings the database to the latest version. One transaction that takes a lock and looks again: of several programs that
/// start at once, one does the work and the others find it done.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    names: &Names,
    schema: &Schema,
) -> Result<Contents, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Others may be at it for longer than a lock is waited for elsewhere.
    let lock = AssertSqlSafe(put_in("SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock($1)", &[LOCK]));
    transaction.execute(sqlx::raw_sql(lock)).await?;
    let before = contents(&mut transaction, names, schema).await?;
    let there = format!("SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{}'", names.schema());
    if transaction.fetch_optional(sqlx::raw_sql(AssertSqlSafe(there))).await?.is_none() {
        let create = format!("CREATE SCHEMA \"{}\"", names.schema());
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(create))).await?;
    }
    for (_, sql) in schema.migrations.iter().filter(|(version, _)| *version > before.version) {
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(names.put_into(sql)))).await?;
    }
    transaction.commit().await?;
    Ok(before)
}
