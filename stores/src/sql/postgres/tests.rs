//! Tests from within, on a real server, each in a schema of its own: they prepare statements and cut connections, which no port lets a test do.
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
#[path = "../tests/upgrading.rs"]
mod upgrading;
#[path = "../tests/writing.rs"]
mod writing;

use std::sync::atomic::{AtomicU64, Ordering};

use hapax_core::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    time::Timestamp,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::{Postgres, PostgresOptions, connection::Dial, names::Names, start, statements};

/// A schema of one test, which is dropped at its end.
struct Place {
    options: PostgresOptions,
    names: Names,
}

impl Place {
    async fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("hapax_store_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let url = std::env::var("HAPAX_TEST_POSTGRES");
        let url =
            url.expect("no PostgreSQL to test with: run `cargo xtask test`, or set HAPAX_TEST_POSTGRES=postgres://..");
        let options = Postgres::options(url).schema(schema);
        Self { names: Names::new(&options, "a test").unwrap(), options }
    }

    async fn migrated() -> Self {
        let place = Self::new().await;
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

    /// By a name of this test, by which its connections are known.
    fn known(&self) -> PostgresOptions {
        let name = self.names.schema();
        Postgres::with(self.options.place("a test").unwrap().application_name(name)).schema(name)
    }

    /// Ends all connections of that name.
    async fn cut(&self) {
        let name = self.names.schema();
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'");
        self.run(&end).await;
    }

    async fn end(self) {
        self.run(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.names.schema())).await;
    }
}

#[tokio::test]
async fn the_server_takes_every_statement() {
    let place = Place::migrated().await;
    let mut connection = place.connect().await;
    for sql in all() {
        let prepared = connection.prepare(place.text(&sql).into_sql_str()).await;
        assert!(prepared.is_ok(), "{}: {sql}", prepared.unwrap_err());
    }
    place.end().await;
}

/// The statement is refused then, and written again by another that leaves them out: beside others, and alone. Both ways are
/// gone more than once, since the first refusal makes the writer wary for a while.
#[tokio::test]
async fn known_dedup_entries_stay_as_they_are_and_the_new_ones_beside_them_go_in() {
    let place = Place::new().await;
    let entry = |key: u8, attempt: u8| DedupEntry {
        key: DedupKey::from_bytes([key; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([attempt; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    };
    let store = place.options.clone().migrate(true).open().await.unwrap();
    store.insert(&[entry(1, 1), entry(2, 1)]).await.unwrap();
    for again in [&[entry(1, 2), entry(3, 2)][..], &[entry(2, 2)]] {
        // Another store each time: one that is not wary.
        let store = place.options.clone().open().await.unwrap();
        for _ in 0..2 {
            store.insert(again).await.unwrap();
        }
        let known = store.contains(&[1, 2, 3].map(|key| entry(key, 0).key)).await.unwrap();
        for (key, attempt) in [(1, 1), (2, 1), (3, 2)] {
            assert_eq!(known.entry(&entry(key, 0).key), Some(&entry(key, attempt)));
        }
        store.close().await;
    }
    store.close().await;
    place.end().await;
}

/// Every text, for the test that prepares them.
fn all() -> Vec<String> {
    use statements::{long, *};
    use {DedupPart as D, EntityPart as E, IfThere as K};
    let mut all = Vec::new();
    for entity in [E::None, E::Update, E::Create] {
        for dedup in [D::None, D::Always, D::IfWon] {
            for known in [K::Refused, K::Skipped] {
                if entity == E::None && dedup == D::Always {
                    all.push(one(entity, Waiting::None, dedup, known, 1));
                }
                if entity != E::None {
                    let waiting = [Waiting::None, Waiting::One, Waiting::Any];
                    all.extend(waiting.map(|waiting| one(entity, waiting, dedup, known, 1)));
                }
            }
        }
    }
    for bits in 1..8 {
        let (updates, creates, dedup) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        all.extend([K::Refused, K::Skipped].map(|known| group(Kinds { updates, creates, dedup }, known, 2)));
    }
    let slots = [(1, 0), (2, 3)];
    all.extend([load_one(&slots), load_many(&slots), pending_page(), may_purge(), purge(), generations()]);
    all.extend([holds_any(0), close(), begin(), drop_generation(), count(0)]);
    all.extend([schedule::put(), schedule::CANCEL.to_owned(), schedule::take(), schedule::done(), schedule::next()]);
    all.extend([long::recall(), long::moment(), long::due(), long::take_numbers(0), long::keep_keys(0)]);
    all.extend([long::forget_keys(), long::merge(0, 3)]);
    all.extend([long::ASK, long::WITHDRAW, long::LOCK, long::RUNS_AT, long::DROP_RUNS].map(str::to_owned));
    all.extend([long::PUT_RUNS, long::STAY_AS_LONG].map(str::to_owned));
    all.extend(
        [VERSION, SCOPE_ID, SCOPE_ADD, RETENTION, LETTER_ADD, LETTER_LIST, LETTER_DISCARD, SCHEMA_VERSION, SETTLE]
            .map(str::to_owned),
    );
    all.extend(bodies::all());
    all.extend([survey::dedup(), survey::scheduled()]);
    all.extend(
        [survey::SCOPES, survey::ENTITIES, survey::LETTERED, survey::LETTERS, survey::SCHEDULED_MESSAGE]
            .map(str::to_owned),
    );
    all
}
