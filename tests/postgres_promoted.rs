//! A primary that is killed, and a standby that takes its place: where commits wait for the standby nothing that was confirmed is lost; where they
//! do not, what was confirmed is gone, and the store has warned of it when it was opened. Once by a few saves whose moment is chosen, and once in
//! the middle of a load, which goes on through both.
#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    Postgres,
    entity::Expected,
    ports::{EntityStore, Saved, StoreError},
};
use hapax_tests::{Line, LogLines, PostgresSchema, PostgresServer, Samples, Saves};
use sqlx::{Connection, PgConnection};

const STANDBY: &str = "standby";
/// Far above a save; one that has not been confirmed within it waits.
const A_WHILE: Duration = Duration::from_secs(1);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Saves of a load between two things that are done to its servers.
const ENOUGH: u32 = 300;

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
        let line = Line::to(&place(&primary), 0).await.unwrap();
        let standby = PostgresServer::following_through(&primary, line.port(), STANDBY).await;
        Self { line, schema, samples: Samples::new(name), primary, standby }
    }

    async fn save(&self, store: &Postgres, number: u32) -> Result<Saved, StoreError> {
        let samples = &self.samples;
        let done = [samples.done(number)];
        store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &done).await
    }

    /// The standby hears nothing any more: the line to it leads nowhere, and nobody sends to it.
    async fn standby_hears_nothing(&self) {
        self.line.leads_to("127.0.0.1:1");
        let mut connection = PgConnection::connect(&self.primary.url()).await.unwrap();
        let (senders, began) = ("SELECT count(*) FROM pg_stat_replication", Instant::now());
        while sqlx::query_scalar::<_, i64>(senders).fetch_one(&mut connection).await.unwrap() > 0 {
            assert!(began.elapsed() < PATIENCE, "the standby is still sent to");
            tokio::task::yield_now().await;
        }
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

    /// Saves that go on, by a door behind which another server may come to be.
    async fn load(&self) -> (Line, Saves) {
        let door = Line::to(&place(&self.primary), 0).await.unwrap();
        let options = Postgres::options(door.in_place_of(&self.primary.url())).schema(self.schema.name());
        let store: Arc<dyn EntityStore> = Arc::new(options.writers(1).open().await.unwrap());
        (door, Saves::begin(&store, &self.samples))
    }

    /// Ends them. How many were saved, refused and of unknown outcome, and what of the saved is not on the primary that there is.
    async fn ends(&self, saves: Saves) -> ([usize; 3], Vec<u32>) {
        let store = Postgres::options(self.primary.url()).schema(self.schema.name()).open().await.unwrap();
        let ended = saves.end_with_losses(&store).await;
        store.close().await;
        ended
    }
}

fn place(server: &PostgresServer) -> String {
    format!("127.0.0.1:{}", server.port())
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
    pair.standby_hears_nothing().await;
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
    pair.standby_hears_nothing().await;
    assert!(matches!(pair.save(&store, 1).await, Ok(Saved::At(_))), "the control: confirmed without the standby");
    drop(store);
    let there = pair.fails_over(2).await;
    assert!(!there.contains(&1), "the standby has what it was never told: {there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_load_in_the_middle_of_which_a_standby_takes_over_loses_nothing_that_was_confirmed() {
    // A kill may come between two commits, so there are more of them until one was under way.
    const KILLS_MAX: u32 = 10;
    let mut pair = Pair::start("loaded").await;
    pair.primary.set_for_all("synchronous_standby_names", STANDBY).await;
    let (door, saves) = pair.load().await;
    let mut kills = 0;
    while kills == 0 || kills < KILLS_MAX && saves.unknown() == 0 {
        saves.go_on(ENOUGH).await;
        pair.primary.kill();
        pair.standby.promote().await;
        let standby = PostgresServer::following(&pair.standby, STANDBY).await;
        pair.primary = std::mem::replace(&mut pair.standby, standby);
        // Before anybody comes there.
        pair.primary.set_for_all("synchronous_standby_names", STANDBY).await;
        door.leads_to(&place(&pair.primary));
        kills += 1;
    }
    // By itself: nothing is opened again.
    saves.go_on(ENOUGH).await;
    let ([saved, refused, unknown], lost) = pair.ends(saves).await;
    println!("{kills} kills: {saved} saved, {refused} refused, {unknown} unknown");
    assert!(unknown > 0, "nothing was under way at any of {kills} kills");
    assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
}

/// The control of the one above: were nothing under way, or the look at what is there blind, nothing would be lost here either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_load_in_the_middle_of_which_a_standby_takes_over_that_heard_nothing_loses_what_was_confirmed_meanwhile() {
    let mut pair = Pair::start("unheard-load").await;
    let (door, saves) = pair.load().await;
    saves.go_on(ENOUGH).await;
    pair.standby_hears_nothing().await;
    saves.go_on(ENOUGH).await;
    pair.primary.kill();
    pair.standby.promote().await;
    door.leads_to(&place(&pair.standby));
    saves.go_on(ENOUGH).await;
    std::mem::swap(&mut pair.primary, &mut pair.standby);
    // Each entity that is there has its mark, and none has another's.
    let ([saved, refused, unknown], lost) = pair.ends(saves).await;
    println!("{saved} saved, {} of them lost, {refused} refused, {unknown} unknown", lost.len());
    assert!(refused + unknown > 0, "nobody noticed the kill");
    // A few were on the standby by then, and told of only later.
    assert!(lost.len() > ENOUGH as usize / 2 && lost.len() < saved - ENOUGH as usize, "{} of {saved}", lost.len());
}
