#![allow(clippy::unwrap_used)]

mod plans;
mod reconnecting;
mod upgrading;

use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{Postgres, PostgresOptions, connection::Dial, names::Names, start, statements};

/// A schema of one test, which is dropped at its end.
struct Place {
    options: PostgresOptions,
    names: Names,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("hapax_store_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let url = std::env::var("HAPAX_TEST_POSTGRES");
        let url =
            url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
        let options = Postgres::options(url).schema(schema);
        Self { names: Names::new(&options, "a test").unwrap(), options }
    }

    async fn migrated() -> Self {
        let place = Self::new();
        Postgres::migrate(place.options.clone()).await.unwrap();
        place
    }

    fn dial(&self) -> Dial {
        start::dial(&self.options, "a test").unwrap()
    }

    /// A connection as the store's own are.
    async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&self.dial().options).await.unwrap()
    }

    fn text(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.names.put_into(sql))
    }

    async fn run(&self, sql: &str) {
        self.connect().await.execute(sqlx::raw_sql(self.text(sql))).await.unwrap();
    }

    async fn end(self) {
        self.run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.names.schema())).await;
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
