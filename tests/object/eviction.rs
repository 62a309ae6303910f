//! Objects are evicted when the service's clock says so: nothing early, everything in the end, and without listing everything.

use std::{sync::Arc, time::Duration};

use hapax::{
    ObjectDedup,
    ports::{DedupStore, Evicted},
};

use crate::{
    rigged::{Rigged, Way},
    samples::{entries, entry, entry_of, keys},
};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MILLIS: i64 = 3_600_000;
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn open(store: &Arc<Rigged>) -> ObjectDedup {
    ObjectDedup::options(store.clone(), "shop").open().await.unwrap()
}

/// Evicts until there is no more, and tells how many entries are gone and how many calls it took.
async fn evict_all(dedup: &ObjectDedup, retention: Duration) -> (u64, usize) {
    let (mut entries, mut calls) = (0, 0);
    loop {
        let evicted: Evicted = dedup.evict(retention).await.unwrap();
        entries += evicted.entries;
        calls += 1;
        if !evicted.more {
            return (entries, calls);
        }
    }
}

async fn left(dedup: &ObjectDedup, entries: &[hapax::entity::DedupEntry]) -> usize {
    let known = dedup.contains(&keys(entries)).await.unwrap();
    entries.iter().filter(|entry| known.entry(&entry.key).is_some()).count()
}

#[tokio::test]
async fn many_objects_are_kept_for_the_retention_and_gone_after_it() {
    const MANY: usize = 11_000;
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let entries = entries(MANY);
    for some in entries.chunks(500) {
        dedup.insert(some).await.unwrap();
    }
    // Of a day's retention nothing is listed as long as no bucket is over.
    store.calls();
    for hours in [0, 12, 23] {
        store.set_clock(hours * HOUR_MILLIS);
        assert_eq!(evict_all(&dedup, DAY).await, (0, 1));
    }
    let calls = store.calls();
    assert!(!calls.iter().any(|call| call.starts_with("list shop/t") || call.contains(" shop/d")), "{calls:?}");
    assert_eq!(left(&dedup, &entries).await, entries.len());

    store.set_clock(26 * HOUR_MILLIS);
    let (evicted, calls) = evict_all(&dedup, DAY).await;
    assert_eq!(evicted, MANY as u64);
    assert_eq!(calls, 2, "a call goes on for many rounds, and is bounded");
    assert_eq!(left(&dedup, &entries).await, 0);
    assert_eq!(store.names("shop/t").await, [""; 0]);
    assert_eq!(store.names("shop/d").await, [""; 0]);
}

#[tokio::test]
async fn only_buckets_of_old_objects_are_listed() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let mut inserted = Vec::new();
    for hour in 0..48 {
        store.set_clock(hour * HOUR_MILLIS);
        dedup.evict(DAY * 365).await.unwrap(); // Which asks the service for its time.
        let entry = entry();
        dedup.insert(std::slice::from_ref(&entry)).await.unwrap();
        inserted.push(entry);
    }
    assert_eq!(store.names("shop/t").await.len(), 48);
    // A year later and an hour, or two, for the bucket and the margin.
    store.set_clock(HOUR_MILLIS * (365 * 24 + 7));
    store.calls();
    let (evicted, _) = evict_all(&dedup, DAY).await;
    let listed = store.calls().into_iter().filter(|call| call.starts_with("list shop/t")).count() as u64;
    assert!((5..=7).contains(&evicted), "{evicted}");
    assert_eq!(listed, evicted);
    assert_eq!(left(&dedup, &inserted).await as u64, 48 - evicted);
}

#[tokio::test]
async fn an_idle_eviction_of_objects_costs_four_requests() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    dedup.insert(&entries(100)).await.unwrap();
    dedup.evict(DAY).await.unwrap();
    store.calls();
    dedup.evict(DAY).await.unwrap();
    assert_eq!(store.calls(), ["put shop/now", "head shop/now", "list shop/r", "folders shop/t"]);
}

#[tokio::test]
async fn a_message_costs_a_read_and_two_writes_of_objects() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    store.calls();
    let entry = entry();
    dedup.contains(&[entry.key]).await.unwrap();
    dedup.insert(std::slice::from_ref(&entry)).await.unwrap();
    let kinds: Vec<String> = store.calls().iter().map(|call| call[..10].to_owned()).collect();
    assert_eq!(kinds, ["get shop/d", "put shop/t", "put shop/d"]);
    // One that is there is looked at, for a refusal alone proves nothing.
    dedup.insert(&[entry_of(entry.key)]).await.unwrap();
    let kinds: Vec<String> = store.calls().iter().map(|call| call[..10].to_owned()).collect();
    assert_eq!(kinds, ["put shop/t", "put shop/d", "get shop/d"]);
}

