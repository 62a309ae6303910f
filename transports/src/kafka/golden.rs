//! What the brokers are given, held still: see [`crate::golden`]. What an endpoint notes of what it reads is in `notes`.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use hapax_core::envelope::{Destination, Envelope, Outgoing, cloudevents::Source};

use super::{
    WrittenAs,
    asker::Kept,
    dispatcher::parcel,
    letters::{Extent, Letter, letter_of},
    message::{Headers, headers_of, message_of, written},
    names::{Names, number_of},
    producing::Parcel,
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const LETTER: &str = include_str!("golden/letter.txt");
const LETTER_WITHOUT_BODY: &str = include_str!("golden/letter_without_body.txt");

fn names() -> Names {
    Names::new("hapax").unwrap()
}

/// Topic, partition and key where they are said, headers in their order, and the body.
fn text(parcel: &Parcel) -> String {
    let of_bytes = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut lines = vec![("topic".to_owned(), parcel.topic.clone())];
    lines.extend(parcel.partition.map(|partition| ("partition".to_owned(), partition.to_string())));
    lines.extend(parcel.key.as_ref().map(|key| ("key".to_owned(), key.clone())));
    lines.extend(parcel.headers.iter().map(|(name, value)| (format!("header {name}"), of_bytes(value))));
    lines.extend(parcel.body.as_ref().map(|body| match of_bytes(body) {
        empty if empty.is_empty() => ("empty".to_owned(), "body".to_owned()),
        text => ("body".to_owned(), text),
    }));
    golden::text(lines)
}

/// A record as it is kept, and its topic.
fn given(kept: &str) -> (String, Kept) {
    let lines = golden::lines(kept);
    let one = |wanted: &str| lines.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone());
    let headers = lines
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("header ")?.to_owned(), value.clone().into_bytes())));
    let (headers, body): (Headers, Bytes) = (headers.collect(), one("body").unwrap_or_default().into());
    (one("topic").unwrap(), Kept { offset: 7, key: one("key").unwrap_or_default(), body: Some(body), headers })
}

fn read(kept: &str) -> Envelope {
    let (topic, Kept { key, body, headers, .. }) = given(kept);
    (*message_of(&topic, Some(key.as_bytes()), &headers, body.unwrap(), &names()).unwrap()).clone()
}

#[test]
fn a_message_on_kafka_keeps_its_topic_key_and_headers() {
    let source = Source::parse("/shop").unwrap();
    for (sent, to, written_as, kept) in [
        (golden::small(), "endpoint:shop", WrittenAs::Plain, SMALL),
        (golden::full(), "topic:shop.item-added", WrittenAs::Plain, FULL),
        (golden::full(), "endpoint:shop", WrittenAs::CloudEvents(source.clone()), EVENT),
        (golden::full(), "endpoint:shop", WrittenAs::StructuredCloudEvents(source), STRUCTURED),
    ] {
        let outgoing = Outgoing { destination: Destination::parse(to).unwrap(), envelope: sent.clone().into() };
        let topic = names().address(&outgoing.destination);
        golden::same(&text(&parcel(&outgoing, topic, written(&sent, &written_as))), kept);
        golden::same_message(&read(kept), &sent);
    }
}

/// Its key is a hash of what makes a letter the same: it is there once, whichever version adds it again.
#[test]
fn a_dead_letter_on_kafka_keeps_its_topic_key_and_headers() {
    let letter = golden::letter();
    let headers = headers_of(&letter.envelope, &WrittenAs::Plain);
    let lies = (("hapax.queue.shop".into(), 3), 41);
    let written = Letter::of(&names(), &letter, headers, Some(lies));
    golden::same(&text(&written.parcel(Extent::Whole)), LETTER);
    golden::same_letter(&letter_of(&given(LETTER).1, &letter.endpoint, &names()).unwrap(), &letter);

    golden::same(&text(&written.parcel(Extent::NoBody)), LETTER_WITHOUT_BODY);
    let read = letter_of(&given(LETTER_WITHOUT_BODY).1, &letter.endpoint, &names()).unwrap();
    let mut short = letter.clone();
    short.envelope = Envelope { body: Bytes::new(), ..golden::full() }.into();
    short.reason += "; too large for a letter: its body of 25 bytes lies at hapax.queue.shop 3 41";
    golden::same_letter(&read, &short);
}

/// What another version has put there is looked for under the same names, by the same group.
#[test]
fn topics_and_groups_on_kafka_keep_their_names() {
    let (names, shop) = (names(), "shop:eu".parse().unwrap());
    assert_eq!(
        [names.queue(&shop), names.dead_letters(&shop), names.notes(&shop), names.group(&shop)],
        ["hapax.queue.shop_3aeu", "hapax.dead-letters.shop_3aeu", "hapax.notes.shop_3aeu", "hapax.shop_3aeu"]
    );
    assert_eq!(names.topic(&"shop.item-added".parse().unwrap()), "hapax.topic.shop.item-added");
    assert_eq!([names.topics(), names.nobodys()], ["hapax.topic.", "hapax.opening"]);
    let long = names.queue(&":".repeat(100).parse().unwrap());
    assert_eq!(long, format!("hapax.queue.{}_3__27dc9c8a7198fcffcaf21b97f12e3833", "_3a".repeat(48)));
    assert_eq!(number_of("hapax.queue.shop"), 6_257_286_718_569_738_559, "in marks");
}
