//! Producers and consumers that are not hapax, on the driver alone.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream::consumer::pull};
use futures_util::StreamExt;
use hapax::{
    envelope::{ContentType, Destination, Envelope, Outgoing, cloudevents},
    ids::{CorrelationId, EndpointName, TypeName},
    ports::{DeadLetters, Page, Settled, Settlement, Transport},
    time::Timestamp,
    transports::nats::WrittenAs,
};

use super::rig::*;

fn subject_of(endpoint: &EndpointName) -> String {
    format!("{PREFIX}.queue.{endpoint}")
}

fn stream_of(endpoint: &EndpointName) -> String {
    format!("{PREFIX}-queue-{endpoint}")
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    all.iter().for_each(|(name, value)| headers.append(*name, *value));
    headers
}

/// As any program would, to the queue by its subject.
async fn publish(subject: String, all: &[(&str, &str)], body: &'static str) {
    let client = client().await;
    client.publish_with_headers(subject, headers(all), body.into()).await.unwrap().await.unwrap();
}

#[tokio::test]
async fn another_producer_needs_an_id_and_a_type_and_nothing_else() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let said = [
        ("Nats-Msg-Id", "order 7"),
        ("hapax-type", "shop.added"),
        ("Content-Type", "application/json"),
        ("hapax-correlation-id", "process%201"),
        ("Shop", "corner"),
    ];
    publish(subject_of(&here), &said, "{}").await;
    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("order 7", "shop.added"));
    assert_eq!((&envelope.content_type, &envelope.body[..]), (&ContentType::JSON, &b"{}"[..]));
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "process 1");
    assert_eq!(envelope.headers.iter().collect::<Vec<_>>(), [("shop", "corner")]);
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn another_producer_publishes_a_type_on_its_subject() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.told")).unwrap();
    let ends = queue.connect(&endpoint(), std::slice::from_ref(&topic)).await.unwrap();
    publish(format!("{PREFIX}.topic.-.{topic}"), &[("Nats-Msg-Id", &unique("event"))], "{}").await;
    let delivery = next(&ends).await;
    assert_eq!(delivery.envelope.message_type, topic);
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn events_of_another_producer_are_read_in_both_modes() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let event = [
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/shop"),
        ("ce-type", "shop.added"),
        ("content-type", "application/json"),
    ];
    publish(subject_of(&here), &event, r#"{"n":1}"#).await;
    let structured = r#"{"specversion":"1.0","id":"8","source":"/shop","type":"shop.added","datacontenttype":"application/json","data":{"n":2}}"#;
    publish(subject_of(&here), &[("content-type", "application/cloudevents+json")], structured).await;
    for (number, id) in [(1, "7"), (2, "8")] {
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), format!("{{\"n\":{number}}}"));
        assert_eq!(delivery.envelope.message_type.as_str(), "shop.added");
        assert!(delivery.envelope.message_id.to_string().contains(id), "{}", delivery.envelope.message_id);
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn another_consumer_gets_an_event_where_that_was_asked_for() {
    let source = cloudevents::Source::parse("/orders").unwrap();
    let queue = options().written_as(WrittenAs::CloudEvents(source)).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent = Envelope { occurred_at: Some(Timestamp::from_millis(1_700_000_000_999)), ..envelope("{}") };
    send(&queue, &[to(&here, sent.clone())]).await;
    let stream = client().await.get_stream(stream_of(&here)).await.unwrap();
    let stored = stream.get_raw_message(1).await.unwrap();
    let header = |name: &str| stored.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(header("ce-type").as_deref(), Some("shop.added"));
    assert_eq!(header("ce-source").as_deref(), Some("/orders"));
    assert_eq!(header("ce-id"), Some(sent.message_id.to_string()));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("hapax-message-id"), None);
    let delivery = next(&ends).await;
    assert_eq!(*delivery.envelope, sent);
    ack(&ends, &delivery).await;
}

