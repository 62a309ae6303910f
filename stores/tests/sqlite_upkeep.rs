//! What runs beside the messages, on SQLite: purge, the sweeper's list, dead letters, limits.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use common::*;
use futures_util::future::join_all;
use hapax_core::{
    entity::{Entity, Expected, Version},
    ports::{DedupStore, EntityStore, Saved},
};

#[tokio::test]
async fn a_version_is_not_used_again_after_a_purge() {
    let place = Place::new();
    let store = place.open().await;
    let tombstone = Entity { completed: true, ..Entity::default() };
    let mut last = Vec::new();
    for n in 0..3 {
        let key = entity_key(&format!("{n}"));
        let mut version = save(&store, &key, Expected::Absent, &entity("s", &[])).await;
        for _ in 0..n {
            version = save(&store, &key, Expected::Version(version), &entity("s", &[])).await;
        }
        last.push(save(&store, &key, Expected::Version(version), &tombstone).await.as_number().unwrap());
    }
    assert_eq!(store.purge(&scope(), std::time::Duration::ZERO, 2).await.unwrap(), 2);
    assert_eq!(store.purge(&scope(), std::time::Duration::ZERO, 2).await.unwrap(), 1);
    for (n, last) in last.into_iter().enumerate() {
        let key = entity_key(&format!("{n}"));
        assert_eq!(store.load(&key, &[]).await.unwrap().stored, None);
        let late = store.save(&key, &Expected::Version(Version::number(last)), &tombstone, &[]).await;
        assert_eq!(late.unwrap(), Saved::Conflict);
        let again = save(&store, &key, Expected::Absent, &entity("again", &[])).await;
        assert!(again.as_number().unwrap() > last, "{again:?} after {last}");
    }
}

