//! What is remembered of dedup entries that are gone, and what they wait for.

use std::time::Duration;

use hapax_core::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, EndpointName, Fingerprint},
    ports::{DedupStore, Keep, LongMemory, Moment, Passed},
    time::Timestamp,
};
use sqlx::{AssertSqlSafe, sqlite::SqliteArguments};

use super::{super::arguments::Bind, generations::Folder, *};

const RETENTION: Duration = Duration::from_secs(3600);
/// Steps that are more than enough for whatever is done here.
const STEPS: usize = 200;

fn entry(key: u8) -> DedupEntry {
    DedupEntry {
        key: DedupKey::from_bytes([key; DedupKey::BYTES]),
        attempt: AttemptId::from_bytes([key; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(0),
    }
}

fn number(number: u64) -> DedupEntry {
    let mut bytes = [7; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::NUMBERED);
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    DedupEntry { key: DedupKey::from_bytes(bytes), ..entry(0) }
}

const fn keep(endpoint: &EndpointName, passed: Passed) -> Keep<'_> {
    Keep { endpoint, retention: RETENTION, keys: Duration::ZERO, fold: true, passed }
}

async fn evict(store: &Sqlite, keep: &Keep<'_>) {
    for _ in 0..STEPS {
        if !store.evict_keeping(keep).await.unwrap().more {
            return;
        }
    }
    panic!("there is always more to evict");
}

async fn count(folder: &Folder, sql: &'static str) -> i64 {
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", folder.file().display())).await.unwrap();
    sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
}

/// As if the newest were old enough to be closed, and had been closed at `at`, long ago.
async fn close_newest(folder: &Folder, store: &Sqlite, at: u8) {
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", folder.file().display())).await.unwrap();
    connection.execute("UPDATE hapax_generation SET opened_at = 0 WHERE closed_at IS NULL").await.unwrap();
    store.evict(RETENTION).await.unwrap();
    let close = format!("UPDATE hapax_generation SET closed_at = {at} WHERE closed_at > 1000");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(close))).await.unwrap();
    connection.close().await.unwrap();
}

async fn known(store: &Sqlite, keys: &[u8]) -> Vec<u8> {
    let asked: Vec<DedupKey> = keys.iter().map(|key| entry(*key).key).collect();
    let known = store.contains(&asked).await.unwrap();
    keys.iter().copied().filter(|key| known.entry(&entry(*key).key).is_some()).collect()
}

#[tokio::test]
async fn generations_that_wait_hold_up_nothing() {
    const GENERATIONS: u8 = 7;
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    let waits = keep(&endpoint, Passed::Waits);
    evict(&store, &waits).await;
    let keys: Vec<u8> = (1..=GENERATIONS).collect();
    for &at in &keys {
        store.insert(&[entry(at), number(u64::from(at))]).await.unwrap();
        close_newest(&folder, &store, at).await;
        evict(&store, &waits).await;
        assert_eq!(known(&store, &keys).await, keys[..usize::from(at)], "nothing was shown of any");
        let folded = store.recall(&[number(u64::from(at)).key]).await.unwrap();
        assert!(folded.is_folded(&number(u64::from(at)).key), "{at}");
    }
    assert_eq!(count(&folder, "SELECT count(*) FROM hapax_long_run").await, 1);
    for at in 0..=GENERATIONS {
        evict(&store, &keep(&endpoint, Passed::Until(Moment(at.into())))).await;
        assert_eq!(known(&store, &keys).await, keys[usize::from(at)..]);
    }
    // And what is left of them in the file goes too.
    evict(&store, &waits).await;
    assert_eq!(count(&folder, "SELECT count(*) FROM hapax_dedup").await, 0);
    store.close().await;
}

