//! What the service is given, held still: see [`crate::golden`].
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use hapax_core::{
    envelope::{Envelope, cloudevents::Source},
    ids::PartitionKey,
    time::Timestamp,
};

use super::{
    WrittenAs,
    letters::{Letter, letter_of},
    message::{Came, GIVEN, Parcel, UNTIL},
    names::{Names, group_of},
    topology::SUBSCRIBED,
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const BYTES: &str = include_str!("golden/bytes.txt");
const EMPTY: &str = include_str!("golden/empty.txt");
const AGAIN: &str = include_str!("golden/again.txt");
const LETTER: &str = include_str!("golden/letter.txt");

/// Attributes in the order in which they are written, then the body.
fn text(parcel: &Parcel) -> String {
    let attributes = parcel.attributes.iter().map(|(name, value)| (format!("attribute {name}"), value.clone()));
    golden::text(attributes.chain([("body".to_owned(), parcel.body.clone())]))
}

/// As the service gives it: with attributes in any order.
fn given(kept: &str) -> Came {
    let lines = golden::lines(kept);
    let body = lines.iter().find(|(name, _)| *name == "body").unwrap().1.clone();
    let attributes = lines.into_iter().rev().filter_map(|(name, value)| {
        let name = name.strip_prefix("attribute ")?;
        Some((name.to_owned(), value.into_bytes()))
    });
    Came {
        id: "i".into(),
        handle: "h".into(),
        body,
        attributes: attributes.collect(),
        given: 1,
        first: Timestamp::from_millis(1_700_000_010_000),
        sent: Timestamp::from_millis(5),
        group: None,
    }
}

#[test]
fn a_message_on_sqs_keeps_its_attributes_and_its_body() {
    let source = Source::parse("/shop").unwrap();
    let (bytes, empty) = (&b"\xff\x00"[..], &b""[..]);
    for (sent, written_as, kept) in [
        (golden::small(), WrittenAs::Plain, SMALL),
        (Envelope { body: bytes.into(), ..golden::small() }, WrittenAs::Plain, BYTES),
        (Envelope { body: empty.into(), ..golden::small() }, WrittenAs::Plain, EMPTY),
        (golden::full(), WrittenAs::Plain, FULL),
        (golden::full(), WrittenAs::CloudEvents(source.clone()), EVENT),
        (golden::full(), WrittenAs::StructuredCloudEvents(source), STRUCTURED),
    ] {
        golden::same(&text(&Parcel::of(&sent, &written_as, &[])), kept);
        golden::same_message(&given(kept).envelope().unwrap(), &sent);
    }
}

#[test]
fn what_is_sent_again_to_sqs_tells_how_often_it_was_given_and_until_when_it_waits() {
    let sent = golden::small();
    let extras = [(GIVEN, "2".to_owned()), (UNTIL, "1700000009000".to_owned())];
    golden::same(&text(&Parcel::of(&sent, &WrittenAs::Plain, &extras)), AGAIN);
    let came = given(AGAIN);
    let until = came.not_before(&sent);
    assert_eq!(until, Some(Timestamp::from_millis(1_700_000_009_000)));
    assert_eq!(came.attempts(until, Duration::ZERO), 3);
}

#[test]
fn a_dead_letter_on_sqs_keeps_its_attributes() {
    let letter = golden::letter();
    golden::same(&text(&Letter::of(&letter, &WrittenAs::Plain).0), LETTER);
    golden::same_letter(&letter_of(&given(LETTER), &letter.endpoint).unwrap(), &letter);
}

/// What another version has put there is looked for under the same names, and who subscribes is a tag that all read.
#[test]
fn queues_tags_and_groups_on_sqs_keep_their_names() {
    let (names, shop) = (Names::new("hapax").unwrap(), "shop.eu".parse().unwrap());
    assert_eq!(
        [names.queue(&shop, false), names.queue(&shop, true), names.dead_letters(&shop)],
        ["hapax_queue_shop_2Eeu", "hapax_queue_shop_2Eeu.fifo", "hapax_dead-letters_shop_2Eeu"]
    );
    assert_eq!(names.topic(&"shop.item-added".parse().unwrap()), "hapax_topic_shop_2Eitem-added");
    assert_eq!(names.topics(), "hapax_topic_");
    let long = names.queue(&"x".repeat(99).parse().unwrap(), false);
    assert_eq!(long, format!("hapax_queue_{}__d0621fdd5f0673d6e2b5f823b2791ada", "x".repeat(29)));
    assert_eq!(SUBSCRIBED, "subscribed");
    let group = |key: &str| group_of(&PartitionKey::parse(key).unwrap());
    assert_eq!(group("order-7"), "order-7");
    assert_eq!(group("order 7"), "sha256-0fc89f8ae19394b48debd6353bb9ad3393f3bc791931519f19d176a7e5513ebc");
}
