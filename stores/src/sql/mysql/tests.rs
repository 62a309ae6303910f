//! Tests from within, on a real server, each with tables and an account of its own: they prepare statements and cut connections, which no
//! port lets a test do.
#![allow(clippy::unwrap_used)]
#![allow(clippy::duplicate_mod, reason = "what goes for both servers takes what is its own from the `rig` beside it")]

#[path = "../tests/clock.rs"]
mod clock;
#[path = "../tests/frames.rs"]
mod frames;
#[path = "../tests/generations.rs"]
mod generations;
#[path = "../tests/long.rs"]
mod long;
mod plans;
mod reconnecting;
mod rig;
mod settling;
mod unknown;
#[path = "../tests/upgrading.rs"]
mod upgrading;
#[path = "../tests/writing.rs"]
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
    for sql in statements::all().into_iter().chain(of_many(3)) {
        let prepared = connection.prepare(place.text(&sql).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
    }
    place.end().await;
}

/// Texts that are put together where they are sent, each of `count` rows.
fn of_many(count: usize) -> Vec<String> {
    let keys: Vec<String> = (0..count).map(|n| format!("k{}", n * 37)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let with_keys = |before: &str, after: &str| {
        let mut text = Text::with_capacity(1000);
        of_keys(text.sql(before), 1, &keys).sql(after);
        text.as_str().to_owned()
    };
    let of_scope = |before: String| format!("{before}1{}", statements::OF_SCOPE);
    let rows = |row: &str| vec![row; count].join(", ");
    vec![
        with_keys(statements::LOCK_ENTITIES, statements::FOR_UPDATE),
        with_keys(&of_scope(statements::unwatch()), ")"),
        with_keys(&of_scope(statements::lock_tombstones()), statements::FOR_UPDATE),
        with_keys(statements::PURGE, ")"),
        format!("{}{}{TAKE_ALL}", statements::PUT_ENTITIES, rows(ROW)),
        format!("{}{}{TAKE_OUTBOX}", statements::PUT_ENTITIES, rows(ROW)),
        format!("{}{}", statements::PUT_ENTITIES, rows(ROW)),
        format!("{}{}{AS_THEY_ARE}", statements::put_dedup(3), rows(DEDUP_ROW)),
        format!("SELECT GET_LOCK({}, 0)", statements::drop_lock("hapax")),
        of_loads(count),
    ]
}

/// Loads of entities of two sagas and of what is known of messages, in one statement.
fn of_loads(count: usize) -> String {
    let id = |n: usize| {
        let mut id = [b'0'; DedupKey::BYTES];
        id[..2].copy_from_slice(&u16::try_from(n).unwrap().to_be_bytes());
        DedupKey::from_bytes(id)
    };
    let load = |n: usize| Load {
        operation: "test",
        entity: Some((1 + (n % 2) as i64, format!("k{n}").parse().unwrap())),
        over: None,
        ids: vec![id(n)],
        answer: oneshot::channel().0,
    };
    let loads: Vec<Load> = (0..count).map(load).collect();
    // As they are, so that a place's own are put in later.
    let names = Names::new("hapax_", "a test").unwrap();
    let text = read::many(&names, &View { live: vec![(1, 0), (2, 3)] }, &loads, (0..count).map(id).collect());
    text.as_str().replace("hapax_", "hapax.")
}
