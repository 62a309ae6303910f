//! What becomes of what met others.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    entity::{Entity, Expected},
    envelope::Envelope,
    ids::{EntityKey, MessageId, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Saved},
    time::Timestamp,
};

use super::Place;

fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    EntityKey::new(Arc::new(scope), name.parse().unwrap())
}

/// Lets the first `races` rows that are written to `table` be the victims of a deadlock, as far as the store can tell. What
/// counts them is no part of the transaction.
async fn lose_races(place: &Place, table: &str, event: &str, races: u32) {
    let refuse = format!(
        "DROP SEQUENCE IF EXISTS hapax.lost; CREATE SEQUENCE hapax.lost; \
         CREATE OR REPLACE FUNCTION hapax.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('hapax.lost') <= {races} THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; \
           IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; \
           RETURN NEW; \
         END $$; \
         DROP TRIGGER IF EXISTS lose ON hapax.{table}; \
         CREATE TRIGGER lose BEFORE {event} ON hapax.{table} FOR EACH ROW EXECUTE FUNCTION hapax.lose()"
    );
    place.run(&refuse).await;
}

async fn lost(place: &Place) -> i64 {
    let lost = place.text("SELECT last_value FROM hapax.lost");
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

    lose_races(&place, "scope", "INSERT", RACES).await;
    let saved = store.save(&key("k"), &Expected::Absent, &Entity::default(), &[]).await.unwrap();
    tried().await;
    lose_races(&place, "entity", "UPDATE", RACES).await;
    let Saved::At(version) = saved else { panic!("{saved:?}") };
    let over = Entity { completed: true, ..Entity::default() };
    let saved = store.save(&key("k"), &Expected::Version(version), &over, &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)));
    tried().await;
    lose_races(&place, "entity", "DELETE", RACES).await;
    assert_eq!(store.purge(key("k").scope(), Duration::ZERO, 10).await.unwrap(), 1);
    tried().await;
    lose_races(&place, "dead_letter", "INSERT", RACES).await;
    DeadLetters::add(&store, &letter()).await.unwrap();
    tried().await;
    lose_races(&place, "generation", "UPDATE", RACES).await;
    store.insert(&[super::generations::entry(1)]).await.unwrap();
    store.evict(Duration::from_millis(1)).await.unwrap();
    tried().await;

    // Not for ever; and then that is what is told.
    lose_races(&place, "dead_letter", "INSERT", 1000).await;
    let other = DeadLetter { reason: "another".to_owned(), endpoint: "other".parse().unwrap(), ..letter() };
    let error = DeadLetters::add(&store, &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("met other transactions again and again"), "{error}");
    assert!((5..50).contains(&lost(&place).await));
    store.close().await;
    place.end().await;
}
