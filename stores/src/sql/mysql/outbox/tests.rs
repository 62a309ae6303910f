//! Does the server take every text of the outbox? Rare ones would else be tried for the first time when they are needed.
#![allow(clippy::unwrap_used)]

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row, SqlSafeStr};

use super::{super::MySql, MySqlOutbox, statements};

#[tokio::test]
async fn the_server_takes_every_statement_of_the_outbox() {
    let url = std::env::var("HAPAX_TEST_MYSQL");
    let url = url.expect("no MariaDB to test with: run `cargo xtask test`, or set HAPAX_TEST_MYSQL=mysql://..");
    let prefix = format!("so_{}_", std::process::id());
    let database = MySql::options(&url).table_prefix(&prefix);
    let outbox = MySqlOutbox::options().migrate(true).open_database(database).await.unwrap();
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    for sql in statements::all() {
        let text = AssertSqlSafe(outbox.0.server.text(&sql).to_string());
        let prepared = connection.prepare(text.into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
    }
    let like = prefix.replace('_', "\\_");
    let tables =
        format!("SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_name LIKE '{like}%'");
    for table in connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(tables))).await.unwrap() {
        let drop = format!("DROP TABLE {}", table.get::<String, _>(0));
        connection.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await.unwrap();
    }
}
