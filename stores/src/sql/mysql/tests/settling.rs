//! What was there already is confirmed only when it is on the disk.

use std::sync::Arc;

use hapax_core::{
    entity::{DedupEntry, Entity, Expected},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, Saved},
    time::Timestamp,
};

use super::Place;

fn entry(key: u8) -> DedupEntry {
    DedupEntry {
        key: DedupKey::from_bytes([key; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([key; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    }
}

fn envelope(bytes: usize) -> Envelope {
    Envelope::new(MessageId::random(), "m".parse().unwrap(), vec![0; bytes])
}

/// How many changes have been made for what was shown.
async fn settled(place: &Place) -> i64 {
    let times = place.text("SELECT times FROM hapax.settled");
    sqlx::query_scalar(times).fetch_one(&mut place.connect().await).await.unwrap()
}

/// The server shows the entry of another process before it is on the disk; finding it there changes nothing, and such a commit
/// waits for no disk.
#[tokio::test]
async fn a_dedup_entry_that_was_there_is_confirmed_after_a_change_of_our_own_and_a_new_one_needs_none() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let others = place.options.clone().writers(1).open().await.unwrap();
    others.insert(&[entry(1)]).await.unwrap();
    others.insert(&[entry(2), entry(3)]).await.unwrap();
    let mut before = settled(&place).await;
    assert_eq!(before, 0, "all of them were new");

    let large = |key| {
        let destination = Destination::Endpoint("e".parse().unwrap());
        let reply = Outgoing { destination, envelope: Arc::new(envelope(3 << 20)) };
        DedupEntry { reply: Some(reply), ..entry(key) }
    };
    for (entries, what) in [
        (vec![entry(1)], "one by itself"),
        (vec![entry(2), entry(3)], "several"),
        (vec![entry(4), entry(1)], "one of several"),
        (vec![large(1), large(5)], "too large for a text"),
    ] {
        store.insert(&entries).await.unwrap();
        let now = settled(&place).await;
        assert_eq!(now, before + 1, "{what}");
        before = now;
    }
    // An entity's row is a change.
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    let key = EntityKey::new(Arc::new(scope), "k".parse().unwrap());
    store.load(&key, &[]).await.unwrap();
    let entity = Entity { state: "state".into(), ..Entity::default() };
    assert!(matches!(store.save(&key, &Expected::Absent, &entity, &[]).await.unwrap(), Saved::At(_)));
    before = settled(&place).await;
    let key = EntityKey::new(key.scope().clone(), "another".parse().unwrap());
    assert!(matches!(store.save(&key, &Expected::Absent, &entity, &[entry(1)]).await.unwrap(), Saved::At(_)));
    assert_eq!(settled(&place).await, before);
    store.close().await;
    others.close().await;
    place.end().await;
}

#[tokio::test]
async fn a_dead_letter_that_was_there_is_confirmed_after_a_change_of_our_own() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let others = place.options.clone().writers(1).open().await.unwrap();
    let letter = DeadLetter {
        envelope: Arc::new(envelope(1)),
        endpoint: "e".parse().unwrap(),
        saga: None,
        destination: None,
        attempts: 1,
        time: Timestamp::from_millis(1),
        reason: "no".to_owned(),
    };
    others.add(&letter).await.unwrap();
    let before = settled(&place).await;
    store.add(&letter).await.unwrap();
    assert!(settled(&place).await > before);
    store.close().await;
    others.close().await;
    place.end().await;
}
