//! Producers and consumers that are not hapax, on the driver alone.

use std::time::Duration;

use hapax::{
    envelope::{ContentType, Destination, Envelope},
    ids::{CorrelationId, EndpointName},
    ports::{DeadLetters, Page, Transport},
    time::Timestamp,
};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};

use super::rig::*;

const ASK_EVERY: Duration = Duration::from_millis(20);

async fn channel() -> (Connection, Channel) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    (connection, channel)
}

/// As any program would, to the queue by its name.
async fn publish(channel: &Channel, to: &EndpointName, properties: BasicProperties, body: &[u8]) {
    let (queue, options) = (queue_of(to), BasicPublishOptions::default());
    let published = channel.basic_publish("".into(), queue.as_str().into(), options, body, properties);
    published.await.unwrap().await.unwrap();
}

fn queue_of(endpoint: &EndpointName) -> String {
    format!("hapax-test.queue.{endpoint}")
}

#[tokio::test]
async fn another_producer_needs_an_id_and_a_type_and_nothing_else() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let (_connection, channel) = channel().await;
    let mut headers = FieldTable::default();
    headers.insert("Shop".into(), AMQPValue::LongString("corner".into()));
    headers.insert("count".into(), AMQPValue::LongInt(7));
    headers.insert("urgent".into(), AMQPValue::Boolean(true));
    headers.insert("nested".into(), AMQPValue::FieldTable(FieldTable::default()));
    let properties = BasicProperties::default()
        .with_message_id("order 7".into())
        .with_type("shop.added".into())
        .with_content_type("application/json".into())
        .with_correlation_id("process 1".into())
        .with_timestamp(1_700_000_000)
        .with_reply_to("hapax-test.queue.billing".into())
        .with_headers(headers);
    publish(&channel, &here, properties, b"{}").await;

    let delivery = next(&ends).await;
    let envelope = &delivery.envelope;
    assert_eq!(envelope.message_id.to_string(), "order 7");
    assert_eq!(envelope.message_type.as_str(), "shop.added");
    assert_eq!(envelope.content_type, ContentType::JSON);
    assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "process 1");
    assert_eq!(envelope.occurred_at, Some(Timestamp::from_millis(1_700_000_000_000)));
    assert_eq!(envelope.reply_to, Some(Destination::parse("endpoint:billing").unwrap()));
    let header = |name| envelope.headers.value(name);
    assert_eq!((header("shop"), header("count"), header("urgent")), (Some("corner"), Some("7"), Some("true")));
    assert_eq!(&envelope.body[..], b"{}");
    ack(&ends, &delivery).await;
}

/// Another program, another clock, or a delay beyond what the server counts: the endpoint puts it off itself.
#[tokio::test]
async fn a_message_that_comes_before_it_is_due_is_put_off() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let (_connection, channel) = channel().await;
    let due = Timestamp::now().after(Duration::from_millis(700));
    let mut headers = FieldTable::default();
    for (name, value) in
        [("hapax-message-id", "m".to_owned()), ("hapax-type", "shop.added".to_owned()), ("hapax-due", due.to_string())]
    {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let properties = BasicProperties::default().with_headers(headers);
    publish(&channel, &here, properties, b"{}").await;
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
    let (_connection, channel) = channel().await;
    for round in 0..3 {
        let text = format!("round {round}");
        send(&queue, &[to(&here, envelope(&text))]).await;
        let delivery = next(&ends).await;
        assert_eq!(body(&delivery), text);
        let name = queue_of(&here);
        channel.queue_delete(name.as_str().into(), Default::default()).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("it waits for ever");
        assert!(ended.is_err());
        let late = ends.receiver.settle(&delivery.receipt, hapax::ports::Settlement::Ack).await.unwrap();
        assert_eq!(late, hapax::ports::Settled::LeaseLost);
        // The next call makes the queue again.
        drop(tokio::time::timeout(Duration::from_secs(2), ends.receiver.receive(1)).await);
    }
}

/// Nobody could tell a copy of it from another message; it is kept, and what comes after it is given.
#[tokio::test]
async fn a_message_without_an_id_or_a_type_is_set_aside_with_the_reason() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let (_connection, channel) = channel().await;
    // What would end the letter, or make another message of it each time, does not go with it.
    let mut copies = FieldTable::default();
    let to_itself = AMQPValue::LongString(queue_of(&here).as_str().into());
    copies.insert("CC".into(), AMQPValue::FieldArray(vec![to_itself].into()));
    let nameless =
        BasicProperties::default().with_type("shop.added".into()).with_expiration("5000".into()).with_headers(copies);
    let good = BasicProperties::default().with_message_id("m".into()).with_type("shop.added".into());
    for (properties, body) in [(nameless, &b"nameless"[..]), (good, b"good")] {
        publish(&channel, &here, properties, body).await;
    }
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "good");
    ack(&ends, &delivery).await;

    // From the first letter on there is a queue for them; who looks makes sure of it.
    queue.list(&here, &Page::first(1)).await.unwrap();
    let letters = format!("hapax-test.dead-letters.{here}");
    let letter = loop {
        match channel.basic_get(letters.as_str().into(), BasicGetOptions::default()).await.unwrap() {
            Some(letter) => break letter.delivery,
            // As an endpoint goes on asking: what could not be set aside at the first try comes again.
            None => drop(tokio::time::timeout(ASK_EVERY, ends.receiver.receive(1)).await),
        }
    };
    assert_eq!(letter.data, b"nameless");
    assert_eq!(*letter.properties.expiration(), None);
    assert!(!letter.properties.headers().as_ref().unwrap().contains_key("CC"));
    let headers = letter.properties.headers().clone().unwrap();
    let reason = format!("{:?}", headers.inner().get("x-hapax-reason").unwrap());
    assert!(!reason.is_empty());
    // What is no message is not in the list, and does not keep the list from being read.
    drop(channel);
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), []);
}

#[tokio::test]
async fn another_consumer_finds_what_amqp_has_a_field_for_in_that_field() {
    let queue = open().await;
    let here = endpoint();
    queue.connect(&here, &[]).await.unwrap();
    let sent = Envelope {
        correlation_id: Some(CorrelationId::parse("process 1").unwrap()),
        occurred_at: Some(Timestamp::from_millis(1_700_000_000_999)),
        expires: Some(Timestamp::now().after(Duration::from_secs(3600))),
        reply_to: Some(Destination::parse("endpoint:billing").unwrap()),
        ..envelope("{}")
    };
    send(&queue, &[to(&here, sent.clone())]).await;
    let (_connection, channel) = channel().await;
    let name = queue_of(&here);
    let given = channel.basic_get(name.as_str().into(), BasicGetOptions::default()).await.unwrap().unwrap().delivery;
    let properties = given.properties;
    let text = |field: &Option<lapin::types::ShortString>| field.as_ref().unwrap().as_str().to_owned();
    assert_eq!(text(properties.message_id()), sent.message_id.to_string());
    assert_eq!(text(properties.kind()), "shop.added");
    assert_eq!(text(properties.content_type()), "application/json");
    assert_eq!(text(properties.correlation_id()), "process 1");
    assert_eq!(text(properties.reply_to()), "hapax-test.queue.billing");
    assert_eq!(*properties.timestamp(), Some(1_700_000_000));
    assert_eq!(*properties.delivery_mode(), Some(2));
    let expiration: u64 = text(properties.expiration()).parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&expiration), "{expiration}");
    assert_eq!(given.data, b"{}");
}
