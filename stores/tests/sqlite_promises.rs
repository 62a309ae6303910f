//! The promises of the ports on SQLite, one at a time and many at once.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::{Entity, Expected, Version},
    ports::{DedupStore, EntityStore, Finished, Saved},
};

/// More than one group.
const MANY: u64 = 600;

#[tokio::test]
async fn what_was_saved_is_loaded_whole() {
    let place = Place::new();
    let store = place.open().await;
    let key = entity_key("a \"quoted\" ключ [1,2]");
    let saved = entity("state", &[1, 2]);
    let version = save(&store, &key, Expected::Absent, &saved).await;
    let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
    assert_eq!(stored.entity, saved);
    assert_eq!(stored.version, version);
    assert_eq!(store.version(&key).await.unwrap(), Some(version));
}

#[tokio::test]
async fn many_at_once_are_saved_and_loaded_each_for_itself() {
    let place = Place::new();
    let store = place.open().await;
    let key = |n: u64| entity_key(&format!("key {n}"));
    let saved = join_all((0..MANY).map(|n| {
        let store = store.clone();
        async move { save(&store, &key(n), Expected::Absent, &entity(&format!("first {n}"), &[n])).await }
    }))
    .await;
    let saved = join_all(saved.into_iter().zip(0..MANY).map(|(version, n)| {
        let store = store.clone();
        async move { save(&store, &key(n), Expected::Version(version), &entity(&format!("second {n}"), &[n])).await }
    }))
    .await;
    let ids: Vec<_> = (0..MANY).map(dedup_key).collect();
    let finished = join_all((0..MANY).map(|n| {
        let (store, version) = (store.clone(), saved[n as usize].clone());
        async move {
            let clean = entity(&format!("second {n}"), &[]);
            store.finish(&key(n), &[dedup_entry(n)], Some((&version, &clean))).await.unwrap().unwrap()
        }
    }))
    .await;
    let loaded = join_all((0..MANY).map(|n| {
        let (store, ids) = (store.clone(), &ids);
        async move { store.load(&key(n), &ids[n as usize..=n as usize]).await.unwrap() }
    }))
    .await;
    for (n, (loaded, finished)) in (0..MANY).zip(loaded.into_iter().zip(finished)) {
        let stored = loaded.stored.unwrap();
        assert_eq!(stored.entity, entity(&format!("second {n}"), &[]));
        assert_eq!(finished, Finished::Cleaned(Some(stored.version)));
        assert_eq!(loaded.known.unwrap().entry(&dedup_key(n)), Some(&dedup_entry(n)));
    }
}

#[tokio::test]
async fn of_many_saves_that_expect_the_same_one_wins() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    let key = entity_key("contended");
    let mut winners = Vec::new();
    for (expected, first) in [(Expected::Absent, 0), (Expected::Version(Version::number(1)), MANY)] {
        let results =
            join_all(
                (first..first + MANY).map(|n| {
                    let (store, key, expected) = (store.clone(), key.clone(), expected.clone());
                    async move {
                        store.save(&key, &expected, &entity(&format!("{n}"), &[]), &[dedup_entry(n)]).await.unwrap()
                    }
                }),
            )
            .await;
        winners.extend((first..).zip(&results).filter(|(_, saved)| **saved != Saved::Conflict).map(|(n, _)| n));
        let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
        assert_eq!(stored.entity.state, format!("{}", winners.last().unwrap()).as_bytes());
    }
    assert_eq!(winners.len(), 2, "{winners:?} won");
    let ids: Vec<_> = (0..2 * MANY).map(dedup_key).collect();
    let known = store.load(&key, &ids).await.unwrap().known.unwrap();
    let marked: Vec<u64> = (0..2 * MANY).filter(|n| known.entry(&dedup_key(*n)).is_some()).collect();
    assert_eq!(marked, winners, "a loser's mark is stored, or a winner's is not");
}

#[tokio::test]
async fn reading_what_was_never_named_writes_nothing() {
    let place = Place::new();
    let store = place.open().await;
    let key = entity_key("none");
    assert!(store.load(&key, &[dedup_key(1)]).await.unwrap().stored.is_none());
    assert_eq!(store.version(&key).await.unwrap(), None);
    assert!(store.pending(&scope(), std::time::Duration::ZERO, None, 10).await.unwrap().is_empty());
    assert_eq!(store.purge(&scope(), std::time::Duration::ZERO, 10).await.unwrap(), 0);
    assert_eq!(place.number("SELECT count(*) FROM hapax_scope").await, 0);
}

