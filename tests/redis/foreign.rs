//! Producers and consumers that are not hapax, on the driver alone.

use std::time::Duration;

use hapax::{
    RedisStreams,
    envelope::{ContentType, Destination, Envelope, Outgoing, cloudevents::Source},
    ids::{EndpointName, TypeName},
    ports::{Connected, DeadLetters, Page, Settled, Settlement, Transport},
    time::Timestamp,
    transports::redis::WrittenAs,
};
use redis::aio::MultiplexedConnection;

use super::rig::*;

/// As any program would, to the queue by its name.
async fn add(connection: &mut MultiplexedConnection, key: &str, fields: &[(&str, &str)]) -> String {
    let mut add = redis::cmd("XADD");
    add.arg(key).arg("*");
    for (name, value) in fields {
        add.arg(name).arg(value);
    }
    add.query_async(connection).await.unwrap()
}

async fn connected() -> (RedisStreams, EndpointName, Connected, MultiplexedConnection) {
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    (queue, here, ends, plain(&url()).await)
}

#[tokio::test]
async fn another_producer_needs_an_id_and_a_type_and_nothing_else() {
    let (_queue, here, ends, mut connection) = connected().await;
    let fields = [
        ("hapax-message-id", "order 7"),
        ("hapax-type", "shop.added"),
        ("Content-Type", "application/json"),
        ("hapax-correlation-id", "process 1"),
        ("Shop", "corner"),
        ("body", "{}"),
        ("count", "7"),
    ];
    add(&mut connection, &queue_of(&here), &fields).await;
    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!(envelope.message_id.to_string(), "order 7");
    assert_eq!(envelope.message_type.as_str(), "shop.added");
    assert_eq!(envelope.content_type, ContentType::JSON);
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "process 1");
    assert_eq!((envelope.headers.value("shop"), envelope.headers.value("count")), (Some("corner"), Some("7")));
    assert_eq!(&envelope.body[..], b"{}");
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn another_producer_sends_cloud_events_in_both_modes() {
    let (_queue, here, ends, mut connection) = connected().await;
    let json = r#"{"specversion":"1.0","id":"7","source":"/x","type":"shop.added","subject":"tea","data":{"n":7}}"#;
    let structured = [("content-type", "application/cloudevents+json"), ("body", json)];
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/x"),
        ("ce-type", "shop.added"),
        ("ce-subject", "tea"),
        ("content-type", "application/json"),
        ("body", "{\"n\":7}"),
    ];
    for fields in [&structured[..], &binary] {
        add(&mut connection, &queue_of(&here), fields).await;
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), ("/x 7", "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, "{\"n\":7}"));
        assert_eq!(envelope.headers.value("subject"), Some("tea"));
        ack(&ends, &delivery).await;
    }
}

