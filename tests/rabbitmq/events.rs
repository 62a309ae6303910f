//! CloudEvents of other producers and for other consumers: on the driver alone, and by the server's own tool.

use std::process::{Command, Stdio};

use hapax::{
    RabbitMq,
    envelope::{ContentType, Envelope, cloudevents::Source},
    ids::{CorrelationId, EndpointName},
    ports::{DeadLetters, Page, Settlement, Transport},
    time::Timestamp,
    transports::rabbitmq::WrittenAs,
};
use hapax_tests::RabbitMqServer;
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};

use super::rig::*;

const STRUCTURED: &str = r#"{"specversion":"1.0","id":"8","source":"/shop","type":"shop.added","datacontenttype":"application/json","data":{"n":2}}"#;

fn queue_of(prefix: &str, endpoint: &EndpointName) -> String {
    format!("{prefix}.queue.{endpoint}")
}

async fn channel() -> (Connection, lapin::Channel) {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    (connection, channel)
}

#[tokio::test]
async fn events_of_another_producer_are_read_in_both_modes_and_by_each_prefix() {
    let queue = open().await;
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let (_connection, channel) = channel().await;
    let publish = async |properties: BasicProperties, body: &[u8]| {
        let (name, options) = (queue_of("hapax-test", &here), BasicPublishOptions::default());
        let published = channel.basic_publish("".into(), name.as_str().into(), options, body, properties);
        published.await.unwrap().await.unwrap();
    };
    let json = || BasicProperties::default().with_content_type("application/json".into());
    for prefix in ["cloudEvents:", "cloudEvents_", "ce-"] {
        let mut table = FieldTable::default();
        for (name, value) in [("specversion", "1.0"), ("id", "7"), ("source", "/shop"), ("type", "shop.added")] {
            table.insert(format!("{prefix}{name}").as_str().into(), AMQPValue::LongString(value.into()));
        }
        table.insert(format!("{prefix}time").as_str().into(), AMQPValue::Timestamp(1_700_000_000));
        table.insert("shop".into(), AMQPValue::LongString("100 %41".into()));
        let properties = json().with_headers(table).with_correlation_id("process 1".into()).with_timestamp(5);
        publish(properties, br#"{"n":1}"#).await;
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), body(&delivery).as_str()), ("/shop 7", r#"{"n":1}"#));
        assert_eq!((envelope.message_type.as_str(), &envelope.content_type), ("shop.added", &ContentType::JSON));
        assert_eq!(envelope.occurred_at, Some(Timestamp::from_millis(1_700_000_000_000)));
        assert_eq!(envelope.correlation_id.as_ref().unwrap().as_str(), "process 1");
        assert_eq!(envelope.headers.value("shop"), Some("100 %41"));
        // As hapax's own, from here on.
        let again = Settlement::Retry { delay: std::time::Duration::ZERO, counts: false };
        ends.receiver.settle(&delivery.receipt, again).await.unwrap();
        let again = next(&ends).await;
        assert_eq!((&again.envelope, again.attempts), (&delivery.envelope, 1));
        ack(&ends, &again).await;
    }
    let structured = BasicProperties::default().with_content_type("application/cloudevents+json; charset=utf-8".into());
    publish(structured, STRUCTURED.as_bytes()).await;
    let delivery = next(&ends).await;
    assert_eq!(
        (delivery.envelope.message_id.to_string().as_str(), body(&delivery).as_str()),
        ("/shop 8", r#"{"n":2}"#)
    );
    ack(&ends, &delivery).await;
}

#[tokio::test]
async fn another_consumer_gets_an_event_where_that_was_asked_for() {
    let queue =
        options().written_as(WrittenAs::CloudEvents(Source::parse("/orders").unwrap())).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut sent = Envelope {
        occurred_at: Some(Timestamp::from_millis(1_700_000_000_999)),
        correlation_id: Some(CorrelationId::parse("process 1 ü").unwrap()),
        ..envelope("{}")
    };
    sent.headers.set("note", "100 %").unwrap();
    for _ in 0..2 {
        send(&queue, &[to(&here, sent.clone())]).await;
    }
    let (_connection, channel) = channel().await;
    let name = queue_of("hapax-test", &here);
    let given = channel.basic_get(name.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap().unwrap();
    let properties = given.delivery.properties;
    let headers = properties.headers().clone().unwrap();
    let header = |name: &str| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => Some(String::from_utf8(text.as_bytes().to_vec()).unwrap()),
        _ => None,
    };
    assert_eq!(header("cloudEvents:specversion").as_deref(), Some("1.0"));
    assert_eq!(header("cloudEvents:type").as_deref(), Some("shop.added"));
    assert_eq!(header("cloudEvents:source").as_deref(), Some("/orders"));
    assert_eq!(header("cloudEvents:id"), Some(sent.message_id.to_string()));
    assert_eq!(header("cloudEvents:correlationid").as_deref(), Some("process 1 ü"));
    assert_eq!(header("cloudEvents:note").as_deref(), Some("100 %"));
    assert_eq!((header("cloudEvents:datacontenttype"), header("hapax-message-id")), (None, None));
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    let delivery = next(&ends).await;
    assert_eq!(*delivery.envelope, sent);
    ack(&ends, &delivery).await;
}

/// Also where it was put again to wait, and where it is set aside.
#[tokio::test]
async fn a_structured_event_comes_back_also_after_a_while_and_from_the_dead_letters() {
    let written_as = WrittenAs::StructuredCloudEvents(Source::parse("/orders").unwrap());
    let queue = options().written_as(written_as).open(url()).await.unwrap();
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    let mut sent = envelope("{\"n\": 7}");
    sent.headers.set("note", "100 %").unwrap();
    send(&queue, &[to(&here, sent.clone())]).await;
    let delivery = next(&ends).await;
    assert_eq!((&*delivery.envelope, delivery.attempts), (&sent, 1));
    let later = Settlement::Retry { delay: std::time::Duration::from_millis(50), counts: true };
    ends.receiver.settle(&delivery.receipt, later).await.unwrap();
    let again = next(&ends).await;
    assert_eq!((&*again.envelope, again.attempts), (&sent, 2));
    let reason = "nobody wants it".to_owned();
    ends.receiver.settle(&again.receipt, Settlement::DeadLetter { reason }).await.unwrap();
    let letters = queue.list(&here, &Page::first(2)).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&*letter.envelope, letter.attempts, letter.reason.as_str()), (&sent, 2, "nobody wants it"));
    assert_eq!(queue.discard(&letters).await.unwrap(), 1);
}

