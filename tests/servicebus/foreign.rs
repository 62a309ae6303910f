//! Producers and consumers that are not hapax: lapin alone, by AMQP 0-9-1 on the same queue.

use std::collections::BTreeMap;

use hapax::{
    ServiceBus,
    envelope::{ContentType, Envelope, cloudevents::Source},
    ids::{CorrelationId, EndpointName},
    ports::{Settlement, Transport},
    transports::servicebus::WrittenAs,
};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    message::Delivery,
    options::BasicGetOptions,
    types::{AMQPValue, ShortString},
};

use super::rig::*;

const NO_OTHER: &str = "the other program speaks AMQP 0-9-1, which the service does not";
const STRUCTURED: &str = r#"{"specversion":"1.0","id":"8","source":"/shop","type":"shop.added","datacontenttype":"application/json","data":{"n":7}}"#;

/// Takes the first message of an endpoint's queue, as another consumer would.
async fn taken(endpoint: &EndpointName) -> Delivery {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let got = channel.basic_get(short(&queue_of(endpoint)), BasicGetOptions { no_ack: true }).await.unwrap();
    connection.close(200, short("")).await.unwrap();
    got.expect("nothing is there").delivery
}

/// The application properties of a message that was sent by AMQP 1.0. RabbitMQ's plugin hands them on packed, as they came, in one header;
/// where it is told to, as headers.
fn application(properties: &BasicProperties) -> BTreeMap<String, String> {
    let headers = properties.headers().clone().unwrap_or_default();
    match headers.inner().get(APPLICATION_PROPERTIES) {
        Some(AMQPValue::LongString(packed)) => unpacked(packed.as_bytes()),
        Some(other) => panic!("{other:?}"),
        None => {
            let texts = headers.inner().iter().filter_map(|(name, value)| match value {
                // Other sections are packed in any case.
                AMQPValue::LongString(text) if !name.as_str().starts_with("x-amqp-1.0-") => {
                    Some((name.to_string(), text.to_string()))
                }
                _ => None,
            });
            texts.collect()
        }
    }
}

/// A section of application properties in which all names and values are texts. After the three bytes that name the section comes a map: its code,
/// its size, how many there are in it, and names and values in turn; each has its code, its length and its bytes. Codes are 0xc1 for a map and
/// 0xa1 for a text whose numbers have one byte, 0xd1 and 0xb1 where they have four. AMQP 1.0: 1.6.20, 1.6.23 and 3.2.5.
fn unpacked(packed: &[u8]) -> BTreeMap<String, String> {
    let mut section = Packed(packed.strip_prefix(&[0x00, 0x53, 0x74]).expect("another section"));
    let is_large = section.is_large(0xc1, 0xd1);
    let (_size, count) = (section.number(is_large), section.number(is_large));
    let all = (0..count / 2).map(|_| (section.text(), section.text())).collect();
    assert!(section.0.is_empty(), "there is more behind it: {:?}", section.0);
    all
}

struct Packed<'b>(&'b [u8]);

impl<'b> Packed<'b> {
    fn bytes(&mut self, count: usize) -> &'b [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    fn is_large(&mut self, small: u8, large: u8) -> bool {
        let code = self.bytes(1)[0];
        assert!([small, large].contains(&code), "another type: {code:#x}");
        code == large
    }

    fn number(&mut self, is_large: bool) -> usize {
        let bytes = self.bytes(if is_large { 4 } else { 1 });
        bytes.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte))
    }

    fn text(&mut self) -> String {
        let is_large = self.is_large(0xa1, 0xb1);
        let length = self.number(is_large);
        String::from_utf8(self.bytes(length).to_vec()).unwrap()
    }
}

async fn writing(written_as: &WrittenAs) -> ServiceBus {
    options().written_as(written_as.clone()).open(url()).await.unwrap()
}