#[tokio::test]
async fn a_version_of_nothing_is_a_conflict() {
    let place = Place::new();
    let store = place.open().await;
    let key = entity_key("none");
    for expected in [Version::number(1), Version::text("etag")] {
        let saved = store.save(&key, &Expected::Version(expected), &Entity::default(), &[dedup_entry(1)]).await;
        assert_eq!(saved.unwrap(), Saved::Conflict);
    }
    assert!(store.contains(&[dedup_key(1)]).await.unwrap().entry(&dedup_key(1)).is_none());
}

#[tokio::test]
async fn a_finish_marks_even_when_its_clean_up_loses() {
    let place = Place::new();
    let store = place.open().await;
    let key = entity_key("a");
    let version = save(&store, &key, Expected::Absent, &entity("s", &[1])).await;
    let stale = Version::number(version.as_number().unwrap() - 1);
    let clean = entity("s", &[]);
    let left = store.finish(&key, &[dedup_entry(1)], Some((&stale, &clean))).await.unwrap();
    assert_eq!(left, Some(Finished::Left));
    let loaded = store.load(&key, &[]).await.unwrap();
    assert_eq!(loaded.stored.unwrap().version, version);
    // Not asked for by id: the entry found in the entity is asked for it.
    assert_eq!(loaded.known.unwrap().entry(&dedup_key(1)), Some(&dedup_entry(1)));
}

#[tokio::test]
async fn a_clean_up_beside_a_save_of_its_entity_gives_way_and_still_marks() {
    let place = Place::new();
    let store = place.open().await;
    let keys: Vec<_> = (0..50).map(|n| entity_key(&format!("{n}"))).collect();
    let mut versions = Vec::new();
    for key in &keys {
        versions.push(save(&store, key, Expected::Absent, &entity("first", &[1])).await);
    }
    // The finishes are queued first, and yet no save meets a conflict: on this runtime all are queued before the writer
    // runs.
    let clean = entity("first", &[]);
    let next = entity("second", &[1, 2]);
    let finishes = join_all((0..50_u64).map(|n| {
        let (store, key, version, clean) = (&store, &keys[n as usize], &versions[n as usize], &clean);
        async move { store.finish(key, &[dedup_entry(n)], Some((version, clean))).await.unwrap().unwrap() }
    }));
    let saves = join_all((0..50).map(|n| {
        let (store, key, next) = (&store, &keys[n], &next);
        let expected = Expected::Version(versions[n].clone());
        async move { store.save(key, &expected, next, &[]).await }
    }));
    let (finished, saved) = futures_util::future::join(finishes, saves).await;
    assert!(finished.iter().all(|finished| *finished == Finished::Left), "{finished:?}");
    for (saved, key) in saved.into_iter().zip(&keys) {
        won(saved);
        assert_eq!(store.load(key, &[]).await.unwrap().stored.unwrap().entity.outbox.len(), 2);
    }
    assert_eq!(place.number("SELECT count(*) FROM hapax_dedup").await, 50);
}

