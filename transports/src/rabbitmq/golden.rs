//! What the server is given, held still: see [`crate::golden`].
#![allow(clippy::unwrap_used)]

use hapax_core::envelope::{Destination, cloudevents::Source};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{
    WrittenAs,
    letters::{letter_of, properties_of_letter},
    message::{Extras, envelope_of, properties_of},
    names::{Names, delay_binding, delayed, due_binding, topic_key},
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const AGAIN: &str = include_str!("golden/again.txt");
const LETTER: &str = include_str!("golden/letter.txt");

fn names() -> Names {
    Names::new("hapax").unwrap()
}

/// Properties of AMQP, then headers in the order of their names, which is that of the library's table, then the body.
fn text(properties: &BasicProperties, body: &[u8]) -> String {
    let text = |property: &Option<ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
    let known = [
        ("content-type", text(properties.content_type())),
        ("delivery-mode", properties.delivery_mode().map(|mode| mode.to_string())),
        ("message-id", text(properties.message_id())),
        ("type", text(properties.kind())),
        ("correlation-id", text(properties.correlation_id())),
        ("reply-to", text(properties.reply_to())),
        ("timestamp", properties.timestamp().map(|seconds| seconds.to_string())),
        ("expiration", text(properties.expiration())),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((format!("property {name}"), value?)));
    let headers = properties.headers().iter().flat_map(FieldTable::inner).map(|(name, value)| match value {
        AMQPValue::LongString(text) => (format!("header {name}"), text.to_string()),
        AMQPValue::LongLongInt(number) => (format!("number {name}"), number.to_string()),
        other => (format!("another {name}"), format!("{other:?}")),
    });
    let body = ("body".to_owned(), String::from_utf8(body.to_vec()).unwrap());
    golden::text(known.chain(headers).chain([body]))
}

/// What [`text`] was given.
fn given(kept: &str) -> (BasicProperties, Vec<u8>) {
    let (mut properties, mut table, mut body) = (BasicProperties::default(), FieldTable::default(), Vec::new());
    for (name, value) in golden::lines(kept) {
        let short = || ShortString::try_new(value.as_str()).unwrap();
        let (kind, name) = name.split_once(' ').unwrap_or((name, ""));
        properties = match (kind, name) {
            ("property", "content-type") => properties.with_content_type(short()),
            ("property", "delivery-mode") => properties.with_delivery_mode(value.parse().unwrap()),
            ("property", "message-id") => properties.with_message_id(short()),
            ("property", "type") => properties.with_type(short()),
            ("property", "correlation-id") => properties.with_correlation_id(short()),
            ("property", "reply-to") => properties.with_reply_to(short()),
            ("property", "timestamp") => properties.with_timestamp(value.parse().unwrap()),
            ("property", "expiration") => properties.with_expiration(short()),
            ("header", name) => {
                table.insert(name.into(), AMQPValue::LongString(value.as_str().into()));
                properties
            }
            ("number", name) => {
                table.insert(name.into(), AMQPValue::LongLongInt(value.parse().unwrap()));
                properties
            }
            ("body", "") => {
                body = value.as_bytes().to_vec();
                properties
            }
            _ => panic!("`{kind} {name}` is not known"),
        };
    }
    (properties.with_headers(table), body)
}

#[track_caller]
fn same(properties: &BasicProperties, body: &[u8], kept: &str) {
    golden::same(&text(properties, body), kept);
    assert_eq!(*properties, given(kept).0, "there is more than the text tells");
}

#[test]
fn a_message_on_rabbitmq_keeps_its_properties_and_headers() {
    let (first, again) = (Extras::default(), Extras { attempts: 2, ..Extras::default() });
    let source = Source::parse("/shop").unwrap();
    for (sent, written_as, extras, kept) in [
        (golden::small(), WrittenAs::Plain, &first, SMALL),
        (golden::small(), WrittenAs::Plain, &again, AGAIN),
        (golden::full(), WrittenAs::Plain, &first, FULL),
        (golden::full(), WrittenAs::CloudEvents(source.clone()), &first, EVENT),
        (golden::full(), WrittenAs::StructuredCloudEvents(source), &first, STRUCTURED),
    ] {
        let properties = properties_of(&sent, extras, &names(), &written_as, golden::now());
        same(&properties, &written_as.body(&sent), kept);
        let (properties, body) = given(kept);
        let (came, attempts) = envelope_of(&properties, body, &names()).unwrap();
        golden::same_message(&came, &sent);
        assert_eq!(attempts, extras.attempts + 1);
    }
}

#[test]
fn a_dead_letter_on_rabbitmq_keeps_its_properties_and_headers() {
    let letter = golden::letter();
    same(&properties_of_letter(&letter, &names(), &WrittenAs::Plain), &letter.envelope.body, LETTER);
    let (properties, body) = given(LETTER);
    let (envelope, _) = envelope_of(&properties, body, &names()).unwrap();
    golden::same_letter(&letter_of(&properties, envelope, &letter.endpoint), &letter);
}

/// What another version has put there is looked for under the same names, and waits for its time on the same way.
#[test]
fn queues_and_ways_on_rabbitmq_keep_their_names() {
    const WORD: &str = "60f0ae8618d9c142ed0d1013f3030edf";
    const BITS: &str = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.1.1.0.1.0.1.0.0.1.1.1.0.0.0.0.";
    let (names, shop) = (names(), Destination::parse("endpoint:shop").unwrap());
    let endpoint = "shop".parse().unwrap();
    assert_eq!(
        [names.queue(&endpoint), names.dead_letters(&endpoint)],
        ["hapax.queue.shop", "hapax.dead-letters.shop"]
    );
    assert_eq!([names.topics(), names.due(), names.unrouted()], ["hapax.topics", "hapax.due", "hapax.unrouted"]);
    assert_eq!([names.delay(0), names.delay(31)], ["hapax.delay.0", "hapax.delay.31"]);
    assert_eq!([names.after_delay(0), names.after_delay(31)], ["hapax.due", "hapax.delay.30"]);
    assert_eq!(topic_key(&"shop.item-added".parse().unwrap()), "shop.item-added");
    assert_eq!(delayed(60_001, &shop), Some((15, format!("{BITS}{WORD}"))));
    assert_eq!([delay_binding(31, '1'), delay_binding(30, '0')], ["1.#", "*.0.#"]);
    assert_eq!(due_binding(&shop), format!("{}{WORD}", "*.".repeat(32)));
}
