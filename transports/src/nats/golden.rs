//! What the server is given, held still: see [`crate::golden`].
#![allow(clippy::unwrap_used)]

use async_nats::HeaderMap;
use bytes::Bytes;
use hapax_core::envelope::{Destination, Envelope, Outgoing, cloudevents::Source};

use super::{
    WrittenAs,
    dispatcher::parcel,
    letters::{digest, letter_extras, letter_of, lettered},
    message::{envelope_of, map_of, written},
    names::{Names, Part},
    publisher::Parcel,
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const LETTER: &str = include_str!("golden/letter.txt");

fn names() -> Names {
    Names::new("hapax").unwrap()
}

/// The subject, then the headers as they are written, then the body.
fn text(parcel: &Parcel) -> String {
    let headers = parcel.headers.iter().map(|(name, value)| (format!("header {name}"), value.clone()));
    let subject = ("subject".to_owned(), parcel.subject.clone());
    let body = ("body".to_owned(), String::from_utf8(parcel.body.to_vec()).unwrap());
    golden::text([subject].into_iter().chain(headers).chain([body]))
}

/// As the driver gives it: subject, headers in a table of its own, and body.
fn given(kept: &str) -> (String, HeaderMap, Bytes) {
    let lines = golden::lines(kept);
    let one = |wanted: &str| lines.iter().find(|(name, _)| *name == wanted).unwrap().1.clone();
    let headers = lines.iter().filter_map(|(name, value)| Some((name.strip_prefix("header ")?, value.as_str())));
    (one("subject"), map_of(headers), one("body").into())
}

fn read(kept: &str) -> Envelope {
    let (subject, headers, body) = given(kept);
    (*envelope_of(&subject, Some(&headers), body, &names()).unwrap()).clone()
}

#[test]
fn a_message_on_nats_keeps_its_subject_and_headers() {
    let source = Source::parse("/shop").unwrap();
    for (sent, to, written_as, kept) in [
        (golden::small(), "endpoint:shop", WrittenAs::Plain, SMALL),
        (golden::full(), "topic:shop.item-added", WrittenAs::Plain, FULL),
        (golden::full(), "endpoint:shop", WrittenAs::CloudEvents(source.clone()), EVENT),
        (golden::full(), "endpoint:shop", WrittenAs::StructuredCloudEvents(source), STRUCTURED),
    ] {
        let outgoing = Outgoing { destination: Destination::parse(to).unwrap(), envelope: sent.clone().into() };
        golden::same(&text(&parcel(&names(), &outgoing, written(&sent, &written_as), golden::now())), kept);
        golden::same_message(&read(kept), &sent);
    }
}

/// Where it is is a hash of what makes a letter the same: it is there once, whichever version adds it again.
#[test]
fn a_dead_letter_on_nats_keeps_its_subject_and_headers() {
    const BYTES_MAX: usize = 1 << 20;
    let letter = golden::letter();
    let (envelope, endpoint) = (&letter.envelope, &letter.endpoint);
    let (saga, destination) = (letter.saga.as_ref(), letter.destination.as_ref());
    let extras = letter_extras(endpoint, saga, destination, letter.attempts, &letter.reason, letter.time);
    let (headers, body) = written(envelope, &WrittenAs::Plain);
    let headers = lettered(headers, &extras, &body, BYTES_MAX);
    let subject = names().letter(endpoint, &digest(envelope, saga, destination));
    golden::same(&text(&Parcel { subject, headers, body }), LETTER);
    let (_, headers, _) = given(LETTER);
    golden::same_letter(&letter_of(&headers, read(LETTER).into(), endpoint), &letter);
}

/// What another version has put there is looked for under the same names, and given to the same consumers.
#[test]
fn streams_subjects_and_consumers_on_nats_keep_their_names() {
    let names = names();
    let (shop, topic) = ("shop.eu".parse().unwrap(), "shop.item-added".parse().unwrap());
    assert_eq!(names.queue(&shop), "hapax-queue-shop=2Eeu");
    assert_eq!(
        [names.topics(), names.dead_letters(), names.uncounted()],
        ["hapax-topics", "hapax-dead-letters", "hapax-uncounted"]
    );
    assert_eq!(names.queue_subjects(&shop), ["hapax.queue.shop=2Eeu.*", "hapax.queue.shop=2Eeu"]);
    assert_eq!(names.topics_subjects(), ["hapax.topic.*.>"]);
    assert_eq!(names.dead_letters_subjects(), ["hapax.dead-letters.*.*"]);
    assert_eq!(names.uncounted_subjects(), ["hapax.uncounted.>"]);
    assert_eq!(names.letters_of(&shop), "hapax.dead-letters.shop=2Eeu.*");
    assert_eq!(names.uncounted_of("q", "c", 7, "1700"), "hapax.uncounted.q.c.7.1700");
    for (part, consumer, queue, subject) in [
        (Part::All, "", "", "hapax.topic.*.shop.item-added"),
        (Part::Slot(3), "~3", "hapax.queue.shop=2Eeu.3", "hapax.topic.3.shop.item-added"),
        (Part::NoSlot, "~-", "hapax.queue.shop=2Eeu", "hapax.topic.-.shop.item-added"),
    ] {
        assert_eq!(Names::queue_consumer(part), format!("receivers{consumer}"));
        assert_eq!(Names::topic_consumer(&shop, &topic, part), format!("shop=2Eeu~shop=2Eitem-added{consumer}"));
        assert_eq!([names.queue_filter(&shop, part), names.topic_filter(&topic, part)], [queue, subject]);
    }
    let long = names.queue(&".".repeat(100).parse().unwrap());
    assert_eq!(long, format!("hapax-queue-{}==d4d79b146ba203be0bf2fe0a86f30b46", "=2E".repeat(22)));
}
