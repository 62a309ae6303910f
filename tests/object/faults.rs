//! What goes wrong on the way to an object store, and what is said of it.

use std::{sync::Arc, time::Duration};

use hapax::{
    ObjectDedup,
    entity::DedupEntry,
    ports::{DedupStore, ErrorKind},
    testing::Drops,
};
use object_store::{ObjectStoreExt, path::Path};

use crate::{
    rigged::{Rigged, Way},
    samples::{entries, entry, entry_of, keys},
};

async fn open(store: &Arc<Rigged>) -> ObjectDedup {
    let options = ObjectDedup::options(store.clone(), "shop").clock_margin(Duration::ZERO);
    options.write_limit(Duration::from_secs(5)).read_limit(Duration::from_secs(5)).open().await.unwrap()
}

async fn is_there(dedup: &ObjectDedup, entry: &DedupEntry) -> bool {
    dedup.contains(&[entry.key]).await.unwrap().attempt(&entry.key, &entry.attempt)
}

#[tokio::test]
async fn an_object_that_was_written_though_its_answer_was_lost_is_an_unknown_outcome() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let entry = entry();
    store.set(Way::AnswersLost);
    let error = dedup.insert(std::slice::from_ref(&entry)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    store.set(Way::Honest);
    assert!(is_there(&dedup, &entry).await);
    dedup.insert(&[entry]).await.unwrap();
}

#[tokio::test]
async fn an_object_store_that_is_not_there_is_an_error_and_nothing_lands_later() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    for (way, kind) in [(Way::Unreachable, ErrorKind::Unavailable), (Way::Denied, ErrorKind::Denied)] {
        let entry = entry();
        store.set(way);
        assert_eq!(dedup.insert(std::slice::from_ref(&entry)).await.unwrap_err().kind(), kind);
        assert_eq!(dedup.contains(&[entry.key]).await.unwrap_err().kind(), kind);
        assert_eq!(dedup.evict(Duration::ZERO).await.unwrap_err().kind(), kind);
        store.set(Way::Honest);
        assert!(!is_there(&dedup, &entry).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_store_that_does_not_answer_is_given_up() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let entries = entries(3);
    store.set(Way::Silent);
    assert_eq!(dedup.insert(&entries).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(dedup.contains(&keys(&entries)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(dedup.evict(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn one_object_that_is_not_confirmed_makes_all_unknown() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    store.set(Way::Denied);
    assert_eq!(dedup.insert(&entries(40)).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
}

#[tokio::test]
async fn a_bucket_that_is_gone_is_an_error_and_never_no_object() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    store.set(Way::NoBucket);
    let error = dedup.contains(&keys(&entries(2))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("create the bucket"), "{error}");
}

/// A status of conflict has many causes: two requests at once on S3, a container that is being deleted on Azure.
#[tokio::test]
async fn a_conflict_without_an_object_confirms_nothing() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let entry = entry();
    store.set(Way::ConflictsWithNothing);
    let error = dedup.insert(std::slice::from_ref(&entry)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert!(error.to_string().contains("says that there is one and shows none"), "{error}");
    store.set(Way::Honest);
    assert!(!is_there(&dedup, &entry).await);
}

#[tokio::test]
async fn an_object_of_another_version_or_key_is_an_error_and_never_not_seen() {
    let store = Rigged::new(Way::Honest);
    let dedup = open(&store).await;
    let (first, second) = (entry(), entry());
    dedup.insert(&[first.clone(), second.clone()]).await.unwrap();
    let path = |entry: &DedupEntry| {
        let hex = entry.key.to_string();
        Path::from(format!("shop/d/{}/{hex}", &hex[46..]))
    };
    let mut newer = store.get(&path(&first)).await.unwrap().bytes().await.unwrap().to_vec();
    newer[1] += 1;
    store.put(&path(&first), newer.into()).await.unwrap();
    let bytes = store.get(&path(&first)).await.unwrap().bytes().await.unwrap();
    let copy = entry();
    for bytes in [bytes, store.get(&path(&second)).await.unwrap().bytes().await.unwrap(), Vec::new().into()] {
        store.put(&path(&copy), bytes.into()).await.unwrap();
        let error = dedup.contains(&[copy.key]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error:?}");
        // Nor is it taken for one's own.
        assert_eq!(dedup.insert(std::slice::from_ref(&copy)).await.unwrap_err().kind(), ErrorKind::Malformed);
    }
    assert_eq!(dedup.contains(&[second.key, first.key]).await.unwrap_err().kind(), ErrorKind::Malformed);
    assert!(is_there(&dedup, &second).await);
}

#[tokio::test]
async fn of_inserts_at_once_the_first_object_stays_and_all_are_confirmed() {
    let store = Rigged::new(Way::Yields);
    let key = entry().key;
    let rivals: Vec<DedupEntry> = (0..20).map(|_| entry_of(key)).collect();
    let mut tasks = Vec::new();
    for rival in rivals.clone() {
        let dedup = open(&store).await;
        tasks.push(tokio::spawn(async move { dedup.insert(&[rival]).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let dedup = open(&store).await;
    let known = dedup.contains(&[key]).await.unwrap();
    assert_eq!(rivals.iter().filter(|rival| known.attempt(&key, &rival.attempt)).count(), 1);
}

/// A process may die at every await: what it confirmed is there, and everything goes in the end.
#[tokio::test]
async fn inserts_into_objects_that_are_dropped_at_any_await_leave_nothing_that_stays_for_ever() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (store, drops) = (Rigged::new(Way::Yields), Drops::new(seed, 0.7));
    let dedup = open(&store).await;
    let mut confirmed = Vec::new();
    for _ in 0..200 {
        let entry = entry();
        if drops.run(dedup.insert(std::slice::from_ref(&entry))).await.is_some_and(|inserted| inserted.is_ok()) {
            assert!(is_there(&dedup, &entry).await, "seed {seed}");
            confirmed.push(entry.clone());
        }
        // One that was dropped is inserted again by somebody else.
        if fastrand::bool() && !is_there(&dedup, &entry).await {
            dedup.insert(std::slice::from_ref(&entry)).await.unwrap();
            confirmed.push(entry);
        }
    }
    assert!(drops.dropped() > 20, "{}", drops.dropped());
    let known = dedup.contains(&keys(&confirmed)).await.unwrap();
    assert!(confirmed.iter().all(|entry| known.attempt(&entry.key, &entry.attempt)), "seed {seed}");

    // Later, evictions die too, and the turn of one that died is waited for.
    let mut later = 0;
    for _ in 0..40 {
        later += 3_600_000;
        store.set_clock(later);
        drops.run(dedup.evict(Duration::ZERO)).await;
    }
    store.set_clock(later + 3_600_000);
    while dedup.evict(Duration::ZERO).await.unwrap().more {}
    for prefix in ["shop/d", "shop/t"] {
        assert_eq!(store.names(prefix).await, [""; 0], "seed {seed}");
    }
}
