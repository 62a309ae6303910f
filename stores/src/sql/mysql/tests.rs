#![allow(clippy::unwrap_used)]

mod generations;
mod plans;
mod reconnecting;
mod settling;
mod unknown;
mod upgrading;
mod writing;

use std::sync::atomic::{AtomicU64, Ordering};

use hapax_core::ids::DedupKey;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, SqlSafeStr};
use tokio::sync::oneshot;

use super::{
    MySql, MySqlOptions,
    arguments::Text,
    connection::Dial,
    generations::View,
    names::Names,
    read::{self, Load},
    start,
    statements::{self, AS_THEY_ARE, DEDUP_ROW, ROW, TAKE_ALL, TAKE_OUTBOX},
    upkeep::of_keys,
};

/// The tables of one test, which are dropped at its end, and an account that no other test uses.
struct Place {
    options: MySqlOptions,
    names: Names,
    account: String,
}

impl Place {
    async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var("HAPAX_TEST_MYSQL");
        let url = url.expect("no MariaDB to test with: run `cargo xtask test`, or set HAPAX_TEST_MYSQL=mysql://..");
        let account = format!("store_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let options = MySql::options(&url).table_prefix(format!("{account}_"));
        let place = Self { names: Names::new(&options.table_prefix, "a test").unwrap(), options, account };
        let Self { account, .. } = &place;
        place.run(&format!("CREATE USER '{account}'@'%'; GRANT ALL ON *.* TO '{account}'@'%'")).await;
        place
    }

    async fn migrated() -> Self {
        let place = Self::new().await;
        MySql::migrate(place.options.clone()).await.unwrap();
        place
    }

    fn dial(&self) -> Dial {
        start::dial(&self.options, "a test").unwrap()
    }

    /// As the account of this test, by which its connections are known.
    fn known(&self) -> MySqlOptions {
        let options = self.options.place("a test").unwrap().username(&self.account);
        MySql::with(options).table_prefix(self.names.prefix())
    }

    async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect_with(&self.options.place("a test").unwrap()).await.unwrap()
    }

    fn text(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.names.put_into(sql))
    }

    async fn run(&self, sql: &str) {
        self.connect().await.execute(sqlx::raw_sql(self.text(sql))).await.unwrap();
    }

    /// Ends all connections of the account.
    async fn cut(&self) {
        let mut connection = self.connect().await;
        let list = "SELECT id FROM information_schema.processlist WHERE user = ?";
        let ids: Vec<i64> = sqlx::query_scalar(list).bind(&self.account).fetch_all(&mut connection).await.unwrap();
        for id in ids {
            // It may have ended by itself.
            drop(connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL CONNECTION {id}")))).await);
        }
    }

    async fn end(self) {
        let tables = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut self.connect().await).await.unwrap();
        for table in tables.iter().filter(|table| table.starts_with(self.names.prefix())) {
            self.run(&format!("DROP TABLE {table}")).await;
        }
        self.run(&format!("DROP USER '{}'@'%'", self.account)).await;
    }
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let place = Place::migrated().await;
    let mut connection = place.connect().await;
    for sql in statements::all() {
        let prepared = connection.prepare(place.text(&sql).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
    }
    place.end().await;
}
