//! What is remembered of dedup entries that are gone, and what they wait for.

use std::time::Duration;

use hapax_core::{
    entity::DedupEntry,
    ids::{DedupKey, EndpointName},
    ports::{DedupStore, ErrorKind, Keep, LongMemory, Moment, Passed},
};
use sqlx::Executor;

use super::{
    super::{
        migrate::{LONG_MEMORY, SCHEMA},
        wire::Schema,
    },
    Place, generations,
    rig::*,
};

const RETENTION: Duration = Duration::from_secs(3600);
/// Steps that are more than enough for whatever is done here.
const STEPS: usize = 200;

fn number(number: u64) -> DedupEntry {
    let mut bytes = [7; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::NUMBERED);
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    DedupEntry { key: DedupKey::from_bytes(bytes), ..generations::entry(0) }
}

const fn keep(endpoint: &EndpointName, passed: Passed) -> Keep<'_> {
    Keep { endpoint, retention: RETENTION, keys: Duration::ZERO, fold: true, passed }
}

async fn evict(store: &Store, keep: &Keep<'_>) {
    for _ in 0..STEPS {
        if !store.evict_keeping(keep).await.unwrap().more {
            return;
        }
    }
    panic!("there is always more to evict");
}

async fn count(place: &Place, sql: &str) -> i64 {
    sqlx::query_scalar::<_, i64>(place.text(sql)).fetch_one(&mut place.connect().await).await.unwrap()
}

/// As if the newest were old enough to be closed, and had been closed at `at`, long ago.
async fn close_newest(place: &Place, store: &Store, at: u8) {
    place.run("UPDATE hapax.generation SET opened_at = 0 WHERE closed_at IS NULL").await;
    store.evict(RETENTION).await.unwrap();
    place.run(&format!("UPDATE hapax.generation SET closed_at = {at} WHERE closed_at > 1000")).await;
}

async fn known(store: &Store, keys: &[u8]) -> Vec<u8> {
    let asked: Vec<DedupKey> = keys.iter().map(|key| generations::entry(*key).key).collect();
    let known = store.contains(&asked).await.unwrap();
    keys.iter().copied().filter(|key| known.entry(&generations::entry(*key).key).is_some()).collect()
}

/// However many generations wait, the newest is closed in time, numbers in all of them are folded, and the oldest goes when it may: not
/// later for those that have come since.
#[tokio::test]
async fn generations_that_wait_hold_up_nothing() {
    const GENERATIONS: u8 = 7;
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    let waits = keep(&endpoint, Passed::Waits);
    evict(&store, &waits).await;
    let keys: Vec<u8> = (1..=GENERATIONS).collect();
    for &at in &keys {
        store.insert(&[generations::entry(at), number(u64::from(at))]).await.unwrap();
        close_newest(&place, &store, at).await;
        evict(&store, &waits).await;
        assert_eq!(known(&store, &keys).await, keys[..usize::from(at)], "nothing was shown of any");
        let folded = store.recall(&[number(u64::from(at)).key]).await.unwrap();
        assert!(folded.is_folded(&number(u64::from(at)).key), "{at}");
        assert!(count(&place, "SELECT count(*) FROM hapax.generation").await <= 3, "two that wait, and the newest");
    }
    assert_eq!(count(&place, "SELECT count(*) FROM hapax.long_run").await, 1);
    let until = |at| keep(&endpoint, Passed::Until(Moment(at)));
    evict(&store, &until(0)).await;
    assert_eq!(known(&store, &keys).await, keys);
    evict(&store, &until(1)).await;
    assert_eq!(known(&store, &keys).await, keys[1..], "the oldest had only its own time to wait for");
    evict(&store, &until(i64::from(GENERATIONS) - 1)).await;
    assert_eq!(known(&store, &[GENERATIONS]).await, [GENERATIONS]);
    evict(&store, &until(i64::from(GENERATIONS))).await;
    assert_eq!(known(&store, &keys).await, [0; 0]);
    store.close().await;
    place.end().await;
}