#[tokio::test]
async fn another_consumer_finds_what_was_sent_in_fields_as_it_was_asked_for() {
    let here = endpoint();
    open().await.connect(&here, &[]).await.unwrap();
    let mut connection = plain(&url()).await;
    let source = Source::parse("/shop").unwrap();
    for written_as in
        [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
    {
        let queue = options().written_as(written_as.clone()).open(url()).await.unwrap();
        let sent = envelope("{\"n\":7}");
        send(&queue, &[to(&here, sent.clone())]).await;
        // By the group's own name, as any consumer would.
        let read = format!("XREADGROUP GROUP hapax another STREAMS {} >", queue_of(&here));
        type Read = Vec<(String, Vec<(String, Vec<(String, String)>)>)>;
        let mut read: Read = ask(&mut connection, &read).await;
        let (id, fields) = read.remove(0).1.remove(0);
        let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let message_id = sent.message_id.to_string();
        match written_as {
            WrittenAs::Plain => {
                assert_eq!(field("hapax-message-id"), Some(message_id.as_str()));
                assert_eq!((field("hapax-type"), field("body")), (Some("shop.added"), Some("{\"n\":7}")));
            }
            WrittenAs::CloudEvents(_) => {
                assert_eq!((field("ce-id"), field("ce-source")), (Some(message_id.as_str()), Some("/shop")));
                assert_eq!((field("ce-type"), field("body")), (Some("shop.added"), Some("{\"n\":7}")));
            }
            _ => {
                let event: serde_json::Value = serde_json::from_str(field("body").unwrap()).unwrap();
                assert_eq!((event["id"].as_str(), event["data"]["n"].as_u64()), (Some(message_id.as_str()), Some(7)));
            }
        }
        assert_eq!(ask::<u64>(&mut connection, &format!("XACK {} hapax {id}", queue_of(&here))).await, 1);
    }
}

/// Consumers of the group that only acknowledge, as most do.
#[tokio::test]
async fn what_another_consumer_leaves_comes_here_and_what_it_has_acknowledged_is_removed() {
    let (queue, here, ends, mut connection) = connected().await;
    let key = queue_of(&here);
    let bodies = ["done", "left", "done too", "not given"];
    send(&queue, &bodies.map(|body| to(&here, envelope(body)))).await;
    let read = format!("XREADGROUP GROUP hapax another COUNT 3 STREAMS {key} >");
    type Read = Vec<(String, Vec<(String, Vec<(String, String)>)>)>;
    let read: Read = ask(&mut connection, &read).await;
    let ids: Vec<&String> = read[0].1.iter().map(|(id, _)| id).collect();
    ask::<u64>(&mut connection, &format!("XACK {key} hapax {} {}", ids[0], ids[2])).await;
    // It dies.
    let mut came = Vec::new();
    while came.len() < 2 {
        let delivery = next(&ends).await;
        came.push((body(&delivery), delivery.attempts));
        // The first look for what may be removed is at the first call.
        drop(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await);
    }
    came.sort();
    assert_eq!(came, [("left".to_owned(), 2), ("not given".to_owned(), 1)]);
    // Another receiver looks at once, and not ten seconds later.
    let other = queue.connect(&here, &[]).await.unwrap();
    nothing(&other, Duration::from_millis(300)).await;
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

/// Another program, another clock: the endpoint puts it off itself.
#[tokio::test]
async fn a_message_that_comes_before_it_is_due_is_put_off() {
    let (_queue, here, ends, mut connection) = connected().await;
    let due = Timestamp::now().after(Duration::from_millis(700));
    let text = due.to_string();
    let fields =
        [("hapax-message-id", "m"), ("hapax-type", "shop.added"), ("hapax-due", text.as_str()), ("body", "{}")];
    add(&mut connection, &queue_of(&here), &fields).await;
    let delivery = next(&ends).await;
    assert!(Timestamp::now().after(Duration::from_millis(20)) >= due, "it comes before it is due");
    assert_eq!((delivery.envelope.due, delivery.attempts), (Some(due), 1));
    ack(&ends, &delivery).await;
}

/// By an operator, or with a server that has kept nothing.
#[tokio::test]
async fn a_queue_that_is_deleted_under_its_receiver_is_declared_anew() {
    let topic = TypeName::parse(unique("shop.told")).unwrap();
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap();
    let mut connection = plain(&url()).await;
    for round in 0..3 {
        let text = format!("round {round}");
        let event = Outgoing { destination: Destination::Topic(topic.clone()), envelope: envelope(&text).into() };
        send(&queue, &[event]).await;
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), text);
        ask::<u64>(&mut connection, &format!("DEL {}", queue_of(&here))).await;
        // Who is gone is forgotten, and who comes again subscribes again.
        let event = Outgoing { destination: Destination::Topic(topic.clone()), envelope: envelope("lost").into() };
        send(&queue, &[event]).await;
        let late = ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
        assert_eq!(late, Settled::LeaseLost);
        // The next call makes the queue again.
        nothing(&ends, Duration::from_millis(100)).await;
    }
}

/// Nobody could tell a copy of it from another message; it is kept, and what comes after it is given.
#[tokio::test]
async fn a_message_without_an_id_or_a_type_is_set_aside_with_the_reason() {
    let (queue, here, ends, mut connection) = connected().await;
    let key = queue_of(&here);
    add(&mut connection, &key, &[("hapax-type", "shop.added"), ("body", "nameless"), ("x-hapax-due", "soon")]).await;
    add(&mut connection, &key, &[("only", "this")]).await;
    add(&mut connection, &key, &[("hapax-message-id", "m"), ("hapax-type", "shop.added"), ("body", "good")]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "good");
    ack(&ends, &delivery).await;
    let letters = format!("hapax-test:dead-letters:{here}");
    let begun = std::time::Instant::now();
    while ask::<u64>(&mut connection, &format!("XLEN {letters}")).await < 2 {
        assert!(begun.elapsed() < PATIENCE, "they are not set aside");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let found: Vec<(String, Vec<(String, String)>)> = ask(&mut connection, &format!("XRANGE {letters} - +")).await;
    let letter = found.iter().find(|(_, fields)| fields.contains(&("body".into(), "nameless".into()))).unwrap();
    let field = |name: &str| letter.1.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    assert!(field("x-hapax-reason").unwrap().contains("hapax-message-id"), "{letter:?}");
    assert_eq!(field("x-hapax-due"), None, "it is the letter's now");
    // What is no message is not in the list, and does not keep the list from being read.
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), []);
    assert_eq!(queue.backlog(&here).await.unwrap(), 0);
}

/// A stream of one's own, in the set of the type.
#[tokio::test]
async fn another_program_subscribes_to_a_type() {
    let queue = open().await;
    let topic = TypeName::parse(unique("shop.told")).unwrap();
    let name = endpoint();
    let mut connection = plain(&url()).await;
    ask::<u64>(&mut connection, &format!("SADD hapax-test:topic:{topic} {name}")).await;
    let key = queue_of(&name);
    ask::<String>(&mut connection, &format!("XGROUP CREATE {key} mine 0 MKSTREAM")).await;
    let event = Envelope { message_type: topic.clone(), ..envelope("an event") };
    send(&queue, &[Outgoing { destination: Destination::Topic(topic.clone()), envelope: event.into() }]).await;
    let found: Vec<(String, Vec<(String, String)>)> = ask(&mut connection, &format!("XRANGE {key} - +")).await;
    assert!(found[0].1.contains(&("body".into(), "an event".into())), "{found:?}");
    ask::<u64>(&mut connection, &format!("DEL {key} hapax-test:topic:{topic}")).await;
}
