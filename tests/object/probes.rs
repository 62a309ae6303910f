//! A store that would double effects is refused at the start, with what it did.

use std::{sync::Arc, time::Duration};

use hapax::{
    ObjectDedup,
    ports::{DedupStore, ErrorKind},
};
use hapax_tests::LogLines;
use object_store::memory::InMemory;

use crate::{
    rigged::{Rigged, Way},
    samples::entry,
};

async fn refused(way: Way) -> String {
    let error = ObjectDedup::options(Rigged::new(way), "shop").open().await.expect_err("it must be refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn an_object_store_whose_creates_overwrite_is_refused() {
    let why = refused(Way::Overwrites).await;
    assert!(why.contains("lets 20 of 20 creates of one object win"), "{why}");
    assert!(why.contains("Rigged") && why.contains("`shop`"), "{why}");
}

#[tokio::test]
async fn an_object_store_that_refuses_a_create_and_writes_is_refused() {
    let why = refused(Way::RefusesAndWrites).await;
    assert!(why.contains("refuses a create and writes its content all the same"), "{why}");
}

#[tokio::test]
async fn an_object_store_that_refuses_every_create_is_refused() {
    let why = refused(Way::RefusesAll).await;
    assert!(why.contains("lets none of many creates of one object win"), "{why}");
}

#[tokio::test]
async fn an_object_store_without_conditional_creates_is_refused() {
    let why = refused(Way::Unconditional).await;
    assert!(why.contains("set the client up for conditional puts"), "{why}");
}

#[tokio::test]
async fn an_object_store_that_remembers_absence_is_refused() {
    let why = refused(Way::RemembersAbsence).await;
    assert!(why.contains("says of an object that it has just created that there is none"), "{why}");
}

#[tokio::test]
async fn an_object_store_that_lists_late_is_refused() {
    let why = refused(Way::ListsLate).await;
    assert!(why.contains("does not list an object that it has just created"), "{why}");
}

#[tokio::test]
async fn an_object_store_of_two_clocks_is_refused() {
    // Less than a quarter of an hour, and more than the minute by which entries are kept longer.
    for minutes in [3, 60] {
        let why = refused(Way::TwoClocks(minutes * 60_000)).await;
        assert!(why.contains("by clocks that are far apart"), "{why}");
        assert!(why.contains("`clock_margin`"), "{why}");
    }
    ObjectDedup::options(Rigged::new(Way::TwoClocks(30_000)), "shop").open().await.unwrap();
    let wide = ObjectDedup::options(Rigged::new(Way::TwoClocks(180_000)), "shop");
    wide.clock_margin(Duration::from_secs(180)).open().await.unwrap();
}

#[tokio::test]
async fn object_clients_of_two_stores_are_refused() {
    let options = ObjectDedup::options(Arc::new(InMemory::new()), "shop").second(Arc::new(InMemory::new()));
    let error = options.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("lets 2 of 20 creates of one object win"), "{error}");
}

#[tokio::test]
async fn an_object_store_that_keeps_what_is_deleted_is_warned_of_and_used() {
    let logged = LogLines::here();
    let dedup = ObjectDedup::options(Rigged::new(Way::Keeps), "shop").open().await.unwrap();
    assert_eq!(logged.with("evicted late or never").len(), 1);
    let entry = entry();
    dedup.insert(std::slice::from_ref(&entry)).await.unwrap();
    assert!(dedup.contains(&[entry.key]).await.unwrap().attempt(&entry.key, &entry.attempt));
}

#[tokio::test]
async fn an_object_store_that_is_not_reached_or_not_allowed_says_so() {
    for (way, kind) in [(Way::Unreachable, ErrorKind::Unavailable), (Way::Denied, ErrorKind::Denied)] {
        let error = ObjectDedup::options(Rigged::new(way), "shop").open().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

#[tokio::test]
async fn a_prefix_that_is_none_is_refused_before_the_object_store_is_asked() {
    let store = Rigged::new(Way::Honest);
    for prefix in ["a//b", "a/../b"] {
        let error = ObjectDedup::options(store.clone(), prefix).open().await.expect_err(prefix);
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
    }
    assert!(store.calls().is_empty());
}

#[tokio::test]
async fn a_probe_of_an_object_store_leaves_nothing_and_costs_some_fifty_requests() {
    let store = Rigged::new(Way::Honest);
    ObjectDedup::options(store.clone(), "shop").open().await.unwrap();
    let calls = store.calls();
    assert!(calls.len() <= 60, "{} {calls:?}", calls.len());
    assert_eq!(store.names("").await, ["shop/now"]);
}