#[tokio::test]
async fn the_longest_retention_of_objects_holds_for_all_handles() {
    let store = Rigged::new(Way::Honest);
    let (patient, hasty) = (open(&store).await, open(&store).await);
    let entries = entries(10);
    patient.evict(DAY * 7).await.unwrap();
    hasty.insert(&entries).await.unwrap();
    store.set_clock(6 * 24 * HOUR_MILLIS);
    assert_eq!(evict_all(&hasty, Duration::ZERO).await, (0, 1));
    assert_eq!(left(&hasty, &entries).await, 10);
    drop(patient);
    let opened_later = open(&store).await;
    assert_eq!(evict_all(&opened_later, HOUR).await, (0, 1));
    store.set_clock((7 * 24 + 2) * HOUR_MILLIS);
    assert_eq!(evict_all(&opened_later, HOUR).await.0, 10);
}

/// Objects in a bucket of long ago, since the service's clock was wrong when the handle asked for it.
#[tokio::test]
async fn an_object_younger_than_its_bucket_stays_and_is_evicted_in_the_end() {
    for wrong in [-100 * 24 * HOUR_MILLIS, 100 * 24 * HOUR_MILLIS] {
        let store = Rigged::new(Way::Honest);
        store.set_clock(wrong);
        let lagging = open(&store).await;
        store.set_clock(0);
        let dedup = open(&store).await;
        let entries = entries(30);
        lagging.insert(&entries).await.unwrap();
        assert_eq!(evict_all(&dedup, DAY).await, (0, 1), "off by {wrong}");
        assert_eq!(left(&dedup, &entries).await, 30);
        // Its mark has moved to its own bucket: another call has nothing to do.
        store.calls();
        dedup.evict(DAY).await.unwrap();
        assert_eq!(store.calls().len(), 4);
        store.set_clock(26 * HOUR_MILLIS);
        assert_eq!(evict_all(&dedup, DAY).await.0, 30, "off by {wrong}");
        assert_eq!(store.names("shop/t").await, [""; 0]);
    }
}

/// Ages are told by the stamps of the service alone; the two ends of a retention, by a second.
#[tokio::test]
async fn an_object_is_evicted_by_the_stamps_of_its_service() {
    let store = Rigged::of_whole_seconds();
    let options = ObjectDedup::options(store.clone(), "shop").clock_margin(Duration::from_secs(60));
    let dedup = options.open().await.unwrap();
    let mark = entry();
    dedup.insert(std::slice::from_ref(&mark)).await.unwrap();
    // A retention below a bucket: the part of it that is old is looked at.
    let minute = Duration::from_secs(60);
    for (seconds, gone) in [(0, 0), (60, 0), (119, 0), (123, 1)] {
        store.set_clock(seconds * 1000);
        assert_eq!(evict_all(&dedup, minute).await.0, gone, "after {seconds} s");
    }
}

#[tokio::test]
async fn an_object_that_was_inserted_again_is_kept_for_as_long_again() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let first = entry();
    dedup.insert(std::slice::from_ref(&first)).await.unwrap();
    store.set_clock(26 * HOUR_MILLIS);
    assert_eq!(evict_all(&dedup, DAY).await.0, 1);
    let again = entry_of(first.key);
    dedup.insert(std::slice::from_ref(&again)).await.unwrap();
    store.set_clock(49 * HOUR_MILLIS);
    assert_eq!(evict_all(&dedup, DAY).await.0, 0);
    assert!(dedup.contains(&[again.key]).await.unwrap().attempt(&again.key, &again.attempt));
    store.set_clock(53 * HOUR_MILLIS);
    assert_eq!(evict_all(&dedup, DAY).await.0, 1);
}

