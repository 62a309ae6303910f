//! Queues on NATS JetStream: the promises of every transport, and what is JetStream's own.

mod away;
mod credentials;
mod cut;
mod declared;
mod endpoints;
mod evidence;
mod foreign;
mod refused;
mod repeats;
mod rig;
mod server;
mod tls;
mod tools;
mod volume;

use std::{sync::Arc, time::Duration};

use hapax::{
    Endpoint, Nats, Sender, Sqlite,
    envelope::{Destination, Envelope, Outgoing},
    ids::{MessageId, PartitionKey, TypeName},
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, Settled, Settlement, Transport},
    time::Timestamp,
};
use hapax_tests::{LogLines, Scratch, is_discreet};
use rig::*;

mod conformance {
    use super::Queues;

    mod unordered {
        hapax_core::transport_suite!(super::Queues { ordered: false }, unclaimed: ["in_order", "given_in_order"]);
    }

    mod in_order {
        hapax_core::transport_suite!(super::Queues { ordered: true }, unclaimed: []);
    }

    mod survey {
        hapax_core::queue_survey_suite!(super::Queues { ordered: false });
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues { ordered: false });
    }
}

#[tokio::test]
async fn a_delayed_event_comes_to_its_subscribers_and_one_without_any_harms_nobody() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let ends = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
    let due = Timestamp::now().after(Duration::from_millis(700));
    let event = |topic: &TypeName| Outgoing {
        destination: Destination::Topic(topic.clone()),
        envelope: Arc::new(Envelope { due: Some(due), ..envelope("event") }),
    };
    let unheard = TypeName::parse(unique("shop.unheard")).unwrap();
    send(&queue, &[event(&unheard), event(&topic)]).await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!(delivery.attempts, 1, "what was put off until then was given to nobody");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn what_is_no_longer_subscribed_does_not_come() {
    let queue = open().await;
    let (here, topic) = (endpoint(), TypeName::parse(unique("shop.added")).unwrap());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let event =
        |body: &str| Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope(body)) };
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("unsubscribed")]).await;
    queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("subscribed again")]).await;
    assert_eq!(body(&next(&ends).await), "subscribed again");
}

/// Together they are more than the driver lets be unanswered unless told otherwise, and none of the calls is.
#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_a_time_with_many_messages_each_do_not_wait_for_each_other() {
    const CALLS: usize = 32;
    const MESSAGES: usize = 1000;
    let (queue, here) = (open().await, endpoint());
    queue.connect(&here, &[]).await.unwrap();
    let call = || {
        let queue = queue.clone();
        let messages: Vec<Outgoing> = (0..MESSAGES).map(|_| to(&here, envelope("one of many"))).collect();
        tokio::spawn(async move { send(&queue, &messages).await })
    };
    let calls: Vec<_> = (0..CALLS).map(|_| call()).collect();
    for result in tokio::time::timeout(PATIENCE, futures_util::future::join_all(calls)).await.unwrap() {
        result.unwrap();
    }
    assert_eq!(queue.backlog(&here).await.unwrap(), (CALLS * MESSAGES) as u64);
}

#[tokio::test]
async fn a_long_delay_does_not_hold_up_a_short_one_nor_what_has_an_order() {
    for ordered in [false, true] {
        let queue = options().ordered_keys(ordered).open(url()).await.unwrap();
        let here = endpoint();
        let ends = queue.connect(&here, &[]).await.unwrap();
        let key = Some(PartitionKey::parse("one").unwrap());
        let after = |millis: u64| Some(Timestamp::now().after(Duration::from_millis(millis)));
        let long = Envelope { due: after(86_400_000), partition_key: key.clone(), ..envelope("long") };
        let short = Envelope { due: after(513), partition_key: key.clone(), ..envelope("short") };
        let now = Envelope { partition_key: key, ..envelope("now") };
        send(&queue, &[to(&here, long), to(&here, short), to(&here, now)]).await;
        for expected in ["now", "short"] {
            let delivery = next(&ends).await;
            assert_eq!(body(&delivery), expected);
            ack(&ends, &delivery).await;
        }
        assert_eq!((queue.backlog(&here).await.unwrap(), queue.unsettled(&here).await.unwrap()), (0, 1));
    }
}

