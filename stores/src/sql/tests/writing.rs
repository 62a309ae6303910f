//! What becomes of a group, and of what met others.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    entity::{Entity, Expected},
    envelope::Envelope,
    ids::{EntityKey, MessageId, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Saved, StoreError},
    time::Timestamp,
};
use sqlx::Executor;

use super::{Place, rig::*};

fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    EntityKey::new(Arc::new(scope), name.parse().unwrap())
}

async fn save(store: Store, name: &str, expected: Expected) -> Result<Saved, StoreError> {
    store.save(&key(name), &expected, &Entity { state: "state".into(), ..Entity::default() }, &[]).await
}

/// One is refused, so that the group is written one by one; by then another one's caller has gone.
#[tokio::test]
async fn of_a_group_that_is_written_one_by_one_what_nobody_waits_for_is_left_out() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let held = save(store.clone(), "held", Expected::Absent).await.unwrap();
    let Saved::At(version) = held else { panic!("{held:?}") };
    place.run(REFUSE).await;
    let mut other = place.connect().await;
    other.execute(sqlx::raw_sql(place.text(HOLD))).await.unwrap();

    // One group: they are queued before the writer runs, in this runtime's only thread.
    let refused = tokio::spawn(save(store.clone(), "refused", Expected::Absent));
    let left = tokio::spawn(save(store.clone(), "left", Expected::Absent));
    let waits = tokio::spawn(save(store.clone(), "held", Expected::Version(version)));
    until_a_group_waits(&place, "left").await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    other.execute("COMMIT").await.unwrap();

    assert_eq!(refused.await.unwrap().unwrap_err().kind(), ErrorKind::Misconfigured);
    assert!(matches!(waits.await.unwrap().unwrap(), Saved::At(_)));
    assert!(store.load(&key("left"), &[]).await.unwrap().stored.is_none(), "nobody waited for it");
    store.close().await;
    place.end().await;
}

async fn lost(place: &Place) -> i64 {
    let lost = place.text(LOST);
    sqlx::query_scalar(lost).fetch_one(&mut place.connect().await).await.unwrap()
}

fn letter() -> DeadLetter {
    let id = MessageId::parse("letter").unwrap();
    DeadLetter {
        envelope: Arc::new(Envelope::new(id, "sample.refused".parse().unwrap(), "body")),
        endpoint: "e".parse().unwrap(),
        saga: None,
        destination: None,
        reason: "why".to_owned(),
        attempts: 3,
        time: Timestamp::from_millis(0),
    }
}

/// A deadlock is nobody's fault, and nobody is told of one that the next try gets past: of writes, and of what is rare.
#[tokio::test]
async fn lost_races_are_tried_again_without_a_word() {
    const RACES: u32 = 5;
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let tried = async || assert_eq!(lost(&place).await, i64::from(RACES) + 1);

    place.run(&losing("scope", "INSERT", RACES)).await;
    let saved = save(store.clone(), "k", Expected::Absent).await.unwrap();
    tried().await;
    place.run(&losing("entity", "UPDATE", RACES)).await;
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    let over = Entity { completed: true, ..Entity::default() };
    let saved = store.save(&key("k"), &Expected::Version(version), &over, &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    tried().await;
    place.run(&losing("entity", "DELETE", RACES)).await;
    assert_eq!(store.purge(key("k").scope(), Duration::ZERO, 10).await.unwrap(), 1);
    tried().await;
    place.run(&losing("dead_letter", "INSERT", RACES)).await;
    DeadLetters::add(&store, &letter()).await.unwrap();
    tried().await;
    place.run(&losing("generation", "UPDATE", RACES)).await;
    store.insert(&[super::generations::entry(1)]).await.unwrap();
    store.evict(Duration::from_millis(1)).await.unwrap();
    tried().await;

    // Not for ever; and then that is what is told.
    place.run(&losing("dead_letter", "INSERT", 1000)).await;
    let other = DeadLetter { reason: "another".to_owned(), endpoint: "other".parse().unwrap(), ..letter() };
    let error = DeadLetters::add(&store, &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("met other transactions again and again"), "{error}");
    assert!((5..50).contains(&lost(&place).await));
    store.close().await;
    place.end().await;
}
