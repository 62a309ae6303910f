//! Messages that a transaction of the user's own has stored: the sweeper sends them.

use std::time::Duration;

use hapax::{
    Endpoint, Enqueued, InProcess, Memory, SendError,
    entity::Expected,
    ports::{EntityStore, Saved},
};

use crate::work::{Log, done, endpoint, letters, settings, task};

/// What the transaction would do, on a store that has none.
async fn store(store: &Memory, enqueued: &Enqueued) -> Saved {
    store.save(enqueued.key(), &Expected::Absent, enqueued.entity(), &[]).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_enqueued_is_sent_once_by_its_endpoint_and_leaves_a_tombstone() {
    let (kept, hub, log) = (Memory::new(), InProcess::new("enqueued"), Log::default());
    let enqueued = Enqueued::message("front", "work", &task("a", "stored")).unwrap();
    assert!(matches!(store(&kept, &enqueued).await, Saved::At(_)));
    assert_eq!(store(&kept, &enqueued).await, Saved::Conflict, "the same message twice");

    // Nobody sends it who was not told to: neither the endpoint that it is for, nor another one.
    let worker = endpoint(&kept, hub.clone(), &log).start().await.unwrap();
    let worker = tokio::spawn(worker.run_until(tokio::time::sleep(Duration::from_secs(3600))));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(done(&kept, "worker", "a"), [""; 0]);

    let sends = || {
        let front = Endpoint::builder("front").store(kept.clone()).transport(hub.clone()).settings(settings());
        front.sends_enqueued().run_until(tokio::time::sleep(Duration::from_secs(60)))
    };
    sends().await.unwrap();
    sends().await.unwrap();
    assert_eq!(done(&kept, "worker", "a"), ["stored"]);
    assert_eq!(log.runs("worker", "stored"), 1, "it was sent once");
    assert!(kept.entities().iter().any(|(key, entity)| key == enqueued.key() && entity.outbox.is_empty()));
    assert_eq!(letters(&kept).await, []);
    worker.abort();
}

/// Nobody else sends it: it waits for the next look, and not for its process to be given up.
#[tokio::test(start_paused = true)]
async fn what_was_enqueued_leaves_within_two_seconds_by_the_settings_of_the_house() {
    let (kept, hub, log) = (Memory::new(), InProcess::new("enqueued-soon"), Log::default());
    let front = Endpoint::builder("front").store(kept.clone()).transport(hub.clone()).sends_enqueued();
    let front = front.start().await.unwrap();
    let front = tokio::spawn(front.run_until(tokio::time::sleep(Duration::from_secs(3600))));
    let worker = endpoint(&kept, hub.clone(), &log).start().await.unwrap();
    let worker = tokio::spawn(worker.run_until(tokio::time::sleep(Duration::from_secs(3600))));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let enqueued = Enqueued::message("front", "work", &task("a", "soon")).unwrap();
    assert!(matches!(store(&kept, &enqueued).await, Saved::At(_)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(done(&kept, "worker", "a"), ["soon"]);
    front.abort();
    worker.abort();
}

#[test]
fn what_can_never_be_sent_is_refused_before_it_is_stored() {
    for (by, to) in [("", "work"), ("front", "no name\n")] {
        assert!(matches!(Enqueued::message(by, to, &task("a", "never")), Err(SendError::Invalid(_))), "{by:?} {to:?}");
    }
}