/// Of an entry that was inserted twice the first one counts, also where generations become one.
#[tokio::test]
async fn where_generations_become_one_the_older_entry_stays() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    let waits = keep(&endpoint, Passed::Waits);
    evict(&store, &waits).await;
    let first = generations::entry(9);
    let second = DedupEntry { attempt: generations::entry(8).attempt, ..first.clone() };
    for (at, entry) in [(1, generations::entry(1)), (2, first.clone()), (3, second)] {
        store.insert(&[entry]).await.unwrap();
        close_newest(&place, &store, at).await;
    }
    evict(&store, &waits).await;
    assert_eq!(store.contains(&[first.key]).await.unwrap().entry(&first.key), Some(&first));
    store.close().await;
    place.end().await;
}

/// Each step is one transaction, so that whoever dies leaves nothing half done; beside another one it does nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_evict_at_once_neither_loses_a_number() {
    const NUMBERS: u64 = 10_000;
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    let other = place.options.clone().writers(1).open().await.unwrap();
    // Every third one is missing, so that there are many runs; and then comes in.
    let (most, rest): (Vec<_>, Vec<_>) = (1..=NUMBERS).map(number).partition(|one| one.key.as_bytes()[23] % 3 != 0);
    let endpoint: EndpointName = "e".parse().unwrap();
    for entries in [&most, &rest] {
        for some in entries.chunks(1000) {
            store.insert(some).await.unwrap();
        }
        close_newest(&place, &store, 1).await;
        let one = async |store: &Store| evict(store, &keep(&endpoint, Passed::Unasked)).await;
        let (one, two) = tokio::join!(one(&store), one(&other));
        let ((), ()) = (one, two);
        let keys: Vec<DedupKey> = entries.iter().map(|one| one.key).collect();
        let (left, known) = (store.contains(&keys).await.unwrap(), store.recall(&keys).await.unwrap());
        assert!(keys.iter().all(|key| left.entry(key).is_none() && known.is_folded(key)));
    }
    assert_eq!(count(&place, "SELECT count(*) FROM hapax.long_run").await, 1);
    store.close().await;
    other.close().await;
    place.end().await;
}

/// Who asks has asked once it is told so, whatever is being dropped at that moment.
#[tokio::test]
async fn nothing_is_dropped_beside_somebody_who_asks_for_it() {
    let place = Place::migrated().await;
    let store = place.options.clone().writers(1).open().await.unwrap();
    store.insert(&[generations::entry(1)]).await.unwrap();
    close_newest(&place, &store, 1).await;
    let mut asks = place.connect().await;
    let ask =
        "BEGIN; UPDATE hapax.long_memory SET fold = fold; INSERT INTO hapax.long_evidence (endpoint) VALUES ('e')";
    asks.execute(sqlx::raw_sql(place.text(ask))).await.unwrap();
    let evicted = store.evict(RETENTION).await.unwrap();
    assert!(evicted.entries == 0 && evicted.more, "{evicted:?}");
    asks.execute("COMMIT").await.unwrap();
    store.evict(RETENTION).await.unwrap();
    assert_eq!(known(&store, &[1]).await, [1]);
    store.withdraw(&"e".parse().unwrap()).await.unwrap();
    store.evict(RETENTION).await.unwrap();
    assert_eq!(known(&store, &[1]).await, [0; 0]);
    store.close().await;
    place.end().await;
}

/// A program that knows nothing of it would drop what has to be remembered.
#[tokio::test]
async fn older_programs_go_on_until_somebody_asks_for_more_than_they_know() {
    let place = Place::new().await;
    let steps = SCHEMA.migrations.iter().take_while(|(version, _)| *version < LONG_MEMORY).count();
    let older = Schema { migrations: &SCHEMA.migrations[..steps], rows: &[], ..SCHEMA };
    starts(&place, &older, true).await.unwrap();
    Store::migrate(place.options.clone()).await.unwrap();
    let store = place.options.clone().writers(1).open().await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    let nothing = Keep { fold: false, ..keep(&endpoint, Passed::Unasked) };
    store.evict_keeping(&nothing).await.unwrap();
    starts(&place, &older, false).await.unwrap();
    store.evict_keeping(&keep(&endpoint, Passed::Unasked)).await.unwrap();
    let refused = starts(&place, &older, false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Malformed, "{refused:?}");
    assert!(refused.to_string().contains("update this program"), "{refused}");
    starts(&place, &SCHEMA, false).await.unwrap();
    store.close().await;
    place.end().await;
}
