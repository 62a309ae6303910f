//! What the server is given, held still: see [`crate::golden`].
#![allow(clippy::unwrap_used)]

use ::redis::Cmd;
use hapax_core::envelope::cloudevents::Source;

use super::{
    WrittenAs,
    answer::{Entry, Field},
    letters::{Letter, letter_of},
    message::{Fields, envelope_of},
    names::Names,
};
use crate::golden;

const SMALL: &str = include_str!("golden/small.txt");
const FULL: &str = include_str!("golden/full.txt");
const EVENT: &str = include_str!("golden/event.txt");
const STRUCTURED: &str = include_str!("golden/structured.txt");
const LETTER: &str = include_str!("golden/letter.txt");

/// The fields of an entry in their order, as they are written to the server: each argument behind its length (RESP).
fn text(write: impl FnOnce(&mut Cmd)) -> String {
    let mut command = Cmd::new();
    write(&mut command);
    let packed = String::from_utf8(command.get_packed_command()).unwrap();
    let (_, mut rest) = packed.split_once("\r\n").unwrap(); // How many there are.
    let mut arguments = Vec::new();
    while let Some((length, more)) = rest.strip_prefix('$').and_then(|rest| rest.split_once("\r\n")) {
        let (argument, more) = more.split_at(length.parse().unwrap());
        arguments.push(argument);
        rest = more.strip_prefix("\r\n").unwrap();
    }
    golden::text(arguments.chunks(2).map(|field| (field[0], field[1])))
}

/// As the server gives it back.
fn given(kept: &str) -> Vec<Field> {
    golden::lines(kept).into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.into_bytes())).collect()
}

#[test]
fn a_message_on_redis_keeps_its_fields() {
    let source = Source::parse("/shop").unwrap();
    for (sent, written_as, kept) in [
        (golden::small(), WrittenAs::Plain, SMALL),
        (golden::full(), WrittenAs::Plain, FULL),
        (golden::full(), WrittenAs::CloudEvents(source.clone()), EVENT),
        (golden::full(), WrittenAs::StructuredCloudEvents(source), STRUCTURED),
    ] {
        golden::same(&text(|command| Fields::of(&sent, &written_as).write(command)), kept);
        golden::same_message(&envelope_of(&given(kept)).unwrap(), &sent);
    }
}

/// By its identity it is there once, whichever version adds it again.
#[test]
fn a_dead_letter_on_redis_keeps_its_fields_and_its_identity() {
    let kept = golden::letter();
    let letter = Letter::of(&kept);
    golden::same(&text(|command| letter.write(command)), LETTER);
    assert_eq!(letter.identity(), "2ba618f84101ad7001fcafdb0ad02f2a order topic:shop.item-added order 7/ü");
    let entry = Entry { id: "1-1".to_owned(), fields: given(LETTER) };
    golden::same_letter(&letter_of(entry, &kept.endpoint).unwrap(), &kept);
}

/// What another version has put there is looked for under the same names.
#[test]
fn keys_on_redis_keep_their_names() {
    let names = Names::new("hapax").unwrap();
    let all = [
        "hapax:queue:shop",
        "hapax:later:shop",
        "hapax:uncounted:shop",
        "hapax:active:shop",
        "hapax:dead-letters:shop",
        "hapax:dead-letter-ids:shop",
    ];
    assert_eq!(names.all(&"shop".parse().unwrap()), all);
    assert_eq!(names.topic(&"shop.item-added".parse().unwrap()), "hapax:topic:shop.item-added");
}