fn message() -> Envelope {
    let correlation_id = Some(CorrelationId::parse("process 1").unwrap());
    let mut message = Envelope { correlation_id, ..envelope(r#"{"n":7}"#) };
    message.headers.set("note", "100 %").unwrap();
    message
}

#[tokio::test]
async fn another_consumer_finds_what_was_sent_as_it_was_asked_for() {
    if is_azure() {
        return eprintln!("SKIPPED: {NO_OTHER}");
    }
    let (queue, here) = (open().await, endpoint());
    queue.declare(&here, &[]).await;
    let source = Source::parse("/orders").unwrap();
    let forms = [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)];
    for written_as in &forms {
        let sent = message();
        send(&writing(written_as).await, &[to(&here, sent.clone())]).await;
        let Delivery { properties, data, .. } = taken(&here).await;
        let (said, id) = (application(&properties), sent.message_id.to_string());
        let says = |name: &str| said.get(name).map(String::as_str);
        let text = |field: &Option<ShortString>| field.as_ref().map(ToString::to_string);
        // In fields of AMQP's own, whatever the form.
        assert_eq!(text(properties.message_id()), Some(id.clone()));
        assert_eq!(text(properties.correlation_id()).as_deref(), Some("process 1"));
        let content_type = text(properties.content_type()).unwrap();
        match written_as {
            WrittenAs::Plain => {
                assert_eq!((says("hapax-message-id"), says("hapax-type")), (Some(&*id), Some("shop.added")));
                assert_eq!((says("hapax-correlation-id"), says("note")), (Some("process%201"), Some("100%20%25")));
                assert_eq!((content_type.as_str(), &data[..]), ("application/json", &br#"{"n":7}"#[..]));
            }
            WrittenAs::CloudEvents(_) => {
                assert_eq!(says("cloudEvents:specversion"), Some("1.0"));
                assert_eq!((says("cloudEvents:id"), says("cloudEvents:source")), (Some(&*id), Some("/orders")));
                assert_eq!(says("cloudEvents:type"), Some("shop.added"));
                // As they are: the binding to AMQP has no encoding of its own.
                assert_eq!(says("cloudEvents:correlationid"), Some("process 1"));
                assert_eq!((says("cloudEvents:note"), says("hapax-message-id")), (Some("100 %"), None));
                assert_eq!((content_type.as_str(), &data[..]), ("application/json", &br#"{"n":7}"#[..]));
            }
            _ => {
                let event: serde_json::Value = serde_json::from_slice(&data).unwrap();
                assert_eq!((event["id"].as_str(), event["source"].as_str()), (Some(&*id), Some("/orders")));
                assert_eq!((event["type"].as_str(), event["note"].as_str()), (Some("shop.added"), Some("100 %")));
                assert_eq!(event["data"]["n"].as_u64(), Some(7));
                assert_eq!(content_type, "application/cloudevents+json");
                assert_eq!(said, BTreeMap::new());
            }
        }
    }
    // And who writes in one form reads all of them.
    let ends = queue.connect(&here, &[]).await.unwrap();
    for written_as in &forms {
        let sent = message();
        send(&writing(written_as).await, &[to(&here, sent.clone())]).await;
        let delivery = next(&ends).await;
        assert_eq!(*delivery.envelope, sent, "{written_as:?}");
        settle(&ends, &delivery, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn events_of_another_producer_are_read_in_both_modes() {
    if is_azure() {
        return eprintln!("SKIPPED: {NO_OTHER}");
    }
    let (queue, here) = (open().await, endpoint());
    let ends = queue.connect(&here, &[]).await.unwrap();
    let name = queue_of(&here);
    let comes = async |id: &str, color: Option<&str>| {
        let delivery = next(&ends).await;
        let envelope = &delivery.envelope;
        assert_eq!((envelope.message_id.to_string().as_str(), envelope.message_type.as_str()), (id, "shop.added"));
        assert_eq!((&envelope.content_type, body(&delivery).as_str()), (&ContentType::JSON, r#"{"n":7}"#));
        assert_eq!(envelope.headers.value("color"), color);
        settle(&ends, &delivery, Settlement::Ack).await;
    };
    for prefix in ["cloudEvents:", "cloudEvents_"] {
        let attributes = [("specversion", "1.0"), ("id", "7"), ("source", "/shop"), ("type", "shop.added")];
        let attributes = attributes.map(|(name, value)| (format!("{prefix}{name}"), value));
        let mut application: Vec<_> = attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        application.push(("color", "red"));
        put(&name, None, "application/json", &application, br#"{"n":7}"#).await;
        comes("/shop 7", Some("red")).await;
    }
    // All of a structured event is in its body.
    let structured = "application/cloudevents+json; charset=utf-8";
    put(&name, None, structured, &[("color", "red")], STRUCTURED.as_bytes()).await;
    comes("/shop 8", None).await;
}
