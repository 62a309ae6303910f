//! Does the server take every text of the outbox, and does it find rows by their ids with plans that it made while there were none?
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row as _, SqlSafeStr};

use super::{
    super::{Postgres, start::SETTINGS},
    PostgresOutbox, statements,
    tick::{self, Kinds},
    timed,
};

#[tokio::test]
async fn the_server_takes_every_statement_of_the_outbox() {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    let url =
        url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
    let schema = format!("hapax_outbox_{}", std::process::id());
    let database = |prefix: &str| Postgres::options(&url).schema(&schema).table_prefix(prefix);
    let options = || PostgresOutbox::options().migrate(true);
    let plain = options().open_database(database("")).await.unwrap();
    let timed = options().time_partitions(Duration::from_secs(86_400)).open_database(database("timed_")).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (outbox, texts) in [(plain, statements::all()), (timed, [statements::all(), timed::all()].concat())] {
        for sql in texts {
            let text = AssertSqlSafe(outbox.0.server.text(&sql).to_string());
            let prepared = connection.prepare(text.into_sql_str()).await;
            assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
            // Under a name of its own each would stay with the session.
            connection.clear_cached_statements().await.unwrap();
        }
    }
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
}

/// A plan that was made while the table was empty is used when it no longer is: it must not go through what waits.
#[tokio::test]
async fn what_is_told_of_rows_finds_them_by_their_ids() {
    let url = std::env::var("HAPAX_TEST_POSTGRES").expect("set HAPAX_TEST_POSTGRES, or run `cargo xtask test`");
    let schema = format!("hapax_outbox_plans_{}", std::process::id());
    let database = Postgres::options(&url).schema(&schema);
    let outbox = PostgresOutbox::options().migrate(true).open_database(database).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (name, value) in SETTINGS {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("SET {name} = '{value}'")))).await.unwrap();
    }
    let told = |kinds: &Kinds| (kinds.sent || kinds.others || kinds.renew) && !kinds.claim && !kinds.share;
    for (ordered, kinds) in [false, true]
        .into_iter()
        .flat_map(|ordered| tick::kinds(ordered).into_iter().filter(told).map(move |kinds| (ordered, kinds)))
    {
        let sql = outbox.0.server.text(&tick::text(kinds, ordered)).to_string();
        let arguments = (1..100).take_while(|number| sql.contains(&format!("${number}::"))).count();
        let nulls = vec!["NULL"; arguments].join(", ");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("PREPARE told AS {sql}")))).await.unwrap();
        let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE told ({nulls})"));
        let plan = connection.fetch_all(sqlx::raw_sql(explain)).await.unwrap();
        let plan = plan.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<String>>().join("\n");
        assert!(plan.contains("outbox_pkey") && !plan.contains("hapax_outbox_"), "{kinds:?}: {plan}");
        connection.execute("DEALLOCATE told").await.unwrap();
    }
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
}
