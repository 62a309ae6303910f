//! How generations come and go.

use std::time::Duration;

use hapax_core::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    time::Timestamp,
};

use super::{Place, rig::*};

const RETENTION: Duration = Duration::from_secs(3600);

pub(super) fn entry(key: u8) -> DedupEntry {
    DedupEntry {
        key: DedupKey::from_bytes([key; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([key; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    }
}

/// What the oldest one's table is kept by may last; what comes in meanwhile must not all go into one.
#[tokio::test]
async fn a_generation_is_closed_also_when_an_old_one_could_not_be_emptied() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    store.insert(&[entry(1)]).await.unwrap();
    place.run("UPDATE hapax.generation SET opened_at = 0").await;
    store.evict(RETENTION).await.unwrap();
    store.insert(&[entry(2)]).await.unwrap();
    // As if the time of the first were over, and half of it since the second was begun.
    place.run("UPDATE hapax.generation SET closed_at = 1 WHERE id = 1").await;
    place.run("UPDATE hapax.generation SET opened_at = 0 WHERE id = 2").await;
    place.run(KEEP_FIRST).await;
    let newest = async || {
        let sql = place.text("SELECT max(id) FROM hapax.generation");
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut place.connect().await).await.unwrap()
    };
    assert_eq!(newest().await, 2);
    let error = store.evict(RETENTION).await.unwrap_err();
    assert_eq!(error.kind(), KEPT, "{error:?}");
    assert_eq!(newest().await, 3);

    place.run(LET_FIRST_GO).await;
    assert_eq!(store.evict(RETENTION).await.unwrap().entries, 1);
    let known = store.contains(&[entry(1).key, entry(2).key]).await.unwrap();
    assert!(known.entry(&entry(1).key).is_none() && known.entry(&entry(2).key).is_some());
    store.close().await;
    place.end().await;
}
