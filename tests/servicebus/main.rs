//! Queues over AMQP 1.0 as Azure Service Bus has them: the promises of every transport, as far as RabbitMQ's plugin can show them, or the
//! service itself; what is the service's own on a peer that stands in for it.

mod away;
mod cut;
mod endpoints;
mod foreign;
mod logged;
mod peer;
#[path = "../broker/proxy.rs"]
mod proxy;
mod rig;
mod server;
mod service;
mod sessions;
mod still;
mod tls;
mod volume;

use std::{sync::Arc, time::Duration};

use hapax::{
    ServiceBus,
    envelope::{Destination, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{DeadLetter, DeadLetters, DispatchError, Dispatcher, ErrorKind, Page, Settlement, Transport},
    time::Timestamp,
};
use rig::*;
use tokio::time::Instant;

mod conformance {
    mod unordered {
        hapax_core::transport_suite!(super::super::Opened, unclaimed: super::super::unclaimed());
    }

    mod dead_letters {
        hapax_core::dead_letters_suite!(super::super::Opened);
    }
}

#[tokio::test]
async fn an_event_comes_to_its_subscribers_alone() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let ends = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
    let other = queue.connect(&endpoint(), &[]).await.unwrap();
    let event = Outgoing { destination: Destination::Topic(topic), envelope: Arc::new(envelope("event")) };
    send(&queue, &[event]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "event");
    settle(&ends, &delivery, Settlement::Ack).await;
    let nothing = tokio::time::timeout(Duration::from_millis(300), other.receiver.receive(1)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

/// What is not there may come; what was sent beside it is sent. RabbitMQ's plugin takes what goes to a queue that is not there, and drops
/// it; an exchange that is not there it refuses, as the service refuses both. So there it is a topic that is missing.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_queue_fails_for_now_and_harms_no_other() {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = unique("nobody");
    let (bus, nowhere) = if is_azure() {
        (queue.bus.clone(), Destination::Endpoint(EndpointName::parse(name.as_str()).unwrap()))
    } else {
        let bus = options().addresses("/amq/queue/", "/exchange/").open(url()).await.unwrap();
        (bus, Destination::Topic(TypeName::parse(name.as_str()).unwrap()))
    };
    let lost = || Outgoing { destination: nowhere.clone(), envelope: Arc::new(envelope("lost")) };
    for round in 0..3 {
        let results = bus.dispatch(&[lost(), to(&here, envelope(&format!("found {round}")))]).await;
        assert!(matches!(&results[0], Err(DispatchError::Transient(_))), "{:?}", results[0]);
        assert!(results[1].is_ok(), "{:?}", results[1]);
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), format!("found {round}"));
        settle(&ends, &delivery, Settlement::Ack).await;
    }
    match &nowhere {
        Destination::Endpoint(endpoint) => queue.declare(endpoint, &[]).await,
        Destination::Topic(_) => make_exchange(&format!("hapax-test.topic.{name}")).await,
    }
    send(&bus, &[lost()]).await;
}

#[tokio::test]
async fn a_retry_with_a_delay_comes_again_after_it_and_not_before() {
    const DELAY: Duration = Duration::from_millis(1500);
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("again"))]).await;
    let begun = Instant::now();
    let delivery = next(&ends).await;
    settle(&ends, &delivery, Settlement::Retry { delay: DELAY, counts: true }).await;
    let again = next(&ends).await;
    assert!(begun.elapsed() >= DELAY, "after {:?}", begun.elapsed());
    assert_eq!(again.envelope, delivery.envelope);
    settle(&ends, &again, Settlement::Ack).await;
}

#[tokio::test]
async fn no_more_is_held_than_is_prefetched() {
    if is_azure() {
        return eprintln!("SKIPPED: the service locks what it hands out for longer than this looks");
    }
    let queue = open().await;
    let here = endpoint();
    queue.declare(&here, &[]).await;
    let few = options().prefetch(2).open(url()).await.unwrap();
    let ends = few.connect(&here, &[]).await.unwrap();
    let all: Vec<Outgoing> = (0..5).map(|number| to(&here, envelope(&number.to_string()))).collect();
    send(&queue, &all).await;
    let (first, _second) = (next(&ends).await, next(&ends).await);
    let nothing = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(1)).await;
    assert!(nothing.is_err(), "{nothing:?}");
    settle(&ends, &first, Settlement::Ack).await;
    next(&ends).await;
}