#[tokio::test]
async fn of_one_key_the_next_message_is_given_to_nobody_before_the_first_is_settled() {
    let queue = options().ordered_keys(true).lease(PATIENCE).open(url()).await.unwrap();
    let here = endpoint();
    let (ends, other) = (queue.connect(&here, &[]).await.unwrap(), queue.connect(&here, &[]).await.unwrap());
    let keyed = |key: &str, body: &str| {
        to(&here, Envelope { partition_key: Some(PartitionKey::parse(key.to_owned()).unwrap()), ..envelope(body) })
    };
    // Two keys of two slots, and what has none.
    send(&queue, &[keyed("a", "a1"), keyed("a", "a2"), keyed("order-1", "b1"), to(&here, envelope("c"))]).await;
    let mut held = [next(&ends).await, next(&ends).await, next(&ends).await];
    held.sort_by_key(body);
    assert_eq!(held.each_ref().map(body), ["a1", "b1", "c"]);
    expect_none(&ends, Duration::from_millis(200)).await;
    expect_none(&other, Duration::from_millis(200)).await;
    drop(other);
    // It keeps its place when it is tried again.
    let again = Settlement::Retry { delay: Duration::from_millis(100), counts: false };
    ends.receiver.settle(&held[0].receipt, again).await.unwrap();
    let first = next(&ends).await;
    assert_eq!((body(&first).as_str(), first.attempts), ("a1", 1));
    ack(&ends, &first).await;
    assert_eq!(body(&next(&ends).await), "a2");
}

#[tokio::test]
async fn a_retry_that_does_not_count_is_not_counted_and_one_that_waits_is() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("again"))]).await;
    let millis = Duration::from_millis;
    let retries =
        [(0, true, 1), (0, false, 2), (30, true, 2), (30, false, 3), (0, false, 3), (0, true, 3), (0, true, 4)];
    for (delay, counts, attempts) in retries {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, attempts);
        let settlement = Settlement::Retry { delay: millis(delay), counts };
        ends.receiver.settle(&delivery.receipt, settlement).await.unwrap();
    }
    // Another process knows it too.
    drop(ends);
    let ends = open().await.connect(&here, &[]).await.unwrap();
    assert_eq!(next(&ends).await.attempts, 5);
}

/// The endpoint extends leases; what it does not extend goes to another, and its own late settlement changes nothing. The server
/// itself would take it.
#[tokio::test]
async fn what_is_beyond_its_lease_goes_to_another_and_cannot_be_settled_by_the_first() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("slow"))]).await;
    let slow = next(&ends).await;
    for _ in 0..4 {
        tokio::time::sleep(LEASE / 2).await;
        ends.receiver.extend(std::slice::from_ref(&slow.receipt)).await.unwrap();
    }
    let other = open().await.connect(&here, &[]).await.unwrap();
    let again = next(&other).await;
    assert_eq!((body(&again).as_str(), again.attempts), ("slow", 2));
    for settlement in [Settlement::Ack, Settlement::DeadLetter { reason: "too late".into() }] {
        assert_eq!(ends.receiver.settle(&slow.receipt, settlement).await.unwrap(), Settled::LeaseLost);
    }
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap(), []);
    assert_eq!(queue.unsettled(&here).await.unwrap(), 1);
    ack(&other, &again).await;
    assert_eq!(queue.unsettled(&here).await.unwrap(), 0);
}

#[tokio::test]
async fn what_a_receiver_leaves_behind_goes_to_another_at_once() {
    let queue = options().lease(Duration::from_secs(600)).open(url()).await.unwrap();
    let here = endpoint();
    let first = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("left")), to(&here, envelope("taken"))]).await;
    // One is given, the other has been asked for with it and waits.
    let mut given = first.receiver.receive(2).await.unwrap();
    let taken = given.pop().unwrap();
    ack(&first, &taken).await;
    drop(first);
    let second = queue.connect(&here, &[]).await.unwrap();
    assert_ne!(body(&next(&second).await), body(&taken));
}

