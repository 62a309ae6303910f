//! Queues on RabbitMQ: the promises of every transport, and what is RabbitMQ's own.

mod away;
mod consumer_timeout;
mod cut;
mod endpoints;
mod events;
mod foreign;
mod logged;
#[path = "../broker/proxy.rs"]
mod proxy;
mod refused;
mod rig;
mod server;
mod still;
mod tls;
mod together;
mod too_large;
mod tools;
mod volume;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use hapax::{
    RabbitMq,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{DeadLetter, DeadLetters, Dispatcher, ErrorKind, Page, Settlement, Transport},
    time::Timestamp,
};
use rig::*;

mod conformance {
    use super::Queues;

    mod unordered {
        hapax_core::transport_suite!(
            super::Queues { ordered: false },
            unclaimed: [
                "in_order", "given_in_order", "late_settles_are_refused",
                "behind_all", "gone_for_good", "in_the_end", "any_process",
            ]
        );
    }

    mod in_order {
        hapax_core::transport_suite!(
            super::Queues { ordered: true },
            unclaimed: ["late_settles_are_refused", "behind_all", "gone_for_good", "in_the_end", "any_process"]
        );
    }

    mod survey {
        hapax_core::queue_survey_suite!(super::Queues { ordered: false });
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::Queues { ordered: false });
    }
}

/// The driver gives what the server returns to whichever confirmation comes next: with many under way, to another's.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_nowhere_is_told_of_itself_and_of_no_other() {
    const CALLS: usize = 200;
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let nowhere = EndpointName::parse(unique("nobody")).unwrap();
    let calls = (0..CALLS).map(|call| {
        let (queue, here, nowhere) = (&queue, &here, &nowhere);
        async move {
            let lost = to(nowhere, envelope("lost"));
            let found = to(here, envelope(&format!("found {call}")));
            // Beside others in one call, in either order, and alone.
            let outgoing = match call % 3 {
                0 => vec![lost, found],
                1 => vec![found, lost],
                _ if call % 2 == 0 => vec![lost],
                _ => vec![found],
            };
            let results = queue.dispatch(&outgoing).await;
            for (outgoing, result) in outgoing.iter().zip(results) {
                match &outgoing.destination {
                    Destination::Endpoint(endpoint) if endpoint == nowhere => {
                        let why = result.expect_err("it went nowhere, and counts as sent");
                        let why = format!("{:?}", std::error::Error::source(&why).unwrap());
                        assert!(why.contains("has no queue for"), "{why}");
                    }
                    _ => result.unwrap(),
                }
            }
            outgoing.iter().filter(|outgoing| outgoing.destination == Destination::Endpoint(here.clone())).count()
        }
    });
    let sent: usize = join_all(calls).await.into_iter().sum();
    for _ in 0..sent {
        ack(&ends, &next(&ends).await).await;
    }
}

#[tokio::test]
async fn a_delayed_event_comes_to_its_subscribers_and_one_without_any_harms_nobody() {
    let queue = open().await;
    let topic = hapax::ids::TypeName::parse(unique("shop.added")).unwrap();
    let ends = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
    let due = Timestamp::now().after(Duration::from_millis(700));
    let event = |topic: &hapax::ids::TypeName| Outgoing {
        destination: Destination::Topic(topic.clone()),
        envelope: Arc::new(Envelope { due: Some(due), ..envelope("event") }),
    };
    let unheard = hapax::ids::TypeName::parse(unique("shop.unheard")).unwrap();
    send(&queue, &[event(&unheard), event(&topic)]).await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn what_is_no_longer_subscribed_does_not_come() {
    let queue = open().await;
    let (here, topic) = (endpoint(), hapax::ids::TypeName::parse(unique("shop.added")).unwrap());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let event =
        |body: &str| Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope(body)) };
    queue.unsubscribe(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("unsubscribed")]).await;
    queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    send(&queue, &[event("subscribed again")]).await;
    assert_eq!(body(&next(&ends).await), "subscribed again");
}

/// A day is made of many powers of two; it ends late by seconds, not by hours, and does not hold up a shorter one.
#[tokio::test]
async fn a_long_delay_does_not_hold_up_a_short_one() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let after = |millis: u64| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let long = Envelope { due: after(86_400_000 + 513), ..envelope("long") };
    let short = Envelope { due: after(513), ..envelope("short") };
    send(&queue, &[to(&here, long), to(&here, short)]).await;
    assert_eq!(body(&next(&ends).await), "short");
}

