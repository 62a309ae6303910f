//! Queues that keep order: groups, and what the service takes for a copy.

use std::time::Duration;

use hapax::{
    Sqs,
    envelope::Envelope,
    ids::EndpointName,
    ports::{Connected, DeadLetters, Dispatcher, Page, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::SqsQueues;

use super::rig::*;

async fn connected() -> (SqsQueues, Sqs, EndpointName, Connected) {
    let queues = SqsQueues::new();
    let sqs = queues.open(options(&queues).ordered_keys(true)).await;
    let here = endpoint();
    let ends = sqs.connect(&here, &[]).await.unwrap();
    (queues, sqs, here, ends)
}

/// The service takes a message for a copy of one that had the same id within five minutes, and gives it to nobody.
#[tokio::test]
async fn a_dead_letter_that_is_sent_again_at_once_is_not_taken_for_a_copy() {
    let (_queues, sqs, here, ends) = connected().await;
    send(&sqs, &[to(&here, keyed("k", "m"))]).await;
    let first = next(&ends).await;
    settle(&ends, &first, Settlement::DeadLetter { reason: "for now".into() }).await;
    let letters = sqs.list(&here, &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 1);
    send(&sqs, &[to(&here, (*letters[0].envelope).clone())]).await;
    sqs.discard(&letters).await.unwrap();
    let again = next(&ends).await;
    assert_eq!((&again.envelope, again.attempts), (&first.envelope, 1));
    ack(&ends, &again).await;
}

/// It is not lost unheard: the endpoint sets it aside.
#[tokio::test]
async fn another_message_under_the_same_id_comes_too() {
    let (_queues, sqs, here, ends) = connected().await;
    let first = keyed("k", "first");
    let second = Envelope { body: "second".into(), ..first.clone() };
    send(&sqs, &[to(&here, first), to(&here, second)]).await;
    for expected in ["first", "second"] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
}

/// As letters of one message that two sagas could not handle are, when they are retried.
#[tokio::test]
async fn one_message_for_two_sagas_comes_twice() {
    let (_queues, sqs, here, ends) = connected().await;
    let for_saga = |saga: &str| {
        let mut envelope = keyed("k", "m");
        envelope.message_id = "one".parse().unwrap();
        envelope.headers.set("retry-saga", saga).unwrap();
        envelope
    };
    send(&sqs, &[to(&here, for_saga("order")), to(&here, for_saga("payment"))]).await;
    for expected in ["order", "payment"] {
        let delivery = next(&ends).await;
        assert_eq!(delivery.envelope.headers.value("retry-saga"), Some(expected));
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn what_other_programs_see_of_order_is_the_partition_key_and_the_id() {
    let (queues, sqs, here, ends) = connected().await;
    drop(ends);
    let sent = keyed("order-7", "m");
    send(&sqs, &[to(&here, sent.clone()), to(&here, envelope("alone"))]).await;
    let client = queues.client();
    let url = queue_url(&client, &format!("{}.fifo", queue_of(&queues, &here))).await;
    use aws_sdk_sqs::types::MessageSystemAttributeName as System;
    for _ in 0..2 {
        let message = take(&client, &url).await.unwrap();
        let system = |name| message.attributes().unwrap()[&name].as_str();
        let (group, dedup) = (system(System::MessageGroupId), system(System::MessageDeduplicationId));
        if message.body() == Some("m") {
            assert_eq!(group, "order-7");
            assert!(dedup.starts_with(&format!("{}.", sent.message_id)), "{dedup}");
        } else {
            assert_eq!(group, dedup, "it is in order with none");
        }
    }
}

/// Of one key the next comes when the one before is settled, and other keys do not wait for it.
#[tokio::test]
async fn a_retry_holds_up_its_key_and_no_other() {
    let (_queues, sqs, here, ends) = connected().await;
    send(&sqs, &[to(&here, keyed("a", "a1")), to(&here, keyed("a", "a2")), to(&here, keyed("b", "b1"))]).await;
    let first = next(&ends).await;
    assert_eq!(body(&first), "a1");
    settle(&ends, &first, Settlement::Retry { delay: Duration::from_secs(1), counts: true }).await;
    let other = next(&ends).await;
    assert_eq!(body(&other), "b1");
    ack(&ends, &other).await;
    for expected in ["a1", "a2"] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
}

/// The service cannot hold one message of such a queue back, so it is given, and hidden until it is due.
#[tokio::test]
async fn what_is_not_due_is_put_off_holds_up_nothing_and_does_not_count() {
    let (_queues, sqs, here, ends) = connected().await;
    let due = Timestamp::now().after(Duration::from_millis(1700));
    let later = Envelope { due: Some(due), ..keyed("a", "later") };
    send(&sqs, &[to(&here, later), to(&here, keyed("a", "now"))]).await;
    let now = next(&ends).await;
    assert_eq!(body(&now), "now");
    ack(&ends, &now).await;
    let later = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!((body(&later).as_str(), later.attempts), ("later", 1));
    settle(&ends, &later, Settlement::Retry { delay: Duration::ZERO, counts: true }).await;
    let again = next(&ends).await;
    assert_eq!(again.attempts, 2);
    ack(&ends, &again).await;
}

/// An endpoint without order sends to one that keeps it.
#[tokio::test]
async fn who_sends_need_not_know_whether_order_is_kept() {
    let (queues, _sqs, here, ends) = connected().await;
    let plain = open(&queues).await;
    let bodies: Vec<String> = (0..25).map(|number| number.to_string()).collect();
    let sent: Vec<_> = bodies.iter().map(|body| to(&here, keyed("a key", body))).collect();
    for result in plain.dispatch(&sent).await {
        result.unwrap();
    }
    for expected in bodies {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), expected);
        ack(&ends, &delivery).await;
    }
}
