//! Documents of a user's own may stand beside the store's, under a partition key of his: its name must be none that the store writes.
#![allow(clippy::unwrap_used)]
use super::{super::places::property_of, *};

/// A partition key of a user's own under one of these names could not be written beside what is there.
#[test]
fn no_property_of_a_document_is_taken_for_a_partition_key_of_a_users_own() {
    let text = || "x".to_owned();
    let some = || Some(text());
    let entity = EntityDocument {
        id: text(),
        pk: text(),
        entity: some(),
        format: FORMAT,
        save: text(),
        state: text(),
        record: text(),
        waits: some(),
        waiting: some(),
        oldest: Some(1),
        ended: some(),
        ttl: Some(1),
        etag: text(),
        stamp: 1,
    };
    let mark = MarkDocument {
        id: text(),
        pk: text(),
        format: FORMAT,
        attempt: text(),
        fingerprint: text(),
        reply: some(),
        time: 1,
        ttl: 1,
    };
    let letter = LetterDocument {
        id: text(),
        pk: text(),
        format: FORMAT,
        sorted: text(),
        message: text(),
        envelope: text(),
        saga: some(),
        destination: some(),
        reason: text(),
        attempts: 1,
        time: 1,
    };
    let settings =
        SettingsDocument { id: text(), pk: text(), format: FORMAT, layout: text(), keeps_seconds: 1, history: text() };
    let clock = ClockDocument { id: "x", pk: "x" };
    let documents = [
        serde_json::to_value(entity).unwrap(),
        serde_json::to_value(mark).unwrap(),
        serde_json::to_value(letter).unwrap(),
        serde_json::to_value(settings).unwrap(),
        serde_json::to_value(clock).unwrap(),
    ];
    let names = documents.iter().flat_map(|document| document.as_object().unwrap().keys());
    for name in names.filter(|name| *name != "pk") {
        assert_eq!(property_of(&format!("/{name}")), None);
    }
    assert_eq!(property_of("/order"), Some("order"));
}
