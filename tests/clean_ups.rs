//! Clean-ups that wait for the next save of their entity, on each server: what the store itself shows meanwhile, what others
//! see, and that none is lost.
#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax::{
    MySql, Postgres,
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    ids::EntityKey,
    ports::{DedupStore, EntityStore, Finished, Saved, Stored},
};
use hapax_tests::{MySqlTables, PostgresSchema, Samples};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

trait Place {
    type Store: EntityStore + DedupStore;

    fn new() -> Self;
    async fn open(&self, wait: Duration) -> Self::Store;
    async fn close(store: &Self::Store);
    /// Ends all connections of stores on this place.
    async fn cut(&self);
    /// Nobody writes a dedup entry until this is called with false.
    async fn refuse_marks(&self, refuse: bool);
}

impl Place for PostgresSchema {
    type Store = Postgres;

    fn new() -> Self {
        Self::new()
    }
    async fn open(&self, wait: Duration) -> Postgres {
        let url = format!(
            "{}{}application_name={}",
            self.url(),
            if self.url().contains('?') { '&' } else { '?' },
            self.name()
        );
        Postgres::options(url).schema(self.name()).migrate(true).clean_up_wait(wait).open().await.unwrap()
    }
    async fn close(store: &Postgres) {
        store.close().await;
    }
    async fn cut(&self) {
        let name = self.name();
        self.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"))
            .await
            .unwrap();
    }
    async fn refuse_marks(&self, refuse: bool) {
        let change = if refuse { "ADD CONSTRAINT none CHECK (false) NOT VALID" } else { "DROP CONSTRAINT none" };
        self.run(&format!("ALTER TABLE {}.dedup_0 {change}", self.name())).await.unwrap();
    }
}

impl Place for MySqlTables {
    type Store = MySql;

    fn new() -> Self {
        Self::new()
    }
    async fn open(&self, wait: Duration) -> MySql {
        let name = self.prefix().trim_end_matches('_').to_owned();
        let account = format!("'{name}'@'%'");
        self.run(&format!("CREATE USER IF NOT EXISTS {account}; GRANT ALL ON *.* TO {account}")).await.unwrap();
        let (_, place) = self.url().rsplit_once('@').unwrap();
        let options = MySql::options(format!("mysql://{name}@{place}")).table_prefix(self.prefix());
        options.migrate(true).clean_up_wait(wait).open().await.unwrap()
    }
    async fn close(store: &MySql) {
        store.close().await;
    }
    async fn cut(&self) {
        self.run(&format!("KILL USER '{}'", self.prefix().trim_end_matches('_'))).await.unwrap();
    }
    async fn refuse_marks(&self, refuse: bool) {
        let change = if refuse { "ADD CONSTRAINT refused CHECK (time < 0)" } else { "DROP CONSTRAINT refused" };
        self.run(&self.with_names(&format!("ALTER TABLE hapax.dedup_0 {change}"))).await.unwrap();
    }
}

/// An entity whose one message has been sent.
struct Sent {
    key: EntityKey,
    version: Version,
    clean: Entity,
    entry: Arc<OutboxEntry>,
    done: DedupEntry,
}

impl Sent {
    async fn new(store: &impl EntityStore, samples: &Samples, number: u32) -> Self {
        let (key, clean, entry) = (samples.key(number), samples.entity(number), samples.entry(number));
        let waiting = samples.entity_with(number, entry.clone());
        let Saved::At(version) = store.save(&key, &Expected::Absent, &waiting, &[]).await.unwrap() else {
            panic!("somebody else has begun it")
        };
        Self { key, version, clean, done: entry.to_dedup_entry(), entry }
    }

    async fn finish(&self, store: &impl EntityStore) -> Finished {
        let clean_up = Some((&self.version, &self.clean));
        store.finish(&self.key, std::slice::from_ref(&self.done), clean_up).await.unwrap().unwrap()
    }

    /// What a store shows, and whether it knows the message.
    async fn seen(&self, store: &impl EntityStore) -> (Stored, bool) {
        let loaded = store.load(&self.key, &[self.done.key]).await.unwrap();
        (loaded.stored.unwrap(), loaded.known.unwrap().entry(&self.done.key).is_some())
    }

    fn is_waiting(&self, stored: &Stored) -> bool {
        stored.version == self.version && stored.entity.outbox == [self.entry.clone()]
    }

    fn is_clean_at_its_version(&self, stored: &Stored) -> bool {
        stored.version == self.version && stored.entity == self.clean
    }

    /// Until somebody else's store finds it cleaned up.
    async fn until_clean(&self, other: &impl EntityStore) {
        let begun = Instant::now();
        loop {
            let (stored, known) = self.seen(other).await;
            assert!(known);
            if stored.version != self.version {
                assert_eq!(stored.entity, self.clean);
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "it is never cleaned up");
            tokio::task::yield_now().await;
        }
    }
}

