//! What the service is given, and what it gives of what it has set aside, held still: see [`crate::golden`].
#![allow(clippy::unwrap_used)]

use fe2o3_amqp::types::{
    messaging::{
        ApplicationProperties, Batch, Body, Data, Header, Message, MessageAnnotations, MessageId as Id, Properties,
        annotations::OwnedKey,
    },
    primitives::{Binary, SimpleValue, Symbol, Timestamp as Millis, Value},
};
use hapax_core::{
    envelope::{Destination, Envelope, cloudevents::Source},
    ids::PartitionKey,
    ports::DeadLetter,
    time::Timestamp,
};

use super::{
    WrittenAs,
    address::Server,
    letters::{letter_extras, letter_of, to_be_set_aside},
    message::{Carried, Extras, attempts_of, carried, envelope_of},
    names::{Names, group_of},
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const WAITS: &str = include_str!("golden/waits.txt");
const LETTER: &str = include_str!("golden/letter.txt");
const SET_ASIDE: &str = include_str!("golden/set_aside.txt");

fn names() -> Names {
    Names::new("hapax", Server::ServiceBus, "", "").unwrap()
}

/// AMQP's header, annotations and properties, those of the application in their order, and the body.
fn text(message: &Carried) -> String {
    let (header, properties) = (message.header.as_ref().unwrap(), message.properties.as_ref().unwrap());
    let mut lines = vec![("header durable".to_owned(), header.durable.to_string())];
    lines.extend(header.ttl.map(|ttl| ("header ttl".to_owned(), ttl.to_string())));
    for (key, value) in message.message_annotations.iter().flat_map(|annotations| annotations.0.iter()) {
        let (OwnedKey::Symbol(key), Value::Timestamp(time)) = (key, value) else { panic!("{key:?}: {value:?}") };
        lines.push((format!("annotation {}", key.as_str()), time.milliseconds().to_string()));
    }
    let id_text = |id: &Id| match id {
        Id::String(text) => text.clone(),
        other => format!("{other:?}"),
    };
    let known = [
        ("message-id", properties.message_id.as_ref().map(id_text)),
        ("subject", properties.subject.clone()),
        ("reply-to", properties.reply_to.clone()),
        ("correlation-id", properties.correlation_id.as_ref().map(id_text)),
        ("content-type", properties.content_type.as_ref().map(|kind| kind.as_str().to_owned())),
        ("creation-time", properties.creation_time.as_ref().map(|time| time.milliseconds().to_string())),
        ("group-id", properties.group_id.clone()),
    ];
    lines.extend(known.into_iter().filter_map(|(name, value)| Some((format!("property {name}"), value?))));
    for (name, value) in message.application_properties.iter().flat_map(|properties| properties.0.iter()) {
        lines.push(match value {
            SimpleValue::String(text) => (format!("application {name}"), text.clone()),
            SimpleValue::Uint(number) => (format!("number {name}"), number.to_string()),
            other => panic!("{name}: {other:?}"),
        });
    }
    let Body::Data(body) = &message.body else { panic!("the body is no data") };
    let body: Vec<u8> = body.iter().flat_map(|data| data.0.iter().copied()).collect();
    lines.push(("body".to_owned(), String::from_utf8(body).unwrap()));
    golden::text(lines)
}

/// As the service gives it.
fn given(kept: &str) -> Carried {
    let (mut header, mut properties) = (Header::default(), Properties::default());
    let (mut annotations, mut application) = (MessageAnnotations::default(), ApplicationProperties::default());
    let mut body = Vec::new();
    for (name, value) in golden::lines(kept) {
        let (kind, name) = name.split_once(' ').unwrap_or((name, ""));
        match (kind, name) {
            ("header", "durable") => header.durable = value.parse().unwrap(),
            ("header", "ttl") => header.ttl = Some(value.parse().unwrap()),
            ("header", "delivery-count") => header.delivery_count = value.parse().unwrap(),
            ("annotation", name) => {
                let time = Millis::from_milliseconds(value.parse().unwrap());
                annotations.insert(OwnedKey::Symbol(Symbol::from(name.to_owned())), Value::Timestamp(time));
            }
            ("property", "message-id") => properties.message_id = Some(Id::String(value)),
            ("property", "subject") => properties.subject = Some(value),
            ("property", "reply-to") => properties.reply_to = Some(value),
            ("property", "correlation-id") => properties.correlation_id = Some(Id::String(value)),
            ("property", "content-type") => properties.content_type = Some(Symbol::from(value)),
            ("property", "creation-time") => {
                properties.creation_time = Some(Millis::from_milliseconds(value.parse().unwrap()));
            }
            ("property", "group-id") => properties.group_id = Some(value),
            ("application", name) => drop(application.insert(name.to_owned(), SimpleValue::String(value))),
            ("number", name) => {
                drop(application.insert(name.to_owned(), SimpleValue::Uint(value.parse().unwrap())));
            }
            ("body", "") => body = value.into_bytes(),
            _ => panic!("`{kind} {name}` is not known"),
        }
    }
    Message {
        header: Some(header),
        delivery_annotations: None,
        message_annotations: Some(annotations),
        properties: Some(properties),
        application_properties: Some(application),
        body: Body::Data(Batch::new(vec![Data(Binary::from(body))])),
        footer: None,
    }
}

fn read(kept: &str) -> Envelope {
    envelope_of(&given(kept), &names()).unwrap()
}

#[test]
fn a_message_on_servicebus_keeps_its_properties() {
    let source = Source::parse("/shop").unwrap();
    for (sent, written_as, kept) in [
        (golden::small(), WrittenAs::Plain, SMALL),
        (golden::full(), WrittenAs::Plain, FULL),
        (golden::full(), WrittenAs::CloudEvents(source.clone()), EVENT),
        (golden::full(), WrittenAs::StructuredCloudEvents(source), STRUCTURED),
    ] {
        golden::same(&text(&carried(&sent, &written_as, &Extras::default(), &names(), golden::now())), kept);
        golden::same_message(&read(kept), &sent);
    }
}

#[test]
fn what_waits_on_servicebus_tells_until_when_and_how_often_it_was_given() {
    let not_before = Some(Timestamp::from_millis(1_700_000_009_000));
    let extras = Extras { given: 2, not_before, waits: true, ..Extras::default() };
    golden::same(&text(&carried(&golden::full(), &WrittenAs::Plain, &extras, &names(), golden::now())), WAITS);
    golden::same_message(&read(WAITS), &golden::full());
    assert_eq!(attempts_of(&given(WAITS)), 3);
}

/// Its own id for the service is another each time, behind the message's.
#[test]
fn a_dead_letter_on_servicebus_keeps_its_properties() {
    let DeadLetter { envelope, endpoint, saga, destination, reason, attempts, time } = &golden::letter();
    let extras = letter_extras(endpoint, saga.as_ref(), destination.as_ref(), reason, *attempts, *time);
    let mut written = to_be_set_aside(envelope, extras, &WrittenAs::Plain, &names());
    let Some(Id::String(id)) = &mut written.properties.as_mut().unwrap().message_id else {
        panic!("its id is no text")
    };
    let drawn = id.strip_prefix("order 7/ü#").unwrap();
    assert!(drawn.len() == 8 && u32::from_str_radix(drawn, 16).is_ok(), "{drawn}");
    *id = "order 7/ü#00000000".to_owned();
    golden::same(&text(&written), LETTER);
    golden::same_letter(&letter_of(&given(LETTER), read(LETTER), endpoint), &golden::letter());
}

/// In the sub-queue, where it has what this transport has told the service to write, and what the service counts.
#[test]
fn what_servicebus_itself_has_set_aside_is_a_dead_letter() {
    let letter = DeadLetter { envelope: golden::small().into(), saga: None, destination: None, ..golden::letter() };
    golden::same_letter(&letter_of(&given(SET_ASIDE), read(SET_ASIDE), &letter.endpoint), &letter);
}

/// What another version has put there is looked for under the same names.
#[test]
fn entities_and_groups_on_servicebus_keep_their_names() {
    let (names, shop) = (names(), "Shop:eu".parse().unwrap());
    assert_eq!(
        [names.queue_address(&shop), names.letters_address(&shop), names.set_aside_address(&shop)],
        ["hapax.queue._53hop_3aeu", "hapax.dead-letters._53hop_3aeu", "hapax.queue._53hop_3aeu/$DeadLetterQueue"]
    );
    let topic = Destination::parse("topic:shop.item-added").unwrap();
    assert_eq!(names.address(&topic), "hapax.topic.shop.item-added");
    assert_eq!(names.endpoint("hapax.queue._53hop_3aeu"), Some(shop));
    let long = names.queue(&"X".repeat(99).parse().unwrap());
    assert_eq!(long, format!("hapax.queue.{}__585337a3e7852bcb42a368c6938b3cd6", "_58".repeat(71)));
    let group = |key: &str| group_of(&PartitionKey::parse(key).unwrap());
    assert_eq!(group("order 7"), "order 7");
    assert_eq!(group(&"k".repeat(129)), "sha256-9094034fb2d0ce2e407c9b260f2806ab2efb352e200722fd6296d9cf1cf7e6f5");
}
