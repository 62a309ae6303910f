#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{Postgres, PostgresOptions, names::Names, statements};

fn options(schema: &str) -> PostgresOptions {
    let url = std::env::var("HAPAX_TEST_POSTGRES");
    let url =
        url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
    Postgres::options(url).schema(schema)
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let schema = format!("hapax_prepare_{}", std::process::id());
    let options = options(&schema);
    Postgres::migrate(options.clone()).await.unwrap();
    let names = Names::new(&schema, "").unwrap();
    let mut connection = PgConnection::connect_with(&options.place().unwrap()).await.unwrap();
    for sql in statements::all() {
        let text = names.put_into(&sql);
        let prepared = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {text}", prepared.unwrap_err());
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}
