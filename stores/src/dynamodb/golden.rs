//! What items hold, held still: see [`crate::golden`]. In a text an item begins with its two keys; its other attributes have the letter of
//! their type before them.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{DedupEntry, Entity, OutboxEntry},
    envelope::Envelope,
    ports::{DeadLetter, Pending, PendingEntry},
};
use uuid::Uuid;

use super::{
    call::Doing,
    dedup,
    entity::{Read, into_bytes, write},
    keys::{BYTES, Item, PK, Place, SK, bytes, number, text},
    letters, table,
    token::Token,
    upkeep,
};
use crate::golden::{self, NOW};

const DOING: Doing = Doing::writing("a test");
/// Instead of what is drawn anew for each save.
const WRITE: &str = "00000000000000000000000000000007";

fn told(items: &[Item]) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    for item in items {
        lines.extend([PK, SK].map(|name| (name.to_owned(), item[name].as_s().unwrap().clone())));
        let more: BTreeMap<_, _> = item.iter().filter(|(name, _)| name.as_str() != PK && name.as_str() != SK).collect();
        lines.extend(more.into_iter().map(|(name, value)| match value {
            AttributeValue::S(text) => (format!("s {name}"), text.clone()),
            AttributeValue::N(number) => (format!("n {name}"), number.clone()),
            AttributeValue::B(bytes) => (format!("b {name}"), golden::short_hex(bytes.as_ref())),
            other => panic!("{name} is {other:?}"),
        }));
    }
    golden::text(lines)
}

fn items(kept: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for (name, value) in golden::lines(kept) {
        if name == PK {
            items.push(Item::new());
        }
        let (name, value) = match name.split_once(' ') {
            None => (name, text(value)),
            Some(("s", name)) => (name, text(value)),
            Some(("n", name)) => (name, number(value)),
            Some(("b", name)) => (name, bytes(golden::short_unhex(&value))),
            other => panic!("{other:?}"),
        };
        items.last_mut().unwrap().insert(name.to_owned(), value);
    }
    items
}

/// What is in chunks, by their places.
fn chunks(items: &[Item]) -> HashMap<Place, Vec<u8>> {
    let chunk = |item: &Item| (Place::of(item).unwrap(), into_bytes(item[BYTES].clone()).unwrap());
    items.iter().map(chunk).collect()
}

/// As it is written, and read from the text.
#[track_caller]
fn is_kept(entity: &Entity, kept: &str) {
    let key = golden::key();
    let written = write(DOING, &key, None, entity, false, NOW).unwrap();
    let drawn = Token::parse(&written.version).unwrap().write.simple().to_string();
    let all: Vec<Item> = std::iter::once(written.item).chain(written.puts).collect();
    golden::same(&told(&all).replace(&drawn, WRITE), kept);
    let mut items = items(kept);
    let chunks = chunks(&items[1..]);
    let read = Read::of(DOING, Place::entity(&key), items.swap_remove(0)).unwrap();
    assert_eq!(read.chunks().len(), chunks.len());
    let read = read.into_entity(DOING, |place| chunks.get(place).cloned()).unwrap();
    golden::same_read(&read.expect("all chunks are there"), entity);
}

fn sends(number: u8, body: usize) -> Arc<OutboxEntry> {
    let envelope = Envelope { body: vec![b'x'; body].into(), ..golden::small() };
    Arc::new(golden::entry(number, vec![golden::outgoing("endpoint:desk", envelope)]))
}

#[test]
fn an_entity_keeps_its_item_in_dynamodb() {
    let kept = include_str!("golden/entity.txt");
    is_kept(&golden::entity(), kept);
    let waits = PendingEntry { attempt: golden::mark().attempt, age: Duration::from_millis(700) };
    let listed = upkeep::pending(DOING, golden::key().scope(), &items(kept)[0], NOW + 700, Duration::ZERO).unwrap();
    assert_eq!(listed, Some(Pending { key: golden::key(), entries: vec![waits] }));
    is_kept(&golden::tombstone(), include_str!("golden/tombstone.txt"));
}

#[test]
fn an_entity_of_several_items_keeps_them_in_dynamodb() {
    let state = [vec![1, 1], vec![b'x'; 400_000]].concat();
    let small = golden::entry(5, vec![golden::outgoing("endpoint:desk", golden::small())]);
    let large =
        Entity { state: Bytes::from(state), outbox: vec![sends(4, 70_000), Arc::new(small)], ..golden::entity() };
    is_kept(&large, include_str!("golden/large.txt"));
    let outbox = (1..8).map(|number| sends(number, 60_000)).collect();
    is_kept(&Entity { outbox, ..golden::entity() }, include_str!("golden/outbox.txt"));
}

#[test]
fn a_dedup_entry_keeps_its_item_in_dynamodb() {
    let kept = include_str!("golden/mark.txt");
    let marks = [golden::mark(), DedupEntry { reply: None, ..golden::mark() }];
    let written = [&marks[0], &marks[1]].map(|mark| dedup::item_of(DOING, mark, 1_700_604_801).unwrap());
    golden::same(&told(&written), kept);
    for (item, mark) in items(kept).into_iter().zip(&marks) {
        golden::same_read(&dedup::read(DOING, item).unwrap(), mark);
    }
}

/// As it is written, and read from the text.
#[track_caller]
fn is_letter_kept(letter: &DeadLetter, kept: &str) {
    let envelope = record::encode_envelope(&letter.envelope).unwrap();
    let (cause, written) = letters::items_of(letter, envelope, NOW, Uuid::from_u128(9));
    let all: Vec<Item> = std::iter::once(cause).chain(written).collect();
    golden::same(&told(&all), kept);
    let items = items(kept);
    let item = &items[1];
    let envelope = match item.get(BYTES) {
        Some(bytes) => into_bytes(bytes.clone()).unwrap(),
        None => {
            let chunks = chunks(&items[2..]);
            letters::chunks_of(item).unwrap().iter().flat_map(|place| chunks[place].clone()).collect()
        }
    };
    let read = letters::read(item, &letter.endpoint, record::decode_envelope(&envelope).unwrap());
    golden::same_read(&read.unwrap(), letter);
}

#[test]
fn a_dead_letter_keeps_its_items_in_dynamodb() {
    is_letter_kept(&golden::letter(), include_str!("golden/letter.txt"));
    let envelope = Envelope { body: vec![b'x'; 400_000].into(), ..golden::small() };
    let large = DeadLetter {
        envelope: Arc::new(envelope),
        saga: None,
        destination: None,
        reason: "no more tries".to_owned(),
        attempts: 3,
        ..golden::letter()
    };
    is_letter_kept(&large, include_str!("golden/large_letter.txt"));
}

#[test]
fn what_a_table_of_dynamodb_says_of_itself_is_kept() {
    let kept = include_str!("golden/table.txt");
    golden::same(&told(&[table::of_itself(864_000)]), kept);
    assert_eq!(table::stored_keeps("a test", &items(kept)[0]).unwrap(), 864_000);
}
