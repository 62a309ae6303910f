//! What documents hold, held still: see [`crate::golden`]. What is drawn anew for each document has a value of its own in a text; what the
//! service adds is not in it.
#![allow(clippy::unwrap_used)]

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    super::{options::Layout, places::OWN_PARTITION, start::SETTINGS},
    *,
};
use crate::golden::{self, same_read};

const DOING: &str = "a test";
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// When the service has written a document, in seconds since 1970.
const STAMP: u32 = 1_700_000_000;
/// Instead of what is drawn anew.
const SAVE: &str = "00000000000000000000000000000007";
const ORDER: &str = "00000000000000000000000000000009";

/// The order of properties is nobody's business.
#[track_caller]
fn same(document: &impl Serialize, kept: &str) {
    let (written, kept): (Value, Value) =
        (serde_json::to_value(document).unwrap(), serde_json::from_str(kept).unwrap());
    assert!(written == kept, "written:\n{written:#}\nkept:\n{kept:#}");
}

/// As the service gives it.
fn given<T: DeserializeOwned>(kept: &str) -> T {
    let mut document: Value = serde_json::from_str(kept).unwrap();
    for (name, value) in [("_etag", "\"e\"".into()), ("_ts", STAMP.into()), ("_rid", "r".into()), ("_self", "s".into())]
    {
        document[name] = value;
    }
    serde_json::from_value(document).unwrap()
}

/// As it is written over one with `before`, and read from the text.
#[track_caller]
fn is_kept(key: &EntityKey, entity: &Entity, before: &Waiting, kept: &str) {
    let mut document = EntityDocument::of(DOING, key, entity, &Waiting::of(entity, before), WEEK).unwrap();
    assert_eq!(document.save.len(), SAVE.len());
    SAVE.clone_into(&mut document.save);
    same(&document, kept);
    let stored = given::<EntityDocument>(kept).into_stored(key).unwrap();
    same_read(&stored.entity, entity);
    let (etag, waiting) = Waiting::of_version(&stored.version);
    let since: Vec<_> = entity.outbox.iter().map(|entry| (entry.attempt, STAMP)).collect();
    assert_eq!((etag, waiting.entries().collect::<Vec<_>>()), ("\"e\"", since));
}

#[test]
fn an_entity_keeps_its_document_in_cosmos() {
    let (key, entity) = (golden::key(), golden::entity());
    let alone = include_str!("golden/entity.json");
    is_kept(&key, &entity, &Waiting::default(), alone);
    // Saved once more, it says itself since when its entry waits.
    let version = given::<EntityDocument>(alone).version().unwrap();
    is_kept(&key, &entity, &Waiting::of_version(&version).1, include_str!("golden/later.json"));
    is_kept(&key, &golden::tombstone(), &Waiting::default(), include_str!("golden/tombstone.json"));
    let key = key.in_partition("customer 7".parse().unwrap());
    is_kept(&key, &entity, &Waiting::default(), include_str!("golden/among_others.json"));
    is_kept(&key, &golden::tombstone(), &Waiting::default(), include_str!("golden/tombstone_among_others.json"));
}

#[test]
fn what_waits_is_listed_from_documents_in_cosmos() {
    let (key, attempt) = (golden::key(), golden::mark().attempt);
    let among_others = key.clone().in_partition("customer 7".parse().unwrap());
    for (kept, key) in [
        (include_str!("golden/entity.json"), &key),
        (include_str!("golden/later.json"), &key),
        (include_str!("golden/among_others.json"), &among_others),
    ] {
        let row: WaitingRow = given(kept);
        assert_eq!(row.key(key.scope()).as_ref(), Some(key));
        assert_eq!(row.waiting().unwrap().entries().collect::<Vec<_>>(), [(attempt, STAMP)]);
    }
}

#[test]
fn a_dedup_entry_keeps_its_document_in_cosmos() {
    let partition = partition_of(&golden::key());
    for (mark, kept) in [
        (golden::mark(), include_str!("golden/mark.json")),
        (DedupEntry { reply: None, ..golden::mark() }, include_str!("golden/mark_without_reply.json")),
    ] {
        same(&MarkDocument::of(&partition, &mark, WEEK).unwrap(), kept);
        same_read(&given::<MarkDocument>(kept).into_entry().unwrap(), &mark);
    }
}

#[test]
fn a_dead_letter_keeps_its_document_in_cosmos() {
    let of_no_saga = DeadLetter {
        envelope: Arc::new(golden::small()),
        saga: None,
        destination: None,
        reason: "no more tries".to_owned(),
        attempts: 3,
        ..golden::letter()
    };
    for (letter, kept) in [
        (golden::letter(), include_str!("golden/letter.json")),
        (of_no_saga, include_str!("golden/letter_of_no_saga.json")),
    ] {
        let mut document = LetterDocument::of(&letter).unwrap();
        let (_, drawn) = document.sorted.split_once(' ').unwrap();
        assert_eq!(drawn.len(), ORDER.len());
        document.sorted = document.sorted.replace(drawn, ORDER);
        same(&document, kept);
        same_read(&given::<LetterDocument>(kept).into_letter(&letter.endpoint).unwrap(), &letter);
    }
}

#[test]
fn settings_keep_their_document_in_cosmos_and_those_of_the_first_version_are_read() {
    let settings = SettingsDocument {
        id: SETTINGS.to_owned(),
        pk: OWN_PARTITION.to_owned(),
        format: FORMAT,
        layout: Layout::Together.name().to_owned(),
        keeps_seconds: WEEK.as_secs(),
        history: String::new(),
    };
    let kept = include_str!("golden/settings.json");
    same(&settings, kept);
    for kept in [kept, include_str!("golden/first_settings.json")] {
        assert_eq!(given::<SettingsDocument>(kept), settings);
    }
    assert_eq!(Layout::Apart.name(), "apart");
}
