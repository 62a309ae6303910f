#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{super::Postgres, PostgresOutbox, statements};

#[tokio::test]
async fn the_server_takes_every_statement_of_the_outbox() {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    let url =
        url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
    let schema = format!("hapax_outbox_{}", std::process::id());
    let database = Postgres::options(&url).schema(&schema);
    let outbox = PostgresOutbox::options().migrate(true).open_database(database).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for sql in statements::all() {
        let text = AssertSqlSafe(outbox.0.server.text(&sql).to_string());
        let prepared = connection.prepare(text.into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
        // Under a name of its own each would stay with the session.
        connection.clear_cached_statements().await.unwrap();
    }
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
}