#[tokio::test]
async fn a_letter_that_is_added_twice_is_listed_once_and_found_by_its_message() {
    let queue = open().await;
    let here = endpoint();
    let letter = |body: &str| DeadLetter {
        envelope: Arc::new(envelope(body)),
        endpoint: here.clone(),
        saga: Some("order".parse().unwrap()),
        destination: Some(Destination::parse("topic:shop.added").unwrap()),
        reason: "it is\nno \"use\" at 100 %".into(),
        attempts: 7,
        time: Timestamp::from_millis(1_700_000_000_123),
    };
    let (first, second) = (letter("first"), letter("second"));
    for letter in [&first, &second, &first] {
        queue.add(letter).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), [first.clone(), second.clone()]);
    }
    let page = |skip, id: Option<&MessageId>| Page { skip, limit: 1, message_id: id.cloned() };
    assert_eq!(queue.list(&here, &page(1, None)).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(queue.list(&here, &page(0, Some(&second.envelope.message_id))).await.unwrap(), [second]);
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do() {
    let failed = |opened: Result<Nats, hapax::ports::TransportError>| {
        let error = opened.unwrap_err();
        (error.kind(), format!("{error:?}"))
    };
    let expect = |(kind, text): (ErrorKind, String), expected: ErrorKind, says: &str| {
        assert_eq!(kind, expected, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("secret"), "it tells the password: {text}");
    };
    expect(failed(Nats::open("http://secret@x").await), ErrorKind::Misconfigured, "nats://USER:PASSWORD");
    expect(failed(Nats::open("nats://u:secret@[x").await), ErrorKind::Misconfigured, "nats://USER:PASSWORD");
    // In a build of all features there is TLS, and nobody there who speaks it.
    let (kind, text) = failed(Nats::open("tls://u:secret@127.0.0.1:1").await);
    assert!(text.contains("`tls-ring`") || kind == ErrorKind::Unavailable, "{text}");
    assert!(!text.contains("secret"), "it tells the password: {text}");
    let nobody = "nats://u:secret@127.0.0.1:1";
    expect(failed(Nats::open(nobody).await), ErrorKind::Unavailable, "127.0.0.1:1");
    expect(failed(options().prefix("a b").open(url()).await), ErrorKind::Misconfigured, "is no prefix");
    let credentials = options().credentials("secret").open(url()).await;
    expect(failed(credentials), ErrorKind::Misconfigured, ".creds");
    let undeclared = options().prefix(&unique("none")[..30]).declare(false).open(url()).await;
    expect(failed(undeclared), ErrorKind::Misconfigured, "NatsOptions::declare");
}

/// Without replicas it is on the disk only after the server's own time, which the server does not tell: so hapax does, each time.
#[tokio::test]
async fn what_a_confirmation_is_worth_is_said_when_it_is_opened() {
    let logged = LogLines::here();
    options().sync_interval(Duration::from_secs(77)).open(url()).await.unwrap();
    let said = logged.with("sync_interval=77s");
    let [said] = &said[..] else { panic!("it is said {} times: {said:?}", said.len()) };
    for what in ["INFO", "replicas=", "server=", "a machine that loses power may lose what was confirmed"] {
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[tokio::test]
async fn a_queue_that_was_declared_otherwise_is_an_error_that_says_so() {
    for is_ordered in [false, true] {
        let here = endpoint();
        let first = options().ordered_keys(is_ordered).open(url()).await.unwrap();
        first.connect(&here, &[]).await.unwrap();
        first.connect(&here, &[]).await.unwrap();
        let other = options().ordered_keys(!is_ordered).open(url()).await.unwrap();
        let error = other.connect(&here, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("declared in another way"), "{error:?}");
        other.connect(&endpoint(), &[]).await.unwrap();
    }
}

#[tokio::test]
async fn all_that_was_declared_is_removed() {
    let prefix = unique("gone")[..30].to_owned();
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    let here = endpoint();
    queue.connect(&here, &[message_type()]).await.unwrap();
    for _ in 0..2 {
        queue.remove(std::slice::from_ref(&here)).await.unwrap();
    }
    let names: Vec<String> = futures_util::TryStreamExt::try_collect(client().await.stream_names()).await.unwrap();
    assert!(!names.iter().any(|name| name.starts_with(&prefix)), "{names:?}");
}

#[tokio::test]
async fn nobody_logs_what_is_in_a_message() {
    let logged = LogLines::everywhere();
    let (queue, here, scratch) = (open().await, endpoint(), Scratch::new("discreet"));
    let store = Sqlite::open(scratch.file("vault.db")).await.unwrap();
    let endpoint = Endpoint::builder(here.as_str()).entities(store.clone()).dedup(store).transport(queue.clone());
    is_discreet(
        &logged,
        (&here, endpoint),
        Sender::new(Arc::new(queue.clone())),
        &queue,
        Some("DEBUG async_nats::jetstream::context "),
    )
    .await;
}