/// Each step is one transaction, so that whoever dies leaves nothing half done; beside another one it does nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_evict_at_once_neither_loses_a_number() {
    const NUMBERS: u64 = 20_000;
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    let other = Sqlite::open(folder.file()).await.unwrap();
    // Every third one is missing, so that there are many runs; and then comes in.
    let (most, rest): (Vec<_>, Vec<_>) = (1..=NUMBERS).map(number).partition(|one| one.key.as_bytes()[23] % 3 != 0);
    let endpoint: EndpointName = "e".parse().unwrap();
    for entries in [&most, &rest] {
        store.insert(entries).await.unwrap();
        close_newest(&folder, &store, 1).await;
        let one = async |store: &Sqlite| evict(store, &keep(&endpoint, Passed::Unasked)).await;
        let ((), ()) = tokio::join!(one(&store), one(&other));
        let keys: Vec<DedupKey> = entries.iter().map(|one| one.key).collect();
        let (left, known) = (store.contains(&keys).await.unwrap(), store.recall(&keys).await.unwrap());
        assert!(keys.iter().all(|key| left.entry(key).is_none() && known.is_folded(key)));
    }
    assert_eq!(count(&folder, "SELECT count(*) FROM hapax_long_run").await, 1);
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn who_folds_what_somebody_else_has_folded_meanwhile_writes_nothing() {
    use super::super::statements::long::{FOLD, FOLD_STATEMENTS};
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    store.insert(&[number(1)]).await.unwrap();
    close_newest(&folder, &store, 1).await;
    for (token, left) in [(5, 1), (0, 0)] {
        let mut arguments = SqliteArguments::default();
        arguments.bind(token).bind(6).bind("[]").bind("[]").bind(1).bind(&number(1).key.as_bytes()[..]);
        store.write_alone("folding", FOLD, FOLD_STATEMENTS, arguments).await.unwrap();
        assert_eq!(count(&folder, "SELECT count(*) FROM hapax_dedup").await, left, "{token}");
    }
    store.close().await;
}

/// Whatever the step that puts it by has overlooked.
#[tokio::test]
async fn no_generation_is_dropped_with_something_in_it_that_has_to_be_remembered() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    let mut bytes = [7; DedupKey::BYTES];
    bytes[..4].copy_from_slice(&DedupKey::KEYED);
    let keyed = DedupEntry { key: DedupKey::from_bytes(bytes), ..entry(1) };
    evict(&store, &Keep { keys: Duration::MAX, ..keep(&endpoint, Passed::Unasked) }).await;
    for entry in [number(1), keyed] {
        store.insert(std::slice::from_ref(&entry)).await.unwrap();
        close_newest(&folder, &store, 1).await;
        let mut arguments = SqliteArguments::default();
        arguments.bind(i64::MAX / 2).bind(1).bind(100).bind(None::<i64>);
        let evict = (&*statements::EVICT, statements::EVICT_STATEMENTS);
        store.write_alone("evicting", evict.0, evict.1, arguments).await.unwrap();
        assert!(store.contains(&[entry.key]).await.unwrap().entry(&entry.key).is_some());
        self::evict(&store, &keep(&endpoint, Passed::Unasked)).await;
        let known = store.recall(&[entry.key]).await.unwrap();
        assert!(known.is_folded(&entry.key) || known.entry(&entry.key) == Some(&entry));
    }
    store.close().await;
}

/// A program that knows nothing of it would drop what has to be remembered.
#[tokio::test]
async fn older_programs_go_on_until_somebody_asks_for_more_than_they_know() {
    const FROM: &str = "SELECT value FROM hapax_meta WHERE name = 'usable_from'";
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).await.unwrap();
    let endpoint: EndpointName = "e".parse().unwrap();
    store.evict_keeping(&Keep { fold: false, ..keep(&endpoint, Passed::Unasked) }).await.unwrap();
    assert_eq!(count(&folder, FROM).await, 1);
    store.evict_keeping(&keep(&endpoint, Passed::Unasked)).await.unwrap();
    assert_eq!(count(&folder, FROM).await, migrate::LONG_MEMORY);
    let record = "SELECT count(*) FROM hapax_migration WHERE version = 4 AND name = 'long memory'";
    assert_eq!(count(&folder, record).await, 1, "and that is its step");
    store.close().await;
}
