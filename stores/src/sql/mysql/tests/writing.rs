//! What becomes of a group.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hapax_core::{
    entity::{Entity, Expected},
    ids::{EntityKey, Scope},
    ports::{EntityStore, ErrorKind, Saved, StoreError},
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
