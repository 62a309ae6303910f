#![allow(clippy::unwrap_used)]

use hapax_core::ports::StoreError;
use hapax_stores::{
    Postgres,
    sql::postgres::{PostgresOptions, wire},
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{PostgresQueue, statements};

fn url() -> String {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..")
}

async fn migrated(schema: &str) -> Result<(PostgresOptions, PgConnection), StoreError> {
    let database = Postgres::options(url()).schema(schema);
    PostgresQueue::options().migrate(true).open_database(database.clone()).await?.close().await;
    Ok((database, PgConnection::connect(&url()).await.unwrap()))
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let schema = format!("hapax_queue_prepare_{}", std::process::id());
    let (database, mut connection) = migrated(&schema).await.unwrap();
    for sql in statements::all() {
        let text = wire::with_names(&database, &sql).unwrap();
        let prepared = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {text}", prepared.unwrap_err());
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}