#[tokio::test]
async fn a_purge_spares_the_young_the_living_and_those_with_an_outbox() {
    let place = Place::new();
    let store = place.open().await;
    save(&store, &entity_key("living"), Expected::Absent, &entity("s", &[])).await;
    let waiting = Entity { completed: true, ..entity("", &[1]) };
    save(&store, &entity_key("waiting"), Expected::Absent, &waiting).await;
    let tombstone = Entity { completed: true, ..Entity::default() };
    save(&store, &entity_key("over"), Expected::Absent, &tombstone).await;
    assert_eq!(store.purge(&scope(), std::time::Duration::from_secs(60), 10).await.unwrap(), 0);
    assert_eq!(store.purge(&scope(), std::time::Duration::MAX, 10).await.unwrap(), 0);
    assert_eq!(store.purge(&scope(), std::time::Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(place.number("SELECT count(*) FROM hapax_entity").await, 2);
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_nothing_of_it_is_stored() {
    let place = Place::new();
    let store = place.open().await;
    let huge = Entity { state: vec![0; store.capabilities().entity_bytes_max].into(), ..Entity::default() };
    let key = entity_key("huge");
    let refused = store.save(&key, &Expected::Absent, &huge, &[dedup_entry(1)]).await.unwrap_err();
    assert_eq!(refused.kind(), hapax_core::ports::ErrorKind::TooLarge);
    assert!(store.load(&key, &[]).await.unwrap().stored.is_none());
    assert!(store.contains(&[dedup_key(1)]).await.unwrap().entry(&dedup_key(1)).is_none());
}

#[tokio::test]
async fn large_entities_are_grouped_by_size() {
    let place = Place::new();
    let store = place.open().await;
    name(&store).await;
    let large = Entity { state: vec![7; 3 << 20].into(), ..Entity::default() };
    join_all((0..8).map(|n| {
        let (store, large) = (&store, &large);
        async move { save(store, &entity_key(&format!("{n}")), Expected::Absent, large).await }
    }))
    .await;
    assert_eq!(store.load(&entity_key("7"), &[]).await.unwrap().stored.unwrap().entity, large);
}

#[tokio::test]
async fn only_entries_older_than_asked_for_are_pending() {
    use std::time::Duration;
    let place = Place::new();
    let store = place.open().await;
    let key = entity_key("a");
    let first = save(&store, &key, Expected::Absent, &entity("s", &[1])).await;
    assert!(store.pending(&scope(), Duration::from_secs(60), None, 10).await.unwrap().is_empty());
    place
        .run(
            "UPDATE hapax_entity SET pending_since = pending_since - 100000, pending = (SELECT \
             json_group_object(key, json_array(value ->> 0, (value ->> 1) - 100000)) FROM json_each(pending))",
        )
        .await;
    // A later entry beside it is young, and the older one keeps its age through the save.
    let second = save(&store, &key, Expected::Version(first), &entity("s", &[1, 2])).await;
    let pending = store.pending(&scope(), Duration::from_secs(60), None, 10).await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0].key, key);
    assert_eq!(pending[0].entries.iter().map(|entry| entry.attempt).collect::<Vec<_>>(), [attempt(1)]);
    assert!(pending[0].entries[0].age >= Duration::from_secs(60));
    assert_eq!(store.pending(&scope(), Duration::ZERO, None, 10).await.unwrap()[0].entries.len(), 2);
    // With the older one gone, the entity is young.
    let third = save(&store, &key, Expected::Version(second), &entity("s", &[2])).await;
    assert!(store.pending(&scope(), Duration::from_secs(60), None, 10).await.unwrap().is_empty());
    save(&store, &key, Expected::Version(third), &entity("s", &[])).await;
    assert!(store.pending(&scope(), Duration::ZERO, None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn pending_entities_are_listed_in_pages_by_key() {
    use std::time::Duration;
    let place = Place::new();
    let store = place.open().await;
    join_all((0..25_u64).map(|n| {
        let store = &store;
        async move { save(store, &entity_key(&format!("{n:02}")), Expected::Absent, &entity("s", &[n])).await }
    }))
    .await;
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.pending(&scope(), Duration::ZERO, after.as_ref(), 10).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        seen.extend(page.into_iter().map(|pending| pending.key.key().to_string()));
    }
    assert_eq!(seen, (0..25).map(|n| format!("{n:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_damaged_list_of_outbox_entries_hides_no_other_entity() {
    use std::time::Duration;
    const DAMAGES: [&str; 6] = [
        "pending = 'no json'",
        "pending = '{\"a\":'",
        "pending = '{\"no hex\":[\"\",5]}'",
        "pending = '{\"0909\":\"text\"}'",
        "pending = '[1]'",
        "key = CAST(x'35ff' AS TEXT)", // Between 5 and 6, and no text.
    ];
    for damage in DAMAGES {
        let place = Place::new();
        let store = place.open().await;
        for n in 0..8_u64 {
            save(&store, &entity_key(&format!("{n}")), Expected::Absent, &entity("s", &[n])).await;
        }
        let (damaged, whole) = if damage.starts_with("key") {
            ("'5'", vec![0, 1, 2, 3, 4, 6, 7])
        } else {
            ("'0','3','4','5','7'", vec![1, 2, 6])
        };
        place.run(&format!("UPDATE hapax_entity SET {damage} WHERE key IN ({damaged})")).await;
        for page in [1, 2, 3, 100] {
            let mut seen = Vec::new();
            let mut after = None;
            loop {
                let listed = store.pending(&scope(), Duration::ZERO, after.as_ref(), page).await.unwrap();
                seen.extend(listed.iter().map(|pending| pending.key.key().to_string()));
                // As the sweeper pages: what is short is the last.
                match listed.last() {
                    Some(last) if listed.len() == page => after = Some(last.key.clone()),
                    _ => break,
                }
            }
            assert_eq!(seen, whole.iter().map(ToString::to_string).collect::<Vec<_>>(), "{damage}, pages of {page}");
        }
    }
}

#[tokio::test]
async fn a_damaged_list_of_outbox_entries_fails_no_load_but_its_own() {
    let place = Place::new();
    let store = place.open().await;
    let keys: Vec<_> = (0..8_u64).map(|n| entity_key(&format!("{n}"))).collect();
    for (key, n) in keys.iter().zip(0..) {
        save(&store, key, Expected::Absent, &entity("s", &[n])).await;
    }
    place.run("UPDATE hapax_entity SET pending = 'no json' WHERE key = '3'").await;
    let loaded = join_all(keys.iter().map(|key| store.load(key, &[]))).await;
    let failed: Vec<_> = (0..).zip(&loaded).filter(|(_, loaded)| loaded.is_err()).map(|(n, _)| n).collect();
    assert_eq!(failed, [3]);
}

#[tokio::test]
async fn a_dead_letter_is_kept_whole_and_once() {
    use std::sync::Arc;

    use hapax_core::ports::{DeadLetter, DeadLetters, Page};
    let place = Place::new();
    let store = place.open().await;
    let letter = |body: &str, sent: bool| {
        let outgoing = outgoing(body);
        let mut envelope = (*outgoing.envelope).clone();
        envelope.headers.set("x-why", "a test").unwrap();
        DeadLetter {
            envelope: Arc::new(envelope),
            endpoint: scope().endpoint.clone(),
            saga: sent.then(|| scope().saga.clone()),
            destination: sent.then_some(outgoing.destination),
            reason: "no: because".into(),
            attempts: 3,
            time: hapax_core::time::Timestamp::from_millis(1_700_000_000_000),
        }
    };
    let (one, two) = (letter("one", true), letter("two", false));
    let mut other_body = (*one.envelope).clone();
    other_body.body = b"one, and more".as_slice().into();
    let other_body = DeadLetter { envelope: Arc::new(other_body), ..one.clone() };
    let same_message_not_sent = DeadLetter { destination: None, ..one.clone() };
    for letter in [&one, &two, &one, &same_message_not_sent, &two, &other_body, &one, &other_body] {
        store.add(letter).await.unwrap();
    }
    let all = store.list(&scope().endpoint, &Page::first(10)).await.unwrap();
    assert_eq!(all, [one.clone(), two.clone(), same_message_not_sent.clone(), other_body.clone()]);
    let page = Page { skip: 1, limit: 1, message_id: None };
    assert_eq!(store.list(&scope().endpoint, &page).await.unwrap(), [two]);
    let page = Page { message_id: Some(one.envelope.message_id.clone()), ..Page::first(10) };
    assert_eq!(store.list(&scope().endpoint, &page).await.unwrap(), [one, same_message_not_sent, other_body]);
    assert!(store.list(&"other".parse().unwrap(), &Page::first(10)).await.unwrap().is_empty());
}
