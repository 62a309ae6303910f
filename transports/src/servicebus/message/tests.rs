//! What is written is read as it was, in every form, and what other programs write is read too; and all of it has room in what the service takes.
#![allow(clippy::unwrap_used)]

use hapax_core::envelope::cloudevents::Source;

use super::*;
use crate::servicebus::address::Server;

fn names() -> Names {
    Names::new("hapax", Server::ServiceBus, "", "").unwrap()
}

fn envelope(body: &[u8]) -> Envelope {
    let kind = TypeName::parse("shop.added").unwrap();
    let mut envelope = Envelope::new(MessageId::parse("order 7").unwrap(), kind, body.to_vec());
    envelope.due = Some(Timestamp::from_millis(1_700_000_000_123));
    envelope.tenant = Some("tenant".parse().unwrap());
    envelope.partition_key = Some("a key".parse().unwrap());
    for name in ["x-more", "content-type", "b", "a"] {
        envelope.headers.set(name, "ü \"value\"").unwrap();
    }
    envelope
}

fn forms() -> [WrittenAs; 3] {
    let source = Source::parse("/shop").unwrap();
    [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_600_000_000_000)
}

/// What another program sends.
fn foreign(properties: Properties, application: &[(&str, SimpleValue)], body: Body<Value>) -> Carried {
    let application = application.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: Some(properties),
        application_properties: Some(ApplicationProperties(application)),
        body,
        footer: None,
    }
}

fn data(body: &[u8]) -> Body<Value> {
    Body::Data(Batch::new(vec![Data(Binary::from(body.to_vec()))]))
}

#[test]
fn what_is_written_is_read_as_it_was_in_every_form() {
    for body in [&b""[..], b"{\"n\": 7}", b"\xff\xfe\0", "ü\u{1F600}".as_bytes()] {
        for written_as in forms() {
            let (sent, letter) = (envelope(body), vec![("x-hapax-reason", "it is of no use".to_owned())]);
            for extras in [Extras::default(), Extras { given: 3, is_again: true, letter, ..Extras::default() }] {
                let carried = carried(&sent, &written_as, &extras, &names(), now());
                assert_eq!(envelope_of(&carried, &names()).unwrap(), sent, "{written_as:?}");
                assert_eq!(attempts_of(&carried), extras.given + 1);
            }
        }
    }
}

#[test]
fn amqps_own_fields_hold_what_amqp_has_fields_for() {
    let mut sent = envelope(b"{}");
    sent.correlation_id = Some(CorrelationId::parse("basket").unwrap());
    sent.reply_to = Some(Destination::parse("endpoint:till").unwrap());
    sent.expires = Some(now().after(Duration::from_millis(1500)));
    let extras = Extras { not_before: sent.due, ..Extras::default() };
    let carried = carried(&sent, &WrittenAs::Plain, &extras, &names(), now());
    let properties = carried.properties.unwrap();
    assert_eq!(properties.message_id, Some(Id::String("order 7".into())));
    assert_eq!(properties.correlation_id, Some(Id::String("basket".into())));
    assert_eq!(properties.subject.as_deref(), Some("shop.added"));
    assert_eq!(properties.group_id.as_deref(), Some("a key"));
    assert_eq!(properties.content_type.unwrap().as_str(), "application/json");
    assert_eq!(properties.reply_to.as_deref(), Some("hapax.queue.till"));
    let header = carried.header.unwrap();
    assert_eq!((header.durable, header.ttl), (true, Some(1500)));
    let scheduled = carried.message_annotations.unwrap().0.into_iter().next().unwrap();
    let due = Millis::from_milliseconds(1_700_000_000_123);
    assert_eq!(scheduled, (OwnedKey::from(SCHEDULED), Value::Timestamp(due)));
}

#[test]
fn what_is_sent_again_has_another_id_for_the_service_and_its_own_for_us() {
    let extras = Extras { is_again: true, ..Extras::default() };
    let id = |carried: &Carried| carried.properties.as_ref().unwrap().message_id.clone();
    let [one, two] = [0, 1].map(|_| carried(&envelope(b"{}"), &WrittenAs::Plain, &extras, &names(), now()));
    assert_ne!(id(&one), id(&two));
    assert_eq!(envelope_of(&one, &names()).unwrap().message_id.to_string(), "order 7");
}

#[test]
fn what_is_too_long_for_the_service_is_in_the_headers_alone() {
    let mut sent = envelope(b"{}");
    sent.message_id = MessageId::parse(&"i".repeat(255)).unwrap();
    sent.correlation_id = Some(CorrelationId::parse("c".repeat(200)).unwrap());
    let extras = Extras { is_again: true, ..Extras::default() };
    let carried = carried(&sent, &WrittenAs::Plain, &extras, &names(), now());
    let properties = carried.properties.as_ref().unwrap();
    let Some(Id::String(id)) = &properties.message_id else { panic!("{properties:?}") };
    assert!(id.len() <= FIELD_BYTES_MAX && properties.correlation_id.is_none());
    assert_eq!(envelope_of(&carried, &names()).unwrap(), sent);
}

