//! What becomes of a group, and of what met others.

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
use sqlx::{Executor, MySqlConnection};

use super::{super::MySql, Place};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: "e".parse().unwrap(), saga: "s".parse().unwrap() };
    EntityKey::new(Arc::new(scope), name.parse().unwrap())
}

async fn save(store: MySql, name: &str, expected: Expected) -> Result<Saved, StoreError> {
    store.save(&key(name), &expected, &Entity { state: "state".into(), ..Entity::default() }, &[]).await
}

/// Until a statement about the tables of `place` waits for a lock, with `key` in it.
async fn until_somebody_waits(connection: &mut MySqlConnection, place: &Place, key: &str) {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                   WHERE INSTR(info, ?) AND INSTR(info, ?) AND time_ms > 500 AND id <> CONNECTION_ID()";
    let began = Instant::now();
    let count = async |connection: &mut MySqlConnection| -> i64 {
        let query = sqlx::query_scalar(waiting).bind(place.names.prefix()).bind(&hex);
        query.fetch_one(connection).await.unwrap()
    };
    while count(connection).await == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody waits");
        tokio::task::yield_now().await;
    }
}

/// One is refused, so that the group is written one by one; by then another one's caller has gone.
#[tokio::test]
async fn of_a_group_that_is_written_one_by_one_what_nobody_waits_for_is_left_out() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let held = save(store.clone(), "held", Expected::Absent).await.unwrap();
    let Saved::At(version) = held else { panic!("{held:?}") };
    place.run("ALTER TABLE hapax.entity ADD CHECK (`key` <> 'refused')").await;
    let mut other = place.connect().await;
    let hold = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; \
                SELECT * FROM hapax.entity WHERE `key` = 'held' FOR UPDATE";
    other.execute(sqlx::raw_sql(place.text(hold))).await.unwrap();

    // One group: they are queued before the writer runs, in this runtime's only thread.
    let refused = tokio::spawn(save(store.clone(), "refused", Expected::Absent));
    let left = tokio::spawn(save(store.clone(), "left", Expected::Absent));
    let waits = tokio::spawn(save(store.clone(), "held", Expected::Version(version)));
    until_somebody_waits(&mut place.connect().await, &place, "left").await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    other.execute("COMMIT").await.unwrap();

    assert_eq!(refused.await.unwrap().unwrap_err().kind(), ErrorKind::Misconfigured);
    assert!(matches!(waits.await.unwrap().unwrap(), Saved::At(_)));
    assert!(store.load(&key("left"), &[]).await.unwrap().stored.is_none(), "nobody waited for it");
    store.close().await;
    place.end().await;
}

/// Lets the first `races` rows that are written to `table` be the victims of a deadlock, as far as the store can tell. What
/// counts them is no part of the transaction.
async fn lose_races(place: &Place, table: &str, event: &str, races: u32) {
    let refuse = format!(
        "CREATE TABLE IF NOT EXISTS hapax.lost (n INT) ENGINE = MyISAM; DELETE FROM hapax.lost; \
         INSERT INTO hapax.lost VALUES (0); \
         CREATE OR REPLACE TRIGGER hapax.lose_{table}_{event} BEFORE {event} ON hapax.{table} FOR EACH ROW BEGIN \
           UPDATE hapax.lost SET n = n + 1; \
           IF (SELECT n FROM hapax.lost) <= {races} THEN \
             SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; \
           END IF; \
         END"
    );
    place.run(&refuse).await;
}

async fn lost(place: &Place) -> i64 {
    let lost = place.text("SELECT CAST(n AS SIGNED) FROM hapax.lost");
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
    let saved = save(store.clone(), "k", Expected::Absent).await.unwrap();
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
