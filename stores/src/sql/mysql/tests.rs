#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, SqlSafeStr};

use super::{MySql, MySqlOptions, names::Names, statements};

fn options(prefix: &str) -> MySqlOptions {
    let url = std::env::var("HAPAX_TEST_MYSQL");
    let url = url.expect("no MariaDB to test with: run `cargo xtask test`, or set HAPAX_TEST_MYSQL=mysql://..");
    MySql::options(url).table_prefix(prefix)
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let prefix = format!("hapax_prepare_{}_", std::process::id());
    let options = options(&prefix);
    MySql::migrate(options.clone()).await.unwrap();
    let names = Names::new(&prefix).unwrap();
    let mut connection = MySqlConnection::connect_with(&options.place().unwrap()).await.unwrap();
    for sql in statements::all() {
        let text = names.put_into(&sql);
        let prepared = connection.prepare(AssertSqlSafe(text.clone()).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {text}", prepared.unwrap_err());
    }
    let tables = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut connection).await.unwrap();
    for table in tables.iter().filter(|table| table.starts_with(&prefix)) {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {table}")))).await.unwrap();
    }
}
