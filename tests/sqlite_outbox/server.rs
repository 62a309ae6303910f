//! What only SQLite does: it tells nobody of what was stored, and has one writer at a time.

use hapax::relay::RelayOptions;

use super::{
    rig::Place,
    sink::{Placed, Sink, quick, relay},
};

#[tokio::test]
async fn another_handle_relays_and_looks_by_itself() {
    let place = Place::new().await;
    let (writer, relaying, sink) = (place.outbox().await, place.outbox().await, Sink::new());
    let relay = relay(&relaying, &sink, RelayOptions::default());
    place.orders(&writer, 0..100).await;
    sink.until_all(0..100).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 100, "each once");
}

#[tokio::test]
async fn many_statements_are_stored_together_or_not_at_all() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let messages: Vec<_> = (0..1200).map(|order| outbox.outgoing(&Placed { order }).unwrap()).collect();
    let mut twice = messages.clone();
    twice.push(messages[0].clone());
    let mut tx = place.begin().await;
    outbox.enqueue_all(&mut tx, &twice).await.unwrap_err();
    let ticket = outbox.enqueue_all(&mut tx, &messages).await.unwrap();
    outbox.commit(tx, ticket).await.unwrap();
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..1200).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.taken().len(), 1200);
}

/// Nothing is stored beside a transaction that has stored something, so that nothing can become visible behind it.
#[tokio::test]
async fn invisible() {
    let place = Place::new().await;
    let (writer, relaying, sink) = (place.outbox().await, place.outbox().await, Sink::new());
    let relay = relay(&relaying, &sink, quick());
    let (late, ticket) = place.order(&writer, 0).await;
    let mut others = std::pin::pin!(place.orders(&writer, 1..20));
    let blocked = tokio::time::timeout(std::time::Duration::from_millis(300), &mut others).await;
    assert!(blocked.is_err() && sink.asked() == 0, "there are two writers");
    late.commit().await.unwrap();
    drop(ticket); // Nobody is told either.
    others.await;
    sink.until_all(0..20).await;
    relay.stop().await.unwrap();
}

/// As if an hour later half of the messages had been claimed by a relay that was killed, which was the one that sends where order is kept,
/// and the host's clock had been set back then. The last one is due at a time.
const SET_BACK: &str = "\
    INSERT INTO hapax.outbox_relay VALUES (4711, '', '', 1, 0, unixepoch() * 1000 + 3600000); \
    UPDATE hapax.outbox_meta SET value = 4711 WHERE name = 'owner'; \
    UPDATE hapax.outbox SET stored_at = stored_at + 3600000, ready_at = ready_at + 3600000, \
      owner = iif(number % 2 = 1, 4711, NULL), token = (number % 2) * 17; \
    UPDATE hapax.outbox SET due_at = ready_at WHERE number = 10";

async fn goes_on_after_the_clock_was_set_back(place: Place) {
    let (outbox, sink) = (place.outbox().await, Sink::new());
    place.orders(&outbox, 0..10).await;
    place.run(SET_BACK).await;
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(0..9).await;
    let waits = "SELECT count(*) FROM hapax.outbox WHERE status = 0 AND number = 10 AND ready_at = due_at";
    assert_eq!(place.number(waits).await, 1, "its time is to come");
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_claimed_before_the_clock_was_set_back_is_not_kept_until_it_comes_there_again() {
    goes_on_after_the_clock_was_set_back(Place::new().await).await;
}

#[tokio::test]
async fn what_was_claimed_in_order_before_the_clock_was_set_back_is_not_kept_until_it_comes_there_again() {
    goes_on_after_the_clock_was_set_back(Place::ordered().await).await;
}