#[test]
fn a_foreign_message_is_read_by_what_it_has() {
    let properties = Properties {
        message_id: Some(Id::Ulong(7)),
        subject: Some("shop.added".into()),
        content_type: Some(Symbol::from("application/json")),
        group_id: Some("basket".into()),
        reply_to: Some("hapax.queue.till".into()),
        creation_time: Some(Millis::from_milliseconds(5)),
        ..Properties::default()
    };
    let shop = ("Shop", SimpleValue::Int(-3));
    let came = foreign(properties, &[shop, (GIVEN, SimpleValue::Uint(4))], data(b"{}"));
    let read = envelope_of(&came, &names()).unwrap();
    assert_eq!((read.message_id.to_string().as_str(), read.headers.value("shop")), ("7", Some("-3")));
    assert_eq!(read.partition_key.unwrap().as_str(), "basket");
    assert_eq!(read.reply_to, Some(Destination::parse("endpoint:till").unwrap()));
    assert_eq!(read.occurred_at, Some(Timestamp::from_millis(5)));
    assert_eq!(attempts_of(&came), 5);
    assert!(envelope_of(&foreign(Properties::default(), &[], data(b"{}")), &names()).is_err());
}

#[test]
fn events_of_others_are_read_in_both_modes() {
    let text = |text: &str| SimpleValue::String(text.to_owned());
    for prefix in EVENT {
        let attributes = [("specversion", "1.0"), ("id", "\"7\""), ("source", "/x"), ("type", "shop.added")];
        let attributes = attributes.map(|(name, value)| (format!("{prefix}{name}"), text(value)));
        let attributes = attributes.each_ref().map(|(name, value)| (name.as_str(), value.clone()));
        let read = envelope_of(&foreign(Properties::default(), &attributes, data(b"{}")), &names()).unwrap();
        assert_eq!(read.message_id.to_string(), "/x \"7\"");
    }
    let json = br#"{"specversion":"1.0","id":"7","source":"/x","type":"shop.added","data":{}}"#;
    let kind = Some(Symbol::from("application/cloudevents+json; charset=utf-8"));
    let properties = Properties { content_type: kind, ..Properties::default() };
    let read = envelope_of(&foreign(properties, &[], data(json)), &names()).unwrap();
    assert_eq!(read.message_id.to_string(), "/x 7");
}

#[test]
fn a_body_is_bytes_however_it_comes_and_what_is_no_bytes_is_no_message() {
    let read = |body: Body<Value>| {
        let properties = Properties {
            message_id: Some(Id::String("7".into())),
            subject: Some("shop.added".into()),
            ..Properties::default()
        };
        envelope_of(&foreign(properties, &[], body), &names()).map(|read| read.body.to_vec())
    };
    let parts = vec![Data(Binary::from(b"a".to_vec())), Data(Binary::from(b"b".to_vec()))];
    assert_eq!(read(Body::Data(Batch::new(parts))).unwrap(), b"ab");
    assert_eq!(read(Body::Value(AmqpValue(Value::String("a".into())))).unwrap(), b"a");
    assert_eq!(read(Body::Value(AmqpValue(Value::Binary(Binary::from(b"b".to_vec()))))).unwrap(), b"b");
    assert_eq!(read(Body::Empty).unwrap(), b"");
    assert!(read(Body::Value(AmqpValue(Value::Int(7)))).unwrap_err().contains("must send bytes"));
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let reason = "ü".repeat(4000);
    assert!(cut(&reason).len() <= REASON_BYTES_MAX && reason.starts_with(cut(&reason)));
}

#[test]
fn what_is_counted_is_no_less_than_what_is_written() {
    for body in [&b"{\"n\": 7}"[..], &[0xff; 3000]] {
        for written_as in forms() {
            let mut sent = envelope(body);
            sent.headers.set("long", &"ü".repeat(500)).unwrap();
            let written = carried(&sent, &written_as, &Extras::default(), &names(), now());
            let properties: usize =
                properties_of(&written).map(|(name, value)| name.len() + text_of(value).unwrap().len() + 10).sum();
            assert!(properties <= properties_bytes(&sent, &written_as), "{written_as:?}");
            assert_eq!(body_of(&written).unwrap().len(), body_bytes(&sent, &written_as), "{written_as:?}");
        }
    }
}

#[test]
fn what_is_said_beside_a_message_that_is_set_aside_has_room() {
    const SERVICE_BYTES_MAX: usize = 64 << 10;
    let names: usize = 4 * 255;
    let beside = 2 * (REASON_BYTES_MAX + 40) + names + 6 * FIELD_BYTES_MAX;
    assert!(PROPERTIES_BYTES_MAX + beside <= SERVICE_BYTES_MAX, "{beside}");
}