/// What `rabbitmqadmin` says; `None` where it is not installed.
async fn admin(port: u16, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("rabbitmqadmin");
    command.args(["-H", "127.0.0.1", "-P", &port.to_string()]).args(arguments);
    let ran = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(child) = ran else {
        eprintln!("SKIPPED: there is no rabbitmqadmin: `apt-get install rabbitmq-server`");
        return None;
    };
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn the_servers_own_tool_sends_and_shows_messages_in_every_form() {
    let (server, port) = RabbitMqServer::start_with_tools().await;
    let plain = RabbitMq::open(server.url()).await.unwrap();
    let source = Source::parse("/orders").unwrap();
    let written_as = WrittenAs::CloudEvents(source.clone());
    let events = RabbitMq::options().written_as(written_as).open(server.url()).await.unwrap();
    let written_as = WrittenAs::StructuredCloudEvents(source);
    let structured = RabbitMq::options().written_as(written_as).open(server.url()).await.unwrap();
    let here = endpoint();
    let ends = plain.connect(&here, &[]).await.unwrap();
    let name = queue_of("hapax", &here);
    let (to_queue, get) = (format!("routing_key={name}"), format!("queue={name}"));
    let headers = r#""cloudEvents:specversion":"1.0","cloudEvents:id":"7","cloudEvents:source":"/shop","cloudEvents:type":"shop.added""#;
    let said = [
        (r#"{"message_id":"order-7","type":"shop.added","content_type":"application/json"}"#.to_owned(), r#"{"n":1}"#),
        (format!(r#"{{"content_type":"application/json","headers":{{{headers}}}}}"#), r#"{"n":1}"#),
        (r#"{"content_type":"application/cloudevents+json"}"#.to_owned(), STRUCTURED),
    ];
    let ids = ["order-7", "/shop 7", "/shop 8"];
    for ((properties, payload), id) in said.into_iter().zip(ids) {
        let (properties, payload) = (format!("properties={properties}"), format!("payload={payload}"));
        let Some(told) = admin(port, &["publish", &to_queue, &payload, &properties]).await else { return };
        assert!(told.contains("published"), "{told}");
        let delivery = next(&ends).await;
        assert_eq!((delivery.envelope.message_id.to_string().as_str(), &body(&delivery)[..5]), (id, "{\"n\":"));
        ack(&ends, &delivery).await;
    }
    drop(ends);
    let sent = envelope("{}");
    let shows = async |queue: &RabbitMq| {
        send(queue, &[to(&here, sent.clone())]).await;
        let shown = admin(port, &["-f", "raw_json", "get", &get, "ackmode=ack_requeue_false"]).await?;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown[0]["properties"]["type"], "shop.added");
        Some(shown[0].clone())
    };
    let id: serde_json::Value = sent.message_id.to_string().into();
    let shown = shows(&plain).await.unwrap();
    assert_eq!((&shown["payload"], &shown["properties"]["headers"]["hapax-message-id"]), (&"{}".into(), &id));
    let shown = shows(&events).await.unwrap();
    let event = &shown["properties"]["headers"];
    assert_eq!(shown["payload"], "{}");
    assert_eq!((&event["cloudEvents:id"], &event["cloudEvents:source"]), (&id, &"/orders".into()));
    let shown = shows(&structured).await.unwrap();
    assert_eq!(shown["properties"]["content_type"], "application/cloudevents+json");
    let event: serde_json::Value = serde_json::from_str(shown["payload"].as_str().unwrap()).unwrap();
    assert_eq!((&event["id"], &event["source"], &event["type"]), (&id, &"/orders".into(), &"shop.added".into()));
}