/// One handle evicts at a time: a second one that had looked at an old object could remove a new one of that name.
#[tokio::test]
async fn while_one_handle_evicts_objects_others_leave_it_alone() {
    let store = Rigged::new(Way::Honest);
    let (first, second) = (open(&store).await, open(&store).await);
    first.insert(&entries(10)).await.unwrap();
    store.set_clock(26 * HOUR_MILLIS);
    // It dies in the middle.
    store.set(Way::Yields);
    {
        let mut evicting = Box::pin(first.evict(DAY));
        let took_turn = || store.calls().iter().any(|call| call.starts_with("list shop/t/"));
        let mut polls = 0;
        while !took_turn() {
            assert!(futures_util::FutureExt::now_or_never(&mut evicting).is_none(), "it has ended");
            polls += 1;
            assert!(polls < 1000, "it does not come to it");
        }
    }
    store.set(Way::Honest);
    assert_eq!(second.evict(DAY).await.unwrap(), Evicted::default());
    assert_eq!(store.names("shop/d").await.len(), 10);
    store.set_clock(26 * HOUR_MILLIS + 6 * 60_000);
    assert_eq!(second.evict(DAY).await.unwrap().entries, 10);
    // Its turn was ended: the next has not to wait.
    first.insert(&entries(3)).await.unwrap();
    store.set_clock(60 * HOUR_MILLIS);
    assert_eq!(first.evict(DAY).await.unwrap().entries, 3);
    assert_eq!(store.names("shop/e").await.len(), 2, "old turns are removed");
}

#[tokio::test]
async fn evictions_of_objects_at_once_remove_each_once() {
    let store = Rigged::new(Way::Yields);
    let dedup = open(&store).await;
    dedup.insert(&entries(200)).await.unwrap();
    store.set_clock(26 * HOUR_MILLIS);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let rival = open(&store).await;
        tasks.push(tokio::spawn(async move { rival.evict(DAY).await.unwrap().entries }));
    }
    let mut evicted = 0;
    for task in tasks {
        evicted += task.await.unwrap();
    }
    assert_eq!(evicted, 200);
}

#[tokio::test]
async fn an_eviction_of_objects_that_fails_in_the_middle_is_finished_by_the_next() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    dedup.insert(&entries(50)).await.unwrap();
    store.set_clock(26 * HOUR_MILLIS);
    store.set(Way::DeletesHalf);
    dedup.evict(DAY).await.unwrap_err();
    store.set(Way::Honest);
    evict_all(&dedup, DAY).await;
    assert_eq!(store.names("shop/d").await, [""; 0]);
    // Marks whose entries had gone first go later than the retention, or ten minutes: they may be of a writer at work.
    assert_eq!(store.names("shop/t").await, [""; 0]);
}

#[tokio::test]
async fn an_object_that_cannot_be_removed_keeps_no_other_from_being_evicted() {
    for place in ["shop/d", "shop/t"] {
        let store = Rigged::new(Way::Honest);
        let dedup = open(&store).await;
        dedup.insert(&entries(600)).await.unwrap();
        let held = store.names(place).await.swap_remove(0);
        store.hold(Some(&held));
        store.set_clock(26 * HOUR_MILLIS);
        for _ in 0..2 {
            let told = dedup.evict(DAY).await.unwrap_err();
            assert!(format!("{told:?}").contains("it is held"), "{told:?}");
            assert_eq!(store.names(place).await, [held.as_str()]);
        }
        store.hold(None);
        evict_all(&dedup, DAY).await;
        assert_eq!((store.names("shop/d").await.len(), store.names("shop/t").await.len()), (0, 0));
    }
}

/// From the end of a turn on others evict, and what a slow handle has found to be old may have been inserted again.
#[tokio::test(start_paused = true)]
async fn a_slow_eviction_of_objects_removes_nothing_when_its_turn_is_over() {
    const HALF: Duration = Duration::from_secs(150);
    const GIVEN_UP: Duration = Duration::from_secs(240);
    const LOOK: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);
    let tick = Duration::from_millis(1);
    // Of looks that take 80 s a round the second ends too late; removals that take 20 s each are cut off. The first look is
    // for the time, before the turn.
    for (look, delete, limit) in [(LOOK, tick, LOOK + HALF), (tick, 20 * SECOND, GIVEN_UP)] {
        let store = Rigged::new(Way::Honest);
        let dedup = open(&store).await;
        dedup.insert(&entries(1000)).await.unwrap();
        store.set_clock(26 * HOUR_MILLIS);
        store.set(Way::Slow { look, delete });
        let begun = tokio::time::Instant::now();
        let evicted = dedup.evict(DAY).await;
        let last = store.deleted("shop/d").into_iter().max().expect("it removes what it can") - begun;
        assert!(last <= limit + SECOND, "{look:?} {delete:?} {last:?} {evicted:?}");
        // What is left goes with the next.
        store.set(Way::Honest);
        evict_all(&dedup, DAY).await;
        assert_eq!(store.names("shop/d").await, [""; 0]);
    }
}
