//! Dedup entries in generations: never dropped early, never inserted where they are about to be dropped.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use std::time::Duration;

use common::*;
use hapax_core::ports::{DedupStore, Evicted};
use hapax_stores::Sqlite;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn knows(store: &Sqlite, number: u64) -> bool {
    store.contains(&[dedup_key(number)]).await.unwrap().entry(&dedup_key(number)).is_some()
}

/// Makes everything in the file look as if it had happened `age` earlier.
async fn let_pass(place: &Place, age: Duration) {
    let age = age.as_millis();
    place
        .run(&format!("UPDATE hapax_generation SET opened_at = opened_at - {age}, closed_at = closed_at - {age}"))
        .await;
}

#[tokio::test]
async fn nothing_is_evicted_within_the_retention() {
    let place = Place::new();
    let store = place.open().await;
    store.insert(&[dedup_entry(1)]).await.unwrap();
    // The generation is old enough to be closed; its last entry is a moment old.
    let_pass(&place, DAY).await;
    store.insert(&[dedup_entry(2)]).await.unwrap();
    for _ in 0..3 {
        assert_eq!(store.evict(DAY).await.unwrap(), Evicted::default());
    }
    assert!(knows(&store, 1).await && knows(&store, 2).await);
    let_pass(&place, DAY - Duration::from_secs(60)).await;
    assert_eq!(store.evict(DAY).await.unwrap().entries, 0);
    assert!(knows(&store, 1).await && knows(&store, 2).await);
}

#[tokio::test]
async fn what_is_older_than_the_retention_is_evicted() {
    let place = Place::new();
    let store = place.open().await;
    store.insert(&[dedup_entry(1), dedup_entry(2)]).await.unwrap();
    let_pass(&place, DAY).await;
    store.evict(DAY).await.unwrap();
    store.insert(&[dedup_entry(3)]).await.unwrap();
    let_pass(&place, DAY + Duration::from_secs(1)).await;
    assert_eq!(store.evict(DAY).await.unwrap(), Evicted { entries: 2, more: false });
    assert!(!knows(&store, 1).await && !knows(&store, 2).await && knows(&store, 3).await);
}

#[tokio::test]
async fn the_longest_retention_anybody_asked_for_goes_for_all() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let place = Place::new();
    let (patient, hasty) = (place.open().await, place.open().await);
    patient.insert(&[dedup_entry(1)]).await.unwrap();
    patient.evict(DAY).await.unwrap();
    let_pass(&place, DAY / 2).await;
    hasty.evict(HOUR).await.unwrap(); // The generation is old enough to be closed.
    hasty.insert(&[dedup_entry(2)]).await.unwrap();
    for retention in [HOUR, Duration::ZERO] {
        let_pass(&place, HOUR * 2).await;
        assert_eq!(hasty.evict(retention).await.unwrap(), Evicted::default());
        assert!(knows(&hasty, 1).await && knows(&patient, 1).await);
    }
    // Nor by one that is opened later, when the patient one is gone.
    patient.close().await;
    let late = place.open().await;
    late.evict(HOUR).await.unwrap();
    assert!(knows(&late, 1).await && knows(&late, 2).await);

    // A person may lower it, as the documents say.
    place.run("UPDATE hapax_meta SET value = 3600000 WHERE name = 'retention_ms'").await;
    assert_eq!(late.evict(HOUR).await.unwrap().entries, 1);
    assert!(!knows(&late, 1).await);
}

#[tokio::test]
async fn a_retention_longer_than_all_time_evicts_nothing() {
    let place = Place::new();
    let store = place.open().await;
    store.insert(&[dedup_entry(1)]).await.unwrap();
    let_pass(&place, DAY * 10_000).await;
    for retention in [Duration::MAX, Duration::ZERO, Duration::ZERO] {
        assert_eq!(store.evict(retention).await.unwrap(), Evicted::default());
        let_pass(&place, DAY).await;
    }
    assert!(knows(&store, 1).await);
}

#[tokio::test]
async fn a_clock_that_goes_back_evicts_nothing_early() {
    let place = Place::new();
    let store = place.open().await;
    store.insert(&[dedup_entry(1)]).await.unwrap();
    let_pass(&place, DAY).await;
    store.evict(DAY).await.unwrap();
    // To the file it looks as if it had been written in the future.
    place.run("UPDATE hapax_generation SET opened_at = opened_at + 900000000, closed_at = closed_at + 900000000").await;
    store.insert(&[dedup_entry(2)]).await.unwrap();
    for _ in 0..3 {
        assert_eq!(store.evict(DAY).await.unwrap().entries, 0);
    }
    assert!(knows(&store, 1).await && knows(&store, 2).await);
}

#[tokio::test]
async fn a_generation_opened_by_another_process_is_seen_at_once() {
    let place = Place::new();
    let (one, two) = (place.open().await, place.open().await);
    one.insert(&[dedup_entry(1)]).await.unwrap();
    two.insert(&[dedup_entry(2)]).await.unwrap();
    let_pass(&place, DAY).await;
    two.evict(DAY).await.unwrap();
    // `one` has been told nothing of it.
    one.insert(&[dedup_entry(3)]).await.unwrap();
    two.insert(&[dedup_entry(4)]).await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax_dedup WHERE generation = 2").await, 2);
    for store in [&one, &two] {
        for number in 1..=4 {
            assert!(knows(store, number).await);
        }
    }
    // The old generation goes; what `one` inserted after it was closed does not.
    let_pass(&place, DAY + Duration::from_secs(1)).await;
    assert_eq!(two.evict(DAY).await.unwrap().entries, 2);
    assert!(!knows(&one, 1).await && !knows(&one, 2).await);
    assert!(knows(&one, 3).await && knows(&one, 4).await);
}

#[tokio::test]
async fn an_entry_inserted_again_lives_on_from_then() {
    let place = Place::new();
    let store = place.open().await;
    store.insert(&[dedup_entry(1)]).await.unwrap();
    let_pass(&place, DAY).await;
    store.evict(DAY).await.unwrap();
    store.insert(&[dedup_entry(1)]).await.unwrap();
    assert!(knows(&store, 1).await);
    let_pass(&place, DAY + Duration::from_secs(1)).await;
    assert_eq!(store.evict(DAY).await.unwrap().entries, 1);
    assert!(knows(&store, 1).await, "it was inserted within the retention");
}

#[tokio::test]
async fn an_eviction_removes_a_bounded_number_and_says_that_there_is_more() {
    const ENTRIES: u64 = 25_000;
    let place = Place::new();
    let store = place.open().await;
    let entries: Vec<_> = (0..ENTRIES).map(dedup_entry).collect();
    store.insert(&entries).await.unwrap();
    let_pass(&place, DAY).await;
    store.evict(DAY).await.unwrap();
    let_pass(&place, DAY + Duration::from_secs(1)).await;
    let first = store.evict(DAY).await.unwrap();
    assert!(first.more && first.entries < ENTRIES);
    // Gone for every check already, though most rows are still in the file.
    assert!(!knows(&store, ENTRIES - 1).await);
    let mut evicted = first.entries;
    loop {
        let next = store.evict(DAY).await.unwrap();
        evicted += next.entries;
        if !next.more {
            break;
        }
    }
    assert_eq!(evicted, ENTRIES);
    assert_eq!(place.number("SELECT count(*) FROM hapax_dedup").await, 0);
}

#[tokio::test]
async fn an_empty_generation_is_not_closed() {
    let place = Place::new();
    let store = place.open().await;
    for _ in 0..5 {
        let_pass(&place, DAY).await;
        store.evict(DAY).await.unwrap();
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax_generation").await, 1);
}
