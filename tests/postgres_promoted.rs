//! A primary that is killed, and a standby that takes its place: where commits wait for the standby nothing that was confirmed is lost; where they
//! do not, what was confirmed is gone, and the store has warned of it when it was opened.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use hapax::{
    Postgres,
    entity::Expected,
    ports::{EntityStore, Saved, StoreError},
};
use hapax_tests::{Line, LogLines, PostgresSchema, PostgresServer, Samples};

const STANDBY: &str = "standby";
/// Far above a save; one that has not been confirmed within it waits.
const A_WHILE: Duration = Duration::from_secs(1);

struct Pair {
    primary: PostgresServer,
    standby: PostgresServer,
    /// Between both.
    line: Line,
    schema: PostgresSchema,
    samples: Samples,
}

impl Pair {
    async fn start(name: &str) -> Self {
        let primary = PostgresServer::start(&[]).await;
        let schema = PostgresSchema::on(&primary.url());
        schema.open().await.close().await;
        let line = Line::to(&format!("127.0.0.1:{}", primary.port()), 0).await.unwrap();
        let standby = PostgresServer::following_through(&primary, line.port(), STANDBY).await;
        Self { line, schema, samples: Samples::new(name), primary, standby }
    }

    async fn save(&self, store: &Postgres, number: u32) -> Result<Saved, StoreError> {
        let samples = &self.samples;
        let done = [samples.done(number)];
        store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &done).await
    }

    /// The standby hears nothing any more: the line to it leads nowhere.
    fn standby_hears_nothing(&self) {
        self.line.leads_to("127.0.0.1:1");
    }

    /// The primary is gone, and the standby takes writes. Which of the first entities it has.
    async fn fails_over(&mut self, count: u32) -> Vec<u32> {
        self.primary.kill();
        self.standby.promote().await;
        self.standby.set_for_all("synchronous_standby_names", "").await;
        let store = Postgres::options(self.standby.url()).schema(self.schema.name()).open().await.unwrap();
        let mut there = Vec::new();
        for number in 0..count {
            let loaded = store.load(&self.samples.key(number), &[self.samples.done(number).key]).await.unwrap();
            let is_marked = loaded.known.unwrap().entry(&self.samples.done(number).key).is_some();
            assert_eq!(loaded.stored.is_some(), is_marked, "an entity without its mark, or a mark without its entity");
            if is_marked {
                there.push(number);
            }
        }
        store.close().await;
        there
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_standby_confirmed_outlives_the_primary() {
    let mut pair = Pair::start("promoted").await;
    pair.primary.set_for_all("synchronous_standby_names", STANDBY).await;
    let log = LogLines::here();
    let store = pair.schema.open().await;
    assert_eq!(log.with("fail-over"), [""; 0]);
    for number in 0..10 {
        assert!(matches!(pair.save(&store, number).await, Ok(Saved::At(_))));
    }
    pair.standby_hears_nothing();
    let waits = tokio::time::timeout(A_WHILE, pair.save(&store, 10)).await;
    assert!(waits.is_err(), "told {waits:?}, and no standby has it");
    drop(store);
    assert_eq!(pair.fails_over(11).await, (0..10).collect::<Vec<_>>());
}

/// Why the store warns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_standby_confirmed_is_gone_with_the_primary_and_the_store_has_warned_of_it() {
    let mut pair = Pair::start("asynchronous").await;
    let log = LogLines::here();
    let store = pair.schema.open().await;
    let warned = log.with("a fail-over to it loses what was confirmed");
    assert!(matches!(&*warned, [line] if line.contains("synchronous_standby_names")), "{warned:?}");
    assert!(matches!(pair.save(&store, 0).await, Ok(Saved::At(_))));
    pair.standby_hears_nothing();
    assert!(matches!(pair.save(&store, 1).await, Ok(Saved::At(_))), "the control: confirmed without the standby");
    drop(store);
    let there = pair.fails_over(2).await;
    assert!(!there.contains(&1), "the standby has what it was never told: {there:?}");
}