#[tokio::test]
async fn what_is_not_due_is_counted_apart_from_what_waits() {
    let prefix = format!("due-{}", MessageId::random());
    let queue = options().prefix(&prefix).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    drop(ends);
    let after = |millis: u64| Some(Timestamp::now().after(Duration::from_millis(millis)));
    let later = [3_600_000, 3_600_001].map(|millis| to(&here, Envelope { due: after(millis), ..envelope("later") }));
    send(&queue, &later).await;
    send(&queue, &[to(&here, envelope("now"))]).await;
    assert_eq!((queue.delayed().await.unwrap(), queue.backlog(&here).await.unwrap()), (2, 1));
    queue.remove(&[here]).await.unwrap();
}

#[tokio::test]
async fn a_retry_that_does_not_count_is_not_counted_and_one_that_waits_is() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("again"))]).await;
    let millis = Duration::from_millis;
    let retries = [(0, true, 1), (0, false, 2), (30, true, 2), (30, false, 3), (0, true, 3), (0, true, 4)];
    for (delay, counts, attempts) in retries {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, attempts);
        let settlement = Settlement::Retry { delay: millis(delay), counts };
        ends.receiver.settle(&delivery.receipt, settlement).await.unwrap();
    }
    assert_eq!(next(&ends).await.attempts, 5);
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
        reason: "it is\nno \"use\"".into(),
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
    let failed = |opened: Result<RabbitMq, hapax::ports::TransportError>| {
        let error = opened.unwrap_err();
        (error.kind(), format!("{error:?}"))
    };
    let expect = |(kind, text): (ErrorKind, String), expected: ErrorKind, says: &str| {
        assert_eq!(kind, expected, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("secret"), "it tells the password: {text}");
    };
    expect(failed(RabbitMq::open("http://secret@x").await), ErrorKind::Misconfigured, "amqp://USER:PASSWORD");
    // In a build of all features there is TLS, and nobody there who speaks it.
    let (kind, text) = failed(RabbitMq::open("amqps://u:secret@127.0.0.1:1").await);
    assert!(text.contains("`tls-ring`") || kind == ErrorKind::Unavailable, "{text}");
    assert!(!text.contains("secret"), "it tells the password: {text}");
    let nobody = "amqp://u:secret@127.0.0.1:1";
    expect(failed(RabbitMq::open(nobody).await), ErrorKind::Unavailable, "127.0.0.1:1");
    let stranger = url().replace("guest:guest", "guest:secret");
    expect(failed(RabbitMq::open(stranger).await), ErrorKind::Denied, "check user, password");
    let elsewhere = format!("{}/{}", url(), unique("no-such-host"));
    expect(failed(RabbitMq::open(elsewhere).await), ErrorKind::Denied, "virtual host");
    let prefix = RabbitMq::options().prefix("a b").open(url()).await;
    expect(failed(prefix), ErrorKind::Misconfigured, "is no prefix");
    let undeclared = RabbitMq::options().prefix(&unique("")[..30]).declare(false).open(url()).await;
    expect(failed(undeclared), ErrorKind::Misconfigured, "RabbitMqOptions::declare");
}

#[tokio::test]
async fn a_queue_that_was_declared_otherwise_is_an_error_that_says_so() {
    let here = endpoint();
    open().await.connect(&here, &[]).await.unwrap();
    let ordered = options().ordered_keys(true).open(url()).await.unwrap();
    let error = ordered.connect(&here, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("declared in another way"), "{error:?}");
    // It was the declaration that failed, not the connection.
    ordered.connect(&endpoint(), &[]).await.unwrap();
}

#[tokio::test]
async fn headers_that_do_not_fit_into_a_frame_are_refused_before_anything_is_saved() {
    let queue = open().await;
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    let mut large = envelope("large");
    for number in 0..40 {
        large.headers.set(&format!("header-{number}"), &"x".repeat(4000)).unwrap();
    }
    let refused = queue.check(&to(&here, large.clone())).unwrap_err();
    assert!(refused.0.contains("in one frame"), "{refused}");
    let mut fits = envelope("fits");
    for number in 0..24 {
        fits.headers.set(&format!("header-{number}"), &"x".repeat(4000)).unwrap();
    }
    assert!(queue.check(&to(&here, fits.clone())).is_ok());
    send(&queue, &[to(&here, fits)]).await;
}
