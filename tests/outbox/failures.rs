//! Messages and transports that fail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hapax::ports::OutboxTable;

use super::{
    rig::Place,
    sink::{Fate, Sink, patient, quick, relay},
};

#[tokio::test]
async fn what_cannot_be_sent_stays_as_failed_and_the_others_go_on() {
    let place = Place::new().await;
    let (outbox, sink) =
        (place.outbox().await, Sink::with(|order| if order < 200 { Fate::Impossible } else { Fate::Taken }));
    let writer = place.outbox().await;
    // The poisoned ones are the oldest.
    place.orders(&writer, 0..200).await;
    place.orders(&writer, 200..300).await;
    let relay = relay(&outbox, &sink, quick());
    sink.until_all(200..300).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2", 200).await;
    relay.stop().await.unwrap();
    let told =
        "SELECT count(*) FROM hapax.outbox WHERE status = 2 AND last_error LIKE '%is not taken%' AND attempts = 1";
    assert_eq!(place.number(told).await, 200);
    assert_eq!(outbox.state().await.unwrap().failed, 200);
}

#[tokio::test]
async fn what_is_refused_again_and_again_has_failed_after_its_attempts() {
    let place = Place::new().await;
    let (outbox, sink) =
        (place.outbox().await, Sink::with(|order| if order == 7 { Fate::Refused } else { Fate::Taken }));
    let relay = relay(&outbox, &sink, quick().attempts_max(3).senders(8, 1));
    place.orders(&outbox, 0..20).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2 AND attempts = 3", 1).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 1", 19).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.asked(), 19 + 3);
}

#[tokio::test]
async fn what_was_taken_but_denied_comes_again_under_the_same_id() {
    let place = Place::new().await;
    let first = AtomicBool::new(true);
    let denied = move |_| if first.swap(false, Ordering::Relaxed) { Fate::Denied } else { Fate::Taken };
    let (outbox, sink) = (place.outbox().await, Sink::with(denied));
    let relay = relay(&outbox, &sink, quick());
    place.orders(&outbox, 0..1).await;
    sink.until(|sink| sink.taken().len() == 2).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.distinct(), [0]);
}

#[tokio::test]
async fn a_transport_that_takes_nothing_is_tried_with_one_message() {
    let place = Place::new().await;
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    let fate = move |_| if is_down.load(Ordering::Relaxed) { Fate::Refused } else { Fate::Taken };
    let (outbox, sink) = (place.outbox().await, Sink::with(fate));
    let relay = relay(&outbox, &sink, quick().attempts_max(5).senders(1, 10));
    place.orders(&outbox, 0..500).await;
    // The first call has failed, one message was tried at once, and then one after a pause.
    sink.until(|sink| sink.asked() >= 3).await;
    assert!(sink.asked() < 20, "{} of 500 were tried", sink.asked());
    down.store(false, Ordering::Relaxed);
    sink.until_all(0..500).await;
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 1", 500).await;
    relay.stop().await.unwrap();
    assert_eq!(outbox.state().await.unwrap().failed, 0, "an outage uses up the attempts of few");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_has_failed_and_says_which_column() {
    let place = Place::new().await;
    let writer = place.outbox().await;
    place.orders(&writer, 0..3).await;
    place.run("UPDATE hapax.outbox SET destination = 'elsewhere' WHERE body LIKE '%1}'").await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2 AND last_error LIKE '%`destination`%'", 1).await;
    sink.until(|sink| sink.distinct() == [0, 2]).await;
    relay.stop().await.unwrap();
}

#[tokio::test]
async fn who_died_of_a_message_every_time_has_not_sent_it_for_ever() {
    let place = Place::new().await;
    let writer = place.outbox().await;
    place.orders(&writer, 0..1).await;
    place.run("UPDATE hapax.outbox SET attempts = 15").await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let relay = relay(&outbox, &sink, quick());
    place.until("SELECT count(*) FROM hapax.outbox WHERE status = 2 AND last_error LIKE '15 attempts%'", 1).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.asked(), 0);
}

#[tokio::test]
async fn one_handle_has_one_relay() {
    let place = Place::new().await;
    let (outbox, sink) = (place.outbox().await, Sink::new());
    let first = relay(&outbox, &sink, patient());
    let error = hapax::Relay::to(sink.clone()).table(outbox.clone()).start().unwrap_err();
    assert!(error.to_string().contains("running already"), "{error}");
    first.stop().await.unwrap();
    let second = relay(&outbox, &sink, patient());
    place.orders(&outbox, 0..1).await;
    sink.until_all(0..1).await;
    second.stop().await.unwrap();
    let none = hapax::Relay::to(sink).start().unwrap_err();
    assert!(none.to_string().contains("no table"), "{none}");
}