#[tokio::test]
async fn saves_of_one_entity_that_queue_together_are_written_one_after_the_other() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    let key = entity_key("a");
    let saved = join_all((1..=20_i64).map(|n| {
        let (store, key) = (&store, &key);
        let expected = if n == 1 { Expected::Absent } else { Expected::Version(Version::number(n - 1)) };
        async move { store.save(key, &expected, &entity(&format!("{n}"), &[]), &[]).await }
    }))
    .await;
    let versions: Vec<_> = saved.into_iter().map(|saved| won(saved).as_number().unwrap()).collect();
    assert_eq!(versions, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn dedup_entries_come_back_whole_and_the_first_stays() {
    let place = Place::new();
    let store = place.open().await;
    let with_reply = hapax_core::entity::DedupEntry { reply: Some(outgoing("reply")), ..dedup_entry(1) };
    let other_attempt = hapax_core::entity::DedupEntry { attempt: attempt(77), ..dedup_entry(1) };
    for entry in [&with_reply, &other_attempt, &with_reply] {
        store.insert(std::slice::from_ref(entry)).await.unwrap();
        store.insert(&[entry.clone(), dedup_entry(2), dedup_entry(2)]).await.unwrap();
    }
    let known = store.contains(&[dedup_key(1), dedup_key(2), dedup_key(3)]).await.unwrap();
    assert_eq!(known.entry(&dedup_key(1)), Some(&with_reply));
    assert!(!known.attempt(&dedup_key(1), &attempt(77)));
    assert_eq!(known.entry(&dedup_key(2)), Some(&dedup_entry(2)));
    assert_eq!(known.entry(&dedup_key(3)), None);
}

#[tokio::test]
async fn a_poison_member_of_a_group_hurts_only_itself() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    place
        .run(
            "CREATE TRIGGER poison BEFORE INSERT ON hapax_entity WHEN NEW.key = 'poison' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .await;
    let names: Vec<String> = (0..40).map(|n| if n == 17 { "poison".to_owned() } else { n.to_string() }).collect();
    let saved = join_all(names.iter().map(|name| {
        let store = &store;
        async move { store.save(&entity_key(name), &Expected::Absent, &entity("s", &[]), &[]).await }
    }))
    .await;
    for (key, saved) in names.iter().zip(saved) {
        if key == "poison" {
            let refused = saved.unwrap_err();
            assert!(!refused.is_unknown_outcome(), "{refused}");
        } else {
            won(saved);
        }
    }
    // The store goes on.
    save(&store, &entity_key("after"), Expected::Absent, &entity("s", &[])).await;
}

#[tokio::test]
async fn a_commit_that_fails_is_an_unknown_outcome_for_every_member() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    // A reference that is checked only by the commit.
    place
        .run(
            "CREATE TABLE mine (id INTEGER PRIMARY KEY); \
             CREATE TABLE yours (mine INTEGER REFERENCES mine (id) DEFERRABLE INITIALLY DEFERRED); \
             CREATE TRIGGER late AFTER INSERT ON hapax_entity WHEN NEW.key = 'late' \
             BEGIN INSERT INTO yours VALUES (1); END",
        )
        .await;
    let saved = join_all(["1", "2", "late", "3"].map(|name| {
        let store = &store;
        async move { store.save(&entity_key(name), &Expected::Absent, &entity("s", &[]), &[]).await }
    }))
    .await;
    for saved in saved {
        assert!(saved.unwrap_err().is_unknown_outcome());
    }
    // Loading again tells; and the store goes on.
    assert!(store.load(&entity_key("1"), &[]).await.unwrap().stored.is_none());
    save(&store, &entity_key("1"), Expected::Absent, &entity("s", &[])).await;
}

#[tokio::test]
async fn callers_that_give_up_leave_the_others_alone() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    for round in 0..20 {
        let key = |n: u64| entity_key(&format!("{round}-{n}"));
        let kept = {
            let mut calls: Vec<_> = (0..30)
                .map(|n| {
                    let store = store.clone();
                    Box::pin(async move { store.save(&key(n), &Expected::Absent, &entity("s", &[]), &[]).await })
                })
                .collect();
            for call in &mut calls {
                let _ = futures_util::poll!(call.as_mut());
            }
            // Every other one is dropped with its request in the queue.
            calls.into_iter().step_by(2).collect::<Vec<_>>()
        };
        for saved in join_all(kept).await {
            won(saved);
        }
    }
}

#[tokio::test]
async fn what_was_confirmed_is_there_after_opening_again() {
    let place = Place::new();
    let store = place.open().await;
    let version = save(&store, &entity_key("a"), Expected::Absent, &entity("s", &[1])).await;
    store.insert(&[dedup_entry(9)]).await.unwrap();
    store.close().await;
    let refused = store.load(&entity_key("a"), &[]).await.unwrap_err();
    assert_eq!(refused.kind(), hapax_core::ports::ErrorKind::Unavailable);
    assert!(
        !store
            .save(&entity_key("a"), &Expected::Absent, &entity("s", &[]), &[])
            .await
            .unwrap_err()
            .is_unknown_outcome()
    );
    let store = place.open().await;
    let loaded = store.load(&entity_key("a"), &[dedup_key(9)]).await.unwrap();
    assert_eq!(loaded.stored.unwrap().version, version);
    assert!(loaded.known.unwrap().entry(&dedup_key(9)).is_some());
}
