//! What becomes of what met others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax_core::{
    entity::{Entity, Expected},
    envelope::Envelope,
    ids::{EntityKey, MessageId, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, ErrorKind, Saved, StoreError},
    time::Timestamp,
};

use sqlx::Executor;

use super::{super::Postgres, Place};

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

async fn save(store: Postgres, name: &'static str, expected: Expected) -> Result<Saved, StoreError> {
    store.save(&key(name), &expected, &Entity { state: "state".into(), ..Entity::default() }, &[]).await
}

#[tokio::test]
async fn of_a_group_that_is_written_one_by_one_what_nobody_waits_for_is_left_out() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let held = save(store.clone(), "held", Expected::Absent).await.unwrap();
    let Saved::At(version) = held else { panic!("{held:?}") };
    place.run("ALTER TABLE hapax.entity ADD CHECK (key <> 'refused')").await;
    let mut other = place.connect().await;
    let hold = "BEGIN; SELECT * FROM hapax.entity WHERE key = 'held' FOR UPDATE";
    other.execute(sqlx::raw_sql(place.text(hold))).await.unwrap();

    // One group: they are queued before the writer runs, in this runtime's only thread.
    let refused = tokio::spawn(save(store.clone(), "refused", Expected::Absent));
    let left = tokio::spawn(save(store.clone(), "left", Expected::Absent));
    let waits = tokio::spawn(save(store.clone(), "held", Expected::Version(version)));
    let mut looking = place.connect().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND position('UPDATE hapax.entity' IN query) > 0 AND pid <> pg_backend_pid()";
    let end = Instant::now() + Duration::from_secs(20);
    while sqlx::query_scalar::<_, i64>(place.text(waiting)).fetch_one(&mut looking).await.unwrap() == 0 {
        assert!(Instant::now() < end, "the group does not wait for the row that is held");
        tokio::task::yield_now().await;
    }
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    other.execute("COMMIT").await.unwrap();

    assert!(refused.await.unwrap().is_err());
    assert!(matches!(waits.await.unwrap().unwrap(), Saved::At(_)));
    assert!(store.load(&key("left"), &[]).await.unwrap().stored.is_none(), "nobody waited for it");
    store.close().await;
    place.end().await;
}
