//! The client itself: how it starts, receives and ends.

use std::time::Duration;

use hapax::{
    InProcess, RequestClient,
    endpoint::ErrorKind,
    envelope::{Destination, Envelope},
    ports::{DeadLetters, Page},
    requests::{RequestError, RequestSettings},
    transports::in_process::Faults,
};

use crate::{
    bank::{Bank, Booked, MINUTE, SECOND, ask, asking, book, until},
    wire::{Fate, Wire},
};

#[tokio::test]
async fn what_is_missing_or_wrong_is_said_at_the_start_with_its_remedy() {
    let hub = InProcess::new("start");
    let none = RequestSettings { waiting_max: 0, ..RequestSettings::default() };
    for (client, says) in [
        (RequestClient::builder("front"), "client front has no transport; add .transport(..)"),
        (RequestClient::builder("a b").transport(hub.clone()), "not what stands at byte 1"),
        (RequestClient::builder("front").transport(hub.clone()).settings(none), "raise it"),
    ] {
        let error = client.start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let client = RequestClient::builder("front").transport(InProcess::new("timers"));
    let error = runtime.block_on(client.start()).unwrap_err();
    assert!(error.to_string().contains("client front: there is no tokio runtime with timers here"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_gives_nothing_for_a_while_is_asked_again() {
    let bank = Bank::new("receive");
    let _running = bank.run().await;
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Sent).fails_to_receive(20);
    let client = RequestClient::builder("front").transport(wire).start().await.unwrap();
    bank.booked_once("a", &ask(&client, &book("a", "receive"), MINUTE).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_acknowledgement_is_lost_comes_again_and_finds_nobody() {
    let faults = Faults { seed: 3, lost_acks: 0.5, ..Faults::default() };
    let bank = Bank { hub: InProcess::with_faults("acks", SECOND, faults), ..Bank::new("acks") };
    let _running = bank.run().await;
    let client = bank.client("front").await;
    for line in 0..20 {
        let answer = ask(&client, &book(&format!("a-{line}"), &format!("line-{line}")), MINUTE).await.unwrap();
        bank.booked_once(&format!("a-{line}"), &answer);
    }
    bank.idle().await; // In the end each is acknowledged.
    assert!(client.unawaited() > 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_the_client_is_stopped_and_its_clones_ask_no_more() {
    let bank = Bank::new("stopped");
    let client = bank.client("front").await;
    let waits = asking(&client, book("a", "waits")).await;
    let clone = client.clone();
    client.stop().await;
    let error = waits.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Stopped) && error.is_unknown_outcome(), "{error:?}");
    assert!(matches!(ask(&clone, &book("a", "more"), MINUTE).await, Err(RequestError::Stopped)));
    assert_eq!(clone.waiting(), 0);
    clone.stop().await; // It is stopped already.
    let _running = bank.run().await;
    until("the request to be handled", || bank.lines("a").len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_nothing_is_received_any_more_for_whatever_reason() {
    let bank = Bank::new("panics");
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Sent).panics();
    let client = RequestClient::builder("front").transport(wire).start().await.unwrap();
    for line in ["one", "two"] {
        let error = ask(&client, &book("a", line), MINUTE).await.unwrap_err();
        assert!(matches!(error, RequestError::Stopped), "{error:?}");
    }
    client.stop().await;
}

/// Goal: a broker that takes no acknowledgements does not fill the memory. Method: far more answers than may be held.
#[tokio::test(start_paused = true)]
async fn answers_that_cannot_be_acknowledged_are_held_up_to_a_bound_and_a_stop_does_not_wait_for_them() {
    const ANSWERS: u64 = 1000;
    const UNSETTLED_MAX: u64 = 256;
    let bank = Bank::new("unsettled");
    let wire = Wire::to(&bank.hub, "bank", |_| Fate::Sent).never_settles();
    let client = RequestClient::builder("front").transport(wire.clone()).start().await.unwrap();
    for _ in 0..ANSWERS {
        let envelope = client.envelope(&Booked { lines: 1, run: 1 }).unwrap();
        let envelope = Envelope { correlation_id: Some("another-life".parse().unwrap()), ..envelope };
        let to = Destination::Endpoint("front".parse().unwrap());
        bank.hub.sender().send_envelope(to, envelope).await.unwrap();
    }
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!((u64::from(wire.given()), client.unawaited()), (UNSETTLED_MAX, UNSETTLED_MAX));
    let begin = tokio::time::Instant::now();
    client.stop().await;
    assert_eq!(begin.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_nobody_has_any_more_receives_no_more() {
    let bank = Bank::new("gone");
    let client = bank.client("front").await;
    let clone = client.clone();
    drop(client);
    let _running = bank.run().await;
    ask(&clone, &book("a", "one"), MINUTE).await.unwrap(); // The clone is the same client.
    drop(clone);
    tokio::task::yield_now().await;
    bank.hub.sender().send("front", &Booked { lines: 1, run: 1 }).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(bank.hub.backlog(&"front".parse().unwrap()), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_set_aside() {
    let bank = Bank::new("no-answer");
    let client = bank.client("front").await;
    let id = bank.hub.sender().send("front", &Booked { lines: 1, run: 1 }).await.unwrap();
    bank.idle().await;
    let letters = bank.hub.list(&"front".parse().unwrap(), &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].envelope.message_id, id);
    assert!(letters[0].reason.contains("front takes answers"), "{}", letters[0].reason);
    assert_eq!(client.unawaited(), 0);
}

/// What waits for an answer and what is answered are told apart by the correlation id alone, not by who sends it.
#[tokio::test(start_paused = true)]
async fn an_answer_to_nothing_that_was_asked_is_acknowledged_and_counted() {
    let bank = Bank::new("nothing-asked");
    let client = bank.client("front").await;
    let envelope = bank.hub.sender().envelope("answer".parse().unwrap(), &Booked { lines: 1, run: 1 }).unwrap();
    let envelope = Envelope { correlation_id: Some("another-life".parse().unwrap()), ..envelope };
    let to = Destination::Endpoint("front".parse().unwrap());
    bank.hub.sender().send_envelope(to, envelope).await.unwrap();
    bank.idle().await;
    assert_eq!((client.unawaited(), client.waiting()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn no_deadline_is_too_far() {
    let bank = Bank::new("for-ever");
    let _running = bank.run().await;
    let client = bank.client("front").await;
    bank.booked_once("a", &ask(&client, &book("a", "for-ever"), Duration::MAX).await.unwrap());
}
