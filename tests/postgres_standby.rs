//! A PostgreSQL store, and a queue, whose commits wait for a standby that does not answer: what was committed and is on no standby is seen
//! by everybody, and nobody may act on it.
//!
//! The standby that is named does not exist, so that each commit waits until its wait is ended.
#![allow(clippy::unwrap_used)]

#[path = "postgres_standby/queue.rs"]
mod queue;
use std::{
    fmt::Debug,
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hapax::{
    Postgres,
    entity::{Entity, Expected},
    ports::{DeadLetters, DedupStore, EntityStore, ErrorKind, Saved, Schedule, StoreError},
};
use hapax_tests::{PostgresSchema, PostgresServer, Samples};
use sqlx::{Connection, PgConnection};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that has a store's tables and one entity, and waits for nobody yet.
struct Place {
    server: PostgresServer,
    schema: PostgresSchema,
    samples: Samples,
}

impl Place {
    async fn new(name: &str) -> Self {
        let server = PostgresServer::start(&[]).await;
        let schema = PostgresSchema::on(&server.url());
        let place = Self { schema, samples: Samples::new(name), server };
        let store = place.schema.open().await;
        assert!(matches!(place.save(&store, 0).await, Ok(Saved::At(_))));
        store.close().await;
        place
    }

    async fn save(&self, store: &Postgres, number: u32) -> Result<Saved, StoreError> {
        let samples = &self.samples;
        let done = [samples.done(number)];
        store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &done).await
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.server.url()).await.unwrap()
    }

    /// Until every new session has it.
    async fn standbys(&self, names: &str) {
        self.schema.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await.unwrap();
        self.schema.run("SELECT pg_reload_conf()").await.unwrap();
        let began = Instant::now();
        loop {
            let is: String = sqlx::query_scalar("SHOW synchronous_standby_names")
                .fetch_one(&mut self.connect().await)
                .await
                .unwrap();
            if is == names {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the server does not read its settings");
        }
    }

    /// Until `count` commits wait for the standby; then ends their waits by `function`.
    async fn cut(&self, function: &str, count: i64) {
        let mut other = self.connect().await;
        self.until_waiting(count).await;
        let waiting = "SELECT array_agg(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let waiting: Vec<i32> = sqlx::query_scalar(waiting).fetch_one(&mut other).await.unwrap();
        assert_eq!(waiting.len() as i64, count);
        let end = match function {
            "pg_cancel_backend" => "SELECT count(pg_cancel_backend(pid)) FROM unnest($1) AS p (pid)",
            _ => "SELECT count(pg_terminate_backend(pid)) FROM unnest($1) AS p (pid)",
        };
        sqlx::query(end).bind(&waiting).execute(&mut other).await.unwrap();
        let left = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = ANY ($1)";
        while sqlx::query_scalar::<_, i64>(left).bind(&waiting).fetch_one(&mut other).await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn until_waiting(&self, count: i64) {
        let mut other = self.connect().await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let began = Instant::now();
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut other).await.unwrap() < count {
            assert!(began.elapsed() < PATIENCE, "nobody waits for a standby");
            tokio::task::yield_now().await;
        }
    }

    /// `call` is not answered before the standby is.
    async fn waits<T, E: Debug>(&self, what: &str, call: impl Future<Output = Result<T, E>>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            answer = &mut call => panic!("{what}: told {}, and no standby has it", answer.is_ok()),
            () = self.until_waiting(1) => {}
        }
        let is_told = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        assert!(!is_told, "{what}: no standby has it");
        self.standbys("").await; // Ends all waits.
        let answer = call.await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        self.standbys("nobody").await;
        answer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_standby_has_yet_is_never_acted_on() {
    let place = Place::new("shown").await;
    let Place { samples, schema, .. } = &place;
    place.standbys("nobody").await;
    let (cut, store) = (schema.open().await, schema.open().await);
    let (key, entry) = (samples.key(1), samples.entry(1));
    let waiting = samples.entity_with(1, entry.clone());
    let done = [samples.done(2)];
    let save = async || cut.save(&key, &Expected::Absent, &waiting, &done).await;
    let (saved, ()) = futures_util::join!(save(), place.cut("pg_terminate_backend", 1));
    assert_eq!(saved.unwrap_err().kind(), ErrorKind::UnknownOutcome);

    // A mark: its message would be given up.
    let loaded = place.waits("a mark", store.load(&samples.key(7), &[done[0].key])).await;
    assert!(loaded.known.unwrap().entry(&done[0].key).is_some());
    let known = place.waits("marks", store.contains(&[done[0].key])).await;
    assert!(known.entry(&done[0].key).is_some());
    // What waits in an outbox would be sent.
    let loaded = place.waits("an outbox", store.load(&key, &[])).await;
    assert_eq!(loaded.stored.unwrap().entity, waiting);
    assert!(place.waits("a version", store.version(&key)).await.is_some());
    // What was there already is not written, and so is not waited for by itself.
    place.waits("an insert that is not one", store.insert(&done)).await;

    // What asks for a write of the caller's own is told at once.
    assert!(store.load(&samples.key(8), &[samples.done(8).key]).await.unwrap().stored.is_none());
    assert!(store.load(&samples.key(0), &[]).await.unwrap().stored.is_some());
    // Nobody waits for what others settle afterwards.
    let marks = [done[0].key];
    let both = async { futures_util::try_join!(store.load(&key, &[]), store.contains(&marks)) };
    place.waits("two at once", both).await;
    place.standbys("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_there_already_is_on_the_standby_once_it_is_told() {
    let place = Place::new("letter").await;
    place.standbys("nobody").await;
    let (cut, store) = (place.schema.open().await, place.schema.open().await);
    let letter = place.samples.letter();
    let (added, ()) = futures_util::join!(cut.add(&letter), place.cut("pg_terminate_backend", 1));
    assert_eq!(added.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    place.waits("a letter", store.add(&letter)).await;
    place.standbys("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_a_schedule_already_or_gone_from_it_is_so_on_the_standby_once_it_is_told() {
    let place = Place::new("schedule").await;
    place.standbys("nobody").await;
    let (cut, store) = (place.schema.open().await, place.schema.open().await);
    let (endpoint, message) = (hapax_tests::samples::endpoint(), [hapax_tests::samples::outgoing("x")]);
    let (put, ()) = futures_util::join!(cut.put(&endpoint, &message), place.cut("pg_terminate_backend", 1));
    assert_eq!(put.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    // Whoever is told so has handed the message over.
    place.waits("a put", store.put(&endpoint, &message)).await;
    let ids = [message[0].envelope.message_id.clone()];
    let (gone, ()) = futures_util::join!(cut.cancel(&endpoint, &ids), place.cut("pg_terminate_backend", 1));
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(place.waits("a cancellation", store.cancel(&endpoint, &ids)).await, 0);
    place.standbys("").await;
}

/// The server tells such a commit as done, and warns beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_commit_whose_wait_for_the_standby_is_cancelled_is_unknown() {
    let place = Place::new("cancelled").await;
    place.standbys("nobody").await;
    let store = place.schema.open().await;
    let (saved, ()) = futures_util::join!(place.save(&store, 1), place.cut("pg_cancel_backend", 1));
    let error = saved.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:?}");
    // And so is the commit for what was seen: nothing is told.
    let done = [place.samples.done(1).key];
    let key = place.samples.key(1);
    let (loaded, ()) = futures_util::join!(store.load(&key, &done), place.cut("pg_cancel_backend", 1));
    let error = loaded.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("load again"), "{error}");
    place.standbys("").await;
    assert!(store.load(&key, &done).await.unwrap().stored.is_some());
}

/// Nobody listens to what the server tells on others' connections, and the first warning comes there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_is_noticed_where_others_have_been_warned_before() {
    let place = Place::new("others").await;
    place.standbys("nobody").await;
    let store = place.schema.open().await;
    assert!(matches!(place.waits("a save", place.save(&store, 1)).await, Saved::At(_)));
    place.schema.run("DO $$ BEGIN RAISE WARNING 'of something else'; END $$").await.unwrap();
    let (saved, ()) = futures_util::join!(place.save(&store, 2), place.cut("pg_cancel_backend", 1));
    assert_eq!(saved.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    place.standbys("").await;
}

/// Upkeep takes several statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_whose_wait_for_the_standby_is_cancelled_is_unknown_and_else_it_is_told_as_done() {
    let place = Place::new("upkeep").await;
    let Place { samples, schema, .. } = &place;
    let store = schema.open().await;
    let completed = Entity { completed: true, ..samples.entity(1) };
    for number in [1, 2] {
        let key = samples.key(number);
        assert!(matches!(store.save(&key, &Expected::Absent, &completed, &[]).await, Ok(Saved::At(_))));
    }
    while store.evict(Duration::ZERO).await.unwrap().entries == 0 {}
    assert!(matches!(place.save(&store, 3).await, Ok(Saved::At(_))));
    store.close().await;
    place.standbys("nobody").await;
    let store = schema.open().await;
    let scope = samples.key(1).scope().clone();
    let purge = || store.purge(&scope, Duration::ZERO, 1);
    let (purged, ()) = futures_util::join!(purge(), place.cut("pg_cancel_backend", 1));
    assert_eq!(purged.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(place.waits("a purge", purge()).await, 1);
    // A generation is closed, which is one commit; it goes with the next one.
    let (evicted, ()) = futures_util::join!(store.evict(Duration::ZERO), place.cut("pg_cancel_backend", 1));
    assert_eq!(evicted.map(|evicted| evicted.entries).unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(place.waits("an eviction", store.evict(Duration::ZERO)).await.entries, 1);
    place.standbys("").await;
}

/// The commit is made and nobody is told: for each member of the group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_commit_that_is_cut_is_unknown_to_every_member_of_its_group() {
    const KEYS: u32 = 8;
    let place = Place::new("members").await;
    place.standbys("nobody").await;
    let store = place.schema.open().await;
    // While this one waits for the standby, the others queue up, and are one group.
    let (first, saves, ()) = futures_util::join!(
        place.save(&store, KEYS + 1),
        async {
            place.until_waiting(1).await;
            join_all((1..=KEYS).map(|number| place.save(&store, number))).await
        },
        async {
            place.until_waiting(1).await;
            place.cut("pg_terminate_backend", 1).await;
            place.cut("pg_terminate_backend", 1).await;
        }
    );
    assert!(first.unwrap_err().is_unknown_outcome());
    assert!(saves.iter().all(|saved| saved.as_ref().is_err_and(StoreError::is_unknown_outcome)), "{saves:?}");
    place.standbys("").await;
    for number in 1..=KEYS {
        let done = place.samples.done(number).key;
        let loaded = store.load(&place.samples.key(number), &[done]).await.unwrap();
        assert_eq!(loaded.stored.unwrap().entity, place.samples.entity(number));
        assert!(loaded.known.unwrap().entry(&done).is_some());
    }
}

/// One commit is made for all of them, and where it fails it fails for all: one after the other they would wait for minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_for_a_standby_that_does_not_answer_are_told_together() {
    const LIMIT: Duration = Duration::from_secs(1);
    const CALLS: usize = 30;
    let place = Place::new("together").await;
    place.standbys("nobody").await;
    let store = place.schema.options().write_limit(LIMIT).open().await.unwrap();
    let keys = [place.samples.done(0).key];
    let began = Instant::now();
    for told in join_all((0..CALLS).map(|_| store.contains(&keys))).await {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(began.elapsed() < LIMIT * 10, "{:?}", began.elapsed());
    store.close().await;
    assert!(began.elapsed() < LIMIT * 10, "closing has waited for those that nobody waits for: {:?}", began.elapsed());
    place.standbys("").await;
}
