//! Several instances on one file, from several threads: sums must be exact.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::{Entity, Expected},
    ports::{DedupStore, EntityStore, Saved},
};
use hapax_stores::Sqlite;

/// Adds one to a counter by compare-and-set, with a mark in the same commit; answers how many conflicts it met.
async fn add_one(store: &Sqlite, key: &str, mark: u64) -> u64 {
    let mut conflicts = 0;
    loop {
        let stored = store.load(&entity_key(key), &[]).await.unwrap().stored;
        let (expected, count) = match stored {
            None => (Expected::Absent, 0),
            Some(stored) => {
                let text = String::from_utf8(stored.entity.state.to_vec()).unwrap();
                (Expected::Version(stored.version), text.parse::<u64>().unwrap())
            }
        };
        let next = Entity { state: (count + 1).to_string().into_bytes().into(), ..Entity::default() };
        match store.save(&entity_key(key), &expected, &next, &[dedup_entry(mark)]).await.unwrap() {
            Saved::At(_) => return conflicts,
            Saved::Conflict => conflicts += 1,
        }
    }
}

async fn race(threads: usize, keys: u64, in_flight: u64, rounds: u64) {
    let place = Place::new();
    let mut tasks = Vec::new();
    for thread in 0..threads as u64 {
        let file = place.file();
        tasks.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                // Opened at the same moment by all, so that they race for the migration too.
                let store = Sqlite::open(&file).await.unwrap();
                let mut conflicts = 0;
                for round in 0..rounds {
                    let done = join_all((0..in_flight).map(|n| {
                        let store = &store;
                        let mark = (thread * rounds + round) * in_flight + n;
                        async move { add_one(store, &format!("{}", n % keys), mark).await }
                    }))
                    .await;
                    conflicts += done.into_iter().sum::<u64>();
                }
                conflicts
            })
        }));
    }
    let conflicts: u64 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
    let added = threads as u64 * rounds * in_flight;
    let store = place.open().await;
    let mut sum = 0;
    let mut versions = 0;
    for key in 0..keys.min(in_flight) {
        let stored = store.load(&entity_key(&format!("{key}")), &[]).await.unwrap().stored.unwrap();
        sum += String::from_utf8(stored.entity.state.to_vec()).unwrap().parse::<u64>().unwrap();
        versions += stored.version.as_number().unwrap();
    }
    assert_eq!(sum, added, "after {conflicts} conflicts");
    assert_eq!(versions, i64::try_from(added).unwrap());
    assert_eq!(place.number("SELECT count(*) FROM hapax_dedup").await, i64::try_from(added).unwrap());
    let marks: Vec<_> = (0..added).map(dedup_key).collect();
    let known = store.contains(&marks).await.unwrap();
    assert!(marks.iter().all(|mark| known.entry(mark).is_some()));
}

#[tokio::test]
async fn two_instances_on_a_few_keys_lose_nothing() {
    race(2, 5, 40, 5).await;
}

#[tokio::test]
async fn four_instances_on_many_keys_lose_nothing() {
    race(4, 100, 100, 5).await;
}

#[tokio::test]
async fn two_instances_one_call_at_a_time_lose_nothing() {
    race(2, 1, 1, 60).await;
}

#[tokio::test]
async fn a_load_and_its_check_are_of_one_instant() {
    const SAVES: u64 = 150;
    let place = Place::new();
    place.open().await;
    let file = place.file();
    let writer = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let store = Sqlite::open(&file).await.unwrap();
            for mark in 0..SAVES {
                add_one(&store, "a", mark).await;
            }
        });
    });
    let store = place.open().await;
    let marks: Vec<_> = (0..SAVES).map(dedup_key).collect();
    let mut last = 0;
    while last < SAVES {
        // Alone and in a group.
        for count in [1, 3] {
            let loaded =
                join_all((0..count).map(|_| async { store.load(&entity_key("a"), &marks).await.unwrap() })).await;
            for loaded in loaded {
                let state = loaded.stored.map(|stored| String::from_utf8(stored.entity.state.to_vec()).unwrap());
                last = state.map_or(0, |state| state.parse().unwrap());
                let known = loaded.known.unwrap();
                let marked = marks.iter().filter(|mark| known.entry(mark).is_some()).count() as u64;
                assert_eq!(marked, last);
            }
        }
    }
    writer.join().unwrap();
}
