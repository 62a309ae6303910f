//! What did not come through memory: other processes, the dead, and what came late.

use std::time::Duration;

use hapax::relay::RelayOptions;

use super::{
    rig::Place,
    sink::{Fate, Placed, Sink, quick, relay},
};

#[tokio::test]
async fn lost() {
    let place = Place::new().await;
    // The writer's own relay dies with all that was pushed to it, and never has sent anything.
    let (outbox, silent) = (place.outbox().await, Sink::with(|_| Fate::Silent));
    let dies = relay(&outbox, &silent, quick());
    place.orders(&outbox, 0..100).await;
    silent.until(|sink| sink.asked() > 0).await;
    // Committed, and the process ends before it hands its ticket over.
    for order in 100..120 {
        let (tx, ticket) = place.order(&outbox, order).await;
        drop(ticket);
        tx.commit().await.unwrap();
    }
    drop(dies);
    let (other, sink) = (place.outbox().await, Sink::new());
    let lives = relay(&other, &sink, quick());
    sink.until_all(0..120).await;
    lives.stop().await.unwrap();
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await, 120);
}

#[tokio::test]
async fn duplicate() {
    let place = Place::new().await;
    let (outbox, first) = (place.outbox().await, Sink::with(|_| Fate::Unanswered));
    // It is gone before it has heard that anything was taken.
    let dies = relay(&outbox, &first, quick().senders(100, 1));
    place.orders(&outbox, 0..100).await;
    first.until_all(0..100).await;
    drop(dies);
    let (other, second) = (place.outbox().await, Sink::new());
    let lives = relay(&other, &second, quick());
    second.until_all(0..100).await;
    lives.stop().await.unwrap();
    let ids = |sink: &Sink| {
        let mut taken = sink.taken();
        taken.sort_by_key(|(_, order)| *order);
        taken
    };
    assert_eq!(ids(&first), ids(&second), "what is sent again bears the same id");
}

#[tokio::test]
async fn two_relays_share_a_backlog_and_none_sends_what_the_other_has() {
    let place = Place::new().await;
    let (writer, sink) = (place.outbox().await, Sink::new());
    let long = RelayOptions::default().polls(Duration::from_millis(50), Duration::from_millis(200));
    let outboxes = [place.outbox().await, place.outbox().await];
    let relays = outboxes.each_ref().map(|outbox| relay(outbox, &sink, long.clone()));
    let mut stored = 0;
    // One of them may be through with a backlog before the other has looked: so there is another one until both have sent.
    while relays.iter().any(|relay| relay.counts().sent == 0) {
        assert!(stored < 100_000, "one of them never sends: {:?}", relays.each_ref().map(|relay| relay.counts()));
        let messages: Vec<_> =
            (stored..stored + 5000).map(|order| writer.outgoing(&Placed { order }).unwrap()).collect();
        stored += 5000;
        let mut tx = place.begin().await;
        let ticket = writer.enqueue_all(&mut tx, &messages).await.unwrap();
        writer.commit(tx, ticket).await.unwrap();
        sink.until_all(0..stored).await;
    }
    for relay in relays {
        relay.stop().await.unwrap();
    }
    assert_eq!(sink.taken().len() as u64, u64::from(stored), "each once");
    assert_eq!(place.number("SELECT count(*) FROM hapax.outbox WHERE status = 1").await, i64::from(stored));
}

#[tokio::test]
async fn a_burst_beyond_the_queue_in_memory_is_claimed_from_the_table() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick().push_queue(10).birth_lease(Duration::from_secs(3600)));
    let messages: Vec<_> = (0..2000).map(|order| outbox.outgoing(&Placed { order }).unwrap()).collect();
    let mut tx = place.begin().await;
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    sink.until_all(0..2000).await;
    assert!(relay.counts().dropped >= 1900, "{:?}", relay.counts());
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 2000, "what is given back is claimed once");
    assert_eq!(place.number("SELECT max(attempts) FROM hapax.outbox").await, 1, "giving back is no attempt");
}

#[tokio::test]
async fn a_transaction_that_outlasts_the_lease_of_birth_is_left_to_a_claim() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick().birth_lease(Duration::from_millis(50)));
    let (tx, ticket) = place.order(&outbox, 0).await;
    tokio::time::sleep(Duration::from_millis(80)).await; // The lease is a time.
    outbox.commit(tx, ticket).await.unwrap();
    sink.until_all(0..1).await;
    relay.stop().await.unwrap();
    assert_eq!(place.number("SELECT max(attempts) FROM hapax.outbox").await, 2);
}

#[tokio::test]
async fn a_relay_that_was_not_heard_of_is_forgotten_and_what_it_had_is_sent() {
    let place = Place::new().await;
    let (outbox, silent) = (place.outbox().await, Sink::with(|_| Fate::Silent));
    let dies = relay(&outbox, &silent, quick());
    place.orders(&outbox, 0..3).await;
    silent.until(|sink| sink.asked() > 0).await;
    place.until("SELECT count(*) FROM hapax.outbox_relay", 1).await;
    let gone = place.number("SELECT max(id) FROM hapax.outbox_relay").await;
    drop(dies); // It says nothing of its end.
    let (other, sink) = (place.outbox().await, Sink::new());
    let lives = relay(&other, &sink, quick().stale(Duration::from_millis(1500)));
    sink.until_all(0..3).await;
    place.until("SELECT count(*) FROM hapax.outbox_relay", 1).await;
    assert_ne!(place.number("SELECT max(id) FROM hapax.outbox_relay").await, gone);
    lives.stop().await.unwrap();
}