/// As the chapter says: a consumer of one's own on the stream of what is published.
#[tokio::test]
async fn another_consumer_subscribes_to_a_type_and_finds_the_id_in_its_field() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.told")).unwrap();
    let stream = client().await.get_stream(format!("{PREFIX}-topics")).await.unwrap();
    let config = pull::Config { filter_subject: format!("{PREFIX}.topic.*.{topic}"), ..Default::default() };
    let consumer = stream.create_consumer(config).await.unwrap();
    let sent = Envelope {
        correlation_id: Some(CorrelationId::parse("process 1").unwrap()),
        message_type: topic.clone(),
        ..envelope("an event")
    };
    send(&queue, &[Outgoing { destination: Destination::Topic(topic), envelope: sent.clone().into() }]).await;
    let mut messages = consumer.messages().await.unwrap();
    let message = tokio::time::timeout(PATIENCE, messages.next()).await.unwrap().unwrap().unwrap();
    let header = |name: &str| message.headers.as_ref().unwrap().get(name).unwrap().as_str().to_owned();
    assert_eq!(header("Nats-Msg-Id"), sent.message_id.to_string());
    assert_eq!(header("hapax-correlation-id"), "process%201");
    assert_eq!(&message.payload[..], b"an event");
    message.double_ack().await.unwrap();
}

/// Another program, or another clock: the endpoint puts it off itself.
#[tokio::test]
async fn a_message_that_comes_before_it_is_due_is_put_off() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let due = Timestamp::now().after(Duration::from_millis(700));
    let text = due.to_string();
    let said = [("hapax-message-id", "m"), ("hapax-type", "shop.added"), ("hapax-due", text.as_str())];
    publish(subject_of(&here), &said, "{}").await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!((delivery.envelope.due, delivery.attempts), (Some(due), 1));
    ack(&ends, &delivery).await;
}

/// By an operator, or with a node that is gone for good.
#[tokio::test]
async fn a_queue_that_is_deleted_under_its_receiver_is_declared_anew() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let client = client().await;
    for round in 0..3 {
        let text = format!("round {round}");
        send(&queue, &[to(&here, envelope(&text))]).await;
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), text);
        let waiting = ends.receiver.clone();
        let waiting = tokio::spawn(async move { waiting.receive(1).await });
        tokio::time::sleep(Duration::from_millis(100)).await; // It waits by then, or is refused at once.
        client.delete_stream(stream_of(&here)).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, waiting).await.expect("it waits for ever").unwrap();
        assert!(ended.is_err(), "{ended:?}");
        let late = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        assert_eq!(late, Settled::LeaseLost);
        // The next call makes the queue again.
        drop(tokio::time::timeout(Duration::from_secs(1), ends.receiver.receive(1)).await);
    }
}

/// Nobody could tell a copy of it from another message; it is kept, and what comes after it is given.
#[tokio::test]
async fn a_message_without_an_id_or_a_type_is_set_aside_with_the_reason() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    publish(subject_of(&here), &[("hapax-type", "shop.added"), ("Shop", "corner")], "nameless").await;
    publish(subject_of(&here), &[("Nats-Msg-Id", "m"), ("hapax-type", "shop.added")], "good").await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "good");
    ack(&ends, &delivery).await;
    let letters = client().await.get_stream(format!("{PREFIX}-dead-letters")).await.unwrap();
    let looking = async {
        loop {
            let subject = format!("{PREFIX}.dead-letters.{here}.*");
            match letters.get_first_raw_message_by_subject(subject, 1).await {
                Ok(letter) => return letter,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let letter = tokio::time::timeout(PATIENCE, looking).await.expect("it is not among the letters");
    let header = |name: &str| letter.headers.get(name).unwrap().as_str().to_owned();
    assert_eq!((&letter.payload[..], header("Shop").as_str()), (&b"nameless"[..], "corner"));
    assert!(header("x-hapax-reason").contains("hapax-message-id"), "{}", header("x-hapax-reason"));
    // What is no message is not in the list, and does not keep the list from being read.
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), []);
}