async fn the_next_save_makes_it_in_passing<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("passing"));
    let (store, other) = (place.open(LONG).await, place.open(Duration::ZERO).await);
    let sent = Sent::new(&store, &samples, 1).await;
    assert_eq!(sent.finish(&store).await, Finished::Later);

    // The store shows it as it will be; whoever else looks sees it as it is, and that the message is over.
    let (stored, known) = sent.seen(&store).await;
    assert!(sent.is_clean_at_its_version(&stored) && known, "{stored:?}");
    let (stored, known) = sent.seen(&other).await;
    assert!(sent.is_waiting(&stored) && known, "{stored:?}");

    let (expected, next) = (Expected::Version(sent.version.clone()), samples.entity(2));
    let Saved::At(version) = store.save(&sent.key, &expected, &next, &[]).await.unwrap() else {
        panic!("nobody else has saved it")
    };
    let (stored, known) = sent.seen(&other).await;
    assert!(stored.version == version && stored.entity == next && known, "{stored:?}");
    // What was left to be cleaned up is gone with it: nothing is written when the store closes.
    P::close(&store).await;
    assert_eq!(sent.seen(&other).await.0.version, version);
}

async fn what_is_not_saved_is_cleaned_up_in_time<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("in-time"));
    let (store, other) = (place.open(SHORT).await, place.open(Duration::ZERO).await);
    for number in 0..3 {
        let sent = Sent::new(&store, &samples, number).await;
        if sent.finish(&store).await == Finished::Later {
            sent.until_clean(&other).await;
        }
    }
}

async fn closing_writes_what_waits<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("closing"));
    let (store, other) = (place.open(LONG).await, place.open(Duration::ZERO).await);
    let mut all = Vec::new();
    for number in 0..300 {
        let sent = Sent::new(&store, &samples, number).await;
        assert_eq!(sent.finish(&store).await, Finished::Later);
        all.push(sent);
    }
    P::close(&store).await;
    for sent in &all {
        let (stored, _) = sent.seen(&other).await;
        assert!(stored.version != sent.version && stored.entity == sent.clean, "{stored:?}");
    }
    // So does the end of the last handle.
    let store = place.open(LONG).await;
    let sent = Sent::new(&store, &samples, 300).await;
    assert_eq!(sent.finish(&store).await, Finished::Later);
    drop(store);
    sent.until_clean(&other).await;
}

async fn somebody_elses_save_is_not_undone<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("others"));
    let (store, other) = (place.open(LONG).await, place.open(Duration::ZERO).await);
    let sent = Sent::new(&store, &samples, 1).await;
    assert_eq!(sent.finish(&store).await, Finished::Later);
    // Another process saves it, with a message of its own that is not sent yet.
    let (expected, entry) = (Expected::Version(sent.version.clone()), samples.entry(2));
    let next = samples.entity_with(2, entry);
    let Saved::At(version) = other.save(&sent.key, &expected, &next, &[]).await.unwrap() else {
        panic!("a clean-up that waits has changed the version")
    };
    let shown = sent.seen(&store).await.0;
    assert!(shown.version == version && shown.entity == next, "{shown:?}");
    P::close(&store).await;
    let shown = sent.seen(&other).await.0;
    assert!(shown.version == version && shown.entity == next, "{shown:?}");
}

async fn nothing_waits_before_its_message_is_marked<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("unmarked"));
    let store = place.open(LONG).await;
    let sent = Sent::new(&store, &samples, 1).await;
    place.refuse_marks(true).await;
    let clean_up = Some((&sent.version, &sent.clean));
    store.finish(&sent.key, std::slice::from_ref(&sent.done), clean_up).await.unwrap_err();
    let (stored, known) = sent.seen(&store).await;
    assert!(sent.is_waiting(&stored) && !known, "{stored:?}");
    place.refuse_marks(false).await;
    assert_eq!(sent.finish(&store).await, Finished::Later);
    let (stored, known) = sent.seen(&store).await;
    assert!(sent.is_clean_at_its_version(&stored) && known, "{stored:?}");
}

async fn what_another_server_may_lack_is_forgotten<P: Place>() {
    let (place, samples) = (P::new(), Samples::new("lost"));
    let store = place.open(LONG).await;
    let sent = Sent::new(&store, &samples, 1).await;
    assert_eq!(sent.finish(&store).await, Finished::Later);
    place.cut().await;
    // The first call may be told of the end of its connection.
    let mut loaded = store.load(&sent.key, &[sent.done.key]).await;
    for _ in 0..3 {
        loaded = store.load(&sent.key, &[sent.done.key]).await;
    }
    let loaded = loaded.unwrap();
    assert!(sent.is_waiting(&loaded.stored.unwrap()), "it is shown as cleaned up, whatever the server is by now");
    assert!(loaded.known.unwrap().entry(&sent.done.key).is_some());
}

macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test::<super::PostgresSchema>().await;
            })*
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test::<super::MySqlTables>().await;
            })*
        }
    };
}

on_each_server!(
    the_next_save_makes_it_in_passing,
    what_is_not_saved_is_cleaned_up_in_time,
    closing_writes_what_waits,
    somebody_elses_save_is_not_undone,
    nothing_waits_before_its_message_is_marked,
    what_another_server_may_lack_is_forgotten,
);