/// By another protocol, and another program.
#[tokio::test]
async fn what_another_program_sends_is_read_and_what_cannot_be_is_set_aside() {
    if is_azure() {
        return eprintln!("SKIPPED: the other program speaks AMQP 0-9-1, which the service does not");
    }
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = format!("hapax-test.queue.{here}");
    put(&name, None, "application/json", &[("color", "red")], b"nobody's").await;
    let application = [("hapax-type", "shop.added"), ("color", "red")];
    put(&name, Some("order-7"), "application/json", &application, b"{}").await;
    let delivery = next(&ends).await;
    assert_eq!(delivery.envelope.message_id.to_string(), "order-7");
    assert_eq!(delivery.envelope.headers.value("color"), Some("red"));
    settle(&ends, &delivery, Settlement::Ack).await;
    // It is no letter of the list, since it is no message; and it does not come again.
    let nothing = tokio::time::timeout(Duration::from_millis(500), ends.receiver.receive(1)).await;
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), []);
    let channel = lapin::Connection::connect(&url(), lapin::ConnectionProperties::default()).await.unwrap();
    let channel = channel.create_channel().await.unwrap();
    let letters = short(&format!("hapax-test.dead-letters.{here}"));
    let got = channel.basic_get(letters, lapin::options::BasicGetOptions::default()).await.unwrap();
    assert_eq!(got.expect("it is not set aside").delivery.data, b"nobody's");
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_what_to_do() {
    let failed = async |at: &str| {
        let error = ServiceBus::open(at).await.unwrap_err();
        (error.kind(), format!("{error:?}"))
    };
    let expect = |(kind, text): (ErrorKind, String), expected: ErrorKind, says: &str| {
        assert_eq!(kind, expected, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("secret"), "it tells the key: {text}");
    };
    expect(failed("secret").await, ErrorKind::Misconfigured, "Endpoint=sb://");
    expect(failed("amqp://u:secret@127.0.0.1:1").await, ErrorKind::Unavailable, "127.0.0.1:1");
    let ordered = ServiceBus::options().ordered_keys(true).open("amqp://u:secret@127.0.0.1:1").await.unwrap_err();
    expect((ordered.kind(), format!("{ordered:?}")), ErrorKind::Misconfigured, "takes sessions");
    // In a build of all features there is TLS, and nobody there who speaks it.
    let (_, text) = failed("amqps://u:secret@127.0.0.1:1").await;
    assert!(!text.contains("secret"), "it tells the key: {text}");
    if !is_azure() {
        let stranger = url().replace("guest:guest", "guest:secret");
        expect(failed(&stranger).await, ErrorKind::Denied, "look at name and key");
    }
}

#[tokio::test]
async fn an_endpoint_without_a_queue_does_not_connect() {
    let (bus, here) = (options().open(url()).await.unwrap(), endpoint());
    let error = bus.connect(&here, &[]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::Unavailable), "{error:?}");
    assert!(error.to_string().contains(&queue_of(&here)), "it does not say which: {error:?}");
    if is_azure() {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("az servicebus queue create"), "{error:?}");
    }
    // And one that has one does, afterwards.
    open().await.connect(&endpoint(), &[]).await.unwrap();
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_anything_is_saved() {
    let bus = options().message_bytes_max(10_000).open(url()).await.unwrap();
    let here = endpoint();
    let refused = bus.check(&to(&here, envelope(&"x".repeat(10_000)))).unwrap_err();
    assert!(refused.0.contains("these queues take 10000"), "{refused}");
    let mut headers = envelope("headers");
    for number in 0..16 {
        headers.headers.set(&format!("header-{number}"), &"x".repeat(4000)).unwrap();
    }
    let bus = options().open(url()).await.unwrap();
    assert!(bus.check(&to(&here, headers)).unwrap_err().0.contains("of properties"));
    assert!(bus.check(&to(&here, envelope(&"x".repeat(190 << 10)))).is_ok());
}

/// Those that were asked for behind the last one that was wanted are given back too.
#[tokio::test]
async fn letters_that_were_looked_at_are_there_for_whoever_looks_next() {
    const LETTERS: usize = 130;
    let (queue, here) = (open().await, endpoint());
    for number in 0..LETTERS {
        let letter = DeadLetter {
            envelope: Arc::new(envelope(&number.to_string())),
            endpoint: here.clone(),
            saga: None,
            destination: None,
            reason: "it is of no use".to_owned(),
            attempts: 1,
            time: Timestamp::now(),
        };
        queue.add(&letter).await.unwrap();
    }
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap().len(), 1);
    let all = queue.list(&here, &Page::first(2 * LETTERS)).await.unwrap();
    assert_eq!(all.len(), LETTERS);
    assert_eq!(queue.discard(&all).await.unwrap(), LETTERS);
    assert_eq!(queue.list(&here, &Page::first(1)).await.unwrap(), []);
}
