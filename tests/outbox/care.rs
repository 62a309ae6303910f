//! What is over, and what a person decides.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax::{
    Relay,
    ports::{Care, Cared, OutboxState, OutboxTable, Page},
    relay::{RelayCounts, RelayMetrics},
};

use super::{
    rig::{Place, SPREAD},
    sink::{Fate, PATIENCE, Sink, patient, quick, relay},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn what_was_sent_goes_to_the_archive_and_then_away_and_what_waits_or_failed_stays() {
    let place = Place::new().await;
    let outbox = place.outbox().await;
    place.orders(&outbox, 0..40).await;
    // Ten of each status; and what is over has been so for ten days.
    place.run(SPREAD).await;
    let care =
        |keep: u32, archive: Option<u32>| Care { keep: DAY * keep, archive: archive.map(|days| DAY * days), rows: 7 };
    let removed = |ended, archived| Cared { ended, archived };
    assert_eq!(outbox.care(&care(11, Some(30))).await.unwrap(), removed(0, 0));
    assert_eq!(outbox.care(&care(7, Some(30))).await.unwrap(), removed(7, 0));
    assert_eq!(outbox.care(&care(7, Some(30))).await.unwrap(), removed(7, 0));
    assert_eq!(outbox.care(&care(7, Some(30))).await.unwrap(), removed(6, 0));
    assert_eq!(
        place.number("SELECT count(*) FROM hapax.outbox_archive WHERE status IN (1, 3) AND body <> ''").await,
        20
    );
    assert_eq!(outbox.care(&care(7, Some(2))).await.unwrap(), removed(0, 7));
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox").await, 20);
    let state = outbox.state().await.unwrap();
    assert_eq!((state.stored, state.failed, state.claimed, state.relays), (10, 10, 0, 0));
    assert!(state.oldest.is_some() && state.lag.is_some());
}

#[tokio::test]
async fn a_relay_cares_and_tells_the_metrics() {
    #[derive(Debug, Clone, Default)]
    struct Told(Arc<Mutex<Vec<(String, OutboxState, RelayCounts)>>>);
    impl RelayMetrics for Told {
        fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts) {
            self.0.lock().unwrap().push((table.to_owned(), *state, *counts));
        }
    }
    let place = Place::new().await;
    let (outbox, sink, told) = (
        place.outbox().await,
        Sink::with(|order| if order == 0 { Fate::Impossible } else { Fate::Taken }),
        Told::default(),
    );
    let options = quick().care(Duration::from_millis(20), 3).keep(Duration::ZERO, None);
    let relay = Relay::to(sink.clone()).table_with(outbox.clone(), options).metrics(told.clone()).start().unwrap();
    place.orders(&outbox, 0..20).await;
    place.until("SELECT count(*) FROM hapax.outbox", 1).await;
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox_archive").await, 0);
    sink.until(|_| told.0.lock().unwrap().last().is_some_and(|(_, state, _)| state.failed == 1 && state.stored == 0))
        .await;
    let (table, state, counts) = told.0.lock().unwrap().last().unwrap().clone();
    assert!(table.ends_with("outbox") && state.relays == 1, "{table} {state:?}");
    assert_eq!((counts.sent, counts.failed), (19, 1));
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn a_person_looks_at_what_failed_and_retries_or_discards_it() {
    let place = Place::new().await;
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let fate = move |_| if is_broken.load(Ordering::Relaxed) { Fate::Impossible } else { Fate::Taken };
    let (outbox, sink) = (place.outbox().await, Sink::with(fate));
    let relay = relay(&outbox, &sink, quick());
    place.orders(&outbox, 0..3).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2", 3).await;
    let failed = outbox.failed(&Page::first(10)).await.unwrap();
    assert_eq!(failed.len(), 3);
    assert!(failed.iter().all(|one| one.attempts == 1 && one.reason.contains("is not taken")), "{failed:?}");
    assert!(failed.iter().all(|one| one.outgoing.as_ref().unwrap().envelope.message_id == one.message_id));
    let one = Page { message_id: Some(failed[1].message_id.clone()), ..Page::first(10) };
    assert_eq!(outbox.failed(&one).await.unwrap().len(), 1);
    assert_eq!(outbox.failed(&Page { skip: 2, ..Page::first(10) }).await.unwrap().len(), 1);
    broken.store(false, Ordering::Relaxed);
    assert_eq!(outbox.discard(&[failed[0].message_id.clone()]).await.unwrap(), 1);
    let all: Vec<_> = failed.iter().map(|one| one.message_id.clone()).collect();
    assert_eq!(outbox.retry(&all).await.unwrap(), 2, "what was discarded stays so");
    sink.until(|sink| sink.distinct().len() == 2).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 1", 2).await;
    assert_eq!(outbox.failed(&Page::first(10)).await.unwrap().len(), 0);
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_could_have_been_sent_lags_though_a_relay_has_it_or_will_try_it_again() {
    let refused = (Fate::Refused, "status = 0 AND token = 0 AND attempts = 1");
    let claimed = (Fate::Silent, "status = 0 AND token <> 0 AND attempts = 1");
    for (fate, is) in [refused, claimed] {
        let place = Place::new().await;
        let (outbox, sink) = (place.outbox().await, Sink::with(move |_| fate));
        place.orders(&outbox, 0..1).await;
        let relay = relay(&outbox, &sink, patient().backoff(PATIENCE * 4, PATIENCE * 4).lease(PATIENCE * 4));
        place.until(&format!("SELECT count(*) FROM hapax.outbox WHERE {is}"), 1).await;
        let lag = async || outbox.state().await.unwrap().lag.map(|lag| lag.as_secs());
        assert!(lag().await.is_some_and(|lag| lag < 60));
        // As if it had been stored ten minutes earlier.
        place.run("UPDATE hapax.outbox SET stored_at = stored_at - 600000").await;
        assert!(lag().await.is_some_and(|lag| lag >= 600), "{fate:?} {:?}", lag().await);
        // Due after five of them.
        place.run("UPDATE hapax.outbox SET due_at = stored_at + 300000").await;
        assert!(lag().await.is_some_and(|lag| (300..360).contains(&lag)), "{fate:?} {:?}", lag().await);
        place.run("UPDATE hapax.outbox SET due_at = stored_at + 3600000").await;
        assert_eq!(lag().await, None, "what is not due yet does not lag");
        drop(relay);
    }
}
