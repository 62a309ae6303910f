//! Full generations are closed and filtered, and nothing is overlooked for that.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use hapax_core::{
    entity::{DedupEntry, Entity, Expected, OutboxEntry},
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::{DedupStore, Saved},
    time::Timestamp,
};
use tokio::task::yield_now;

use super::*;

/// Entries of a generation here.
const FULL: u64 = 8;
/// How often a test looks before it gives up: many times what is needed.
const LOOKS: usize = 1_000_000;

/// A folder that is removed with the guard.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax-generations-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }

    async fn open(&self) -> Sqlite {
        open(&self.file()).await
    }

    async fn run(&self, sql: &'static str) {
        let mut connection = SqliteConnection::connect(&format!("sqlite://{}", self.file().display())).await.unwrap();
        connection.execute(sql).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = SqliteConnection::connect(&format!("sqlite://{}", self.file().display())).await.unwrap();
        let number = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn open(file: &Path) -> Sqlite {
    let options = Sqlite::options(file).create_if_missing(true).migrate(true);
    options.generation_entries(FULL).open().await.unwrap()
}

fn key(number: u64) -> DedupKey {
    // As after a hash: every part of it differs.
    let mut random = fastrand::Rng::with_seed(number);
    let mut bytes = [0; DedupKey::BYTES];
    random.fill(&mut bytes);
    DedupKey::from_bytes(bytes)
}

fn attempt(number: u64) -> AttemptId {
    AttemptId::from_bytes(u128::from(number).to_be_bytes())
}

const FINGERPRINT: Fingerprint = Fingerprint::from_bytes([3; 16]);

fn entry(number: u64) -> DedupEntry {
    let time = Timestamp::from_millis(1_700_000_000_000);
    DedupEntry { key: key(number), attempt: attempt(number), fingerprint: FINGERPRINT, reply: None, time }
}

async fn knows(store: &Sqlite, number: u64) -> bool {
    let known = store.contains(&[key(number)]).await.unwrap();
    known.entry(&key(number)).is_some_and(|entry| entry.attempt == attempt(number))
}

/// Waits until `store` has filters of at least `count` closed generations.
async fn filtered(store: &Sqlite, count: usize) {
    for _ in 0..LOOKS {
        let view = store.0.generations.view();
        if view.filters() >= count {
            return;
        }
        store.0.generations.look();
        yield_now().await;
    }
    panic!("there are not {count} filters");
}

/// Inserts entries from `first` on until another generation is open and `store` has filters of all before it.
async fn fill(store: &Sqlite, first: u64) -> u64 {
    let closed = store.0.generations.view().filters();
    let mut next = first;
    for _ in 0..LOOKS {
        if store.0.generations.view().filters() > closed {
            return next;
        }
        store.insert(&[entry(next)]).await.unwrap();
        next += 1;
    }
    panic!("no generation was closed by {next} entries");
}

#[tokio::test]
async fn a_full_generation_is_closed_and_what_is_in_it_is_found() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut next = 0;
    for _ in 0..10 {
        next = fill(&store, next).await;
    }
    assert!(folder.number("SELECT count(*) FROM hapax_generation").await > 10);
    assert!(store.0.generations.view().from > 10);
    let late = folder.open().await;
    filtered(&late, 10).await;
    for store in [&store, &late] {
        for number in 0..next {
            assert!(knows(store, number).await, "{number} of {next}");
        }
        assert!(!knows(store, next).await);
        // Many at once, of all generations.
        let keys: Vec<DedupKey> = (0..2 * next).map(key).collect();
        let known = store.contains(&keys).await.unwrap();
        assert_eq!(keys.iter().filter(|key| known.entry(key).is_some()).count() as u64, next);
    }
}

/// The control: were the filters not asked, every test here would pass.
#[tokio::test]
async fn a_closed_generation_is_looked_into_only_if_its_filter_says_so() {
    let folder = Folder::new();
    let store = folder.open().await;
    fill(&store, 0).await;
    // A valid filter of no key at all.
    folder.run("UPDATE hapax_generation_filter SET filter = CAST(x'01' || zeroblob(32) AS BLOB)").await;
    let late = folder.open().await;
    filtered(&late, 1).await;
    assert!(knows(&store, 0).await && !knows(&late, 0).await);
}

#[tokio::test]
async fn a_filter_that_is_missing_or_cannot_be_read_is_made_anew() {
    let folder = Folder::new();
    let store = folder.open().await;
    let next = fill(&store, 0).await;
    for damage in ["DELETE FROM hapax_generation_filter", "UPDATE hapax_generation_filter SET filter = x'63'"] {
        folder.run(damage).await;
        let late = folder.open().await;
        filtered(&late, 1).await;
        assert!(folder.number("SELECT min(length(filter)) FROM hapax_generation_filter").await > 32, "{damage}");
        for number in 0..next {
            assert!(knows(&late, number).await, "{damage}: {number}");
        }
    }
}

#[tokio::test]
async fn a_generation_that_cannot_be_filtered_is_looked_into_for_every_key() {
    let folder = Folder::new();
    let store = folder.open().await;
    let next = fill(&store, 0).await;
    folder.run("DELETE FROM hapax_generation_filter").await;
    folder.run("INSERT INTO hapax_dedup VALUES (1, x'ff', x'', x'', 0, NULL)").await;
    let late = folder.open().await;
    while late.0.generations.view().from == 0 {
        yield_now().await;
    }
    assert_eq!(late.0.generations.view().filters() + 1, store.0.generations.view().filters());
    for number in 0..next {
        assert!(knows(&late, number).await, "{number}");
    }
}

/// The marks that an outbox waits for are none of the ids that a load is asked for.
#[tokio::test]
async fn a_load_finds_the_marks_of_its_outbox_in_closed_generations() {
    let folder = Folder::new();
    let store = folder.open().await;
    let scope = Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() });
    let keys = ["a", "b"].map(|key| EntityKey::new(scope.clone(), key.parse().unwrap()));
    for (number, entity) in (0..).zip(&keys) {
        let outbox = OutboxEntry {
            key: key(number),
            attempt: attempt(number),
            fingerprint: FINGERPRINT,
            commit: 1,
            saved_at: Timestamp::from_millis(5),
            outgoing: Vec::new(),
            reply: None,
            reply_sent: false,
        };
        let new = Entity { outbox: vec![Arc::new(outbox)], ..Entity::default() };
        assert!(matches!(store.save(entity, &Expected::Absent, &new, &[]).await, Ok(Saved::At(_))));
        store.insert(&[entry(number)]).await.unwrap();
    }
    fill(&store, 2).await;
    let marked = |number: u64| Some(attempt(number));
    for round in 0..2 {
        // Alone, and in a group.
        let loads = keys.iter().take(1 + round).map(|entity| EntityStore::load(&store, entity, &[]));
        for (number, loaded) in (0..).zip(futures_util::future::join_all(loads).await) {
            let known = loaded.unwrap().known.unwrap();
            assert_eq!(known.entry(&key(number)).map(|entry| entry.attempt), marked(number), "{number}, {round}");
        }
    }
}

#[tokio::test]
async fn one_process_finds_what_another_has_inserted_and_closed() {
    let folder = Folder::new();
    let (one, two) = (folder.open().await, folder.open().await);
    let mut next = 0;
    for round in 0..20 {
        let (inserts, looks) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let first = next;
        next = fill(inserts, first).await;
        for number in first..next {
            assert!(knows(looks, number).await && knows(inserts, number).await, "{number}, round {round}");
        }
    }
    for store in [&one, &two] {
        for number in 0..next {
            assert!(knows(store, number).await, "{number}");
        }
    }
}

#[tokio::test]
async fn a_dropped_generation_takes_its_filter_with_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    let next = fill(&store, 0).await;
    folder.run("UPDATE hapax_generation SET closed_at = 1 WHERE closed_at IS NOT NULL").await;
    assert!(store.evict(Duration::from_secs(3600)).await.unwrap().entries > 0);
    // The one that was begun last may be full by now, and closed with a filter of its own.
    let left = "SELECT count(*) FROM hapax_generation_filter WHERE generation NOT IN (SELECT id FROM hapax_generation)";
    assert_eq!(folder.number(left).await, 0);
    assert!(!knows(&store, 0).await);
    store.insert(&[entry(0)]).await.unwrap();
    assert!(knows(&store, 0).await && next > 0);
}

/// A step of a fixed size would fall behind a busy store, and its file would grow for as long as it is busy.
#[tokio::test]
async fn more_entries_are_evicted_than_are_inserted_meanwhile() {
    const OLD: u64 = 8000;
    const SINCE: u64 = 1000;
    let folder = Folder::new();
    let store = Sqlite::options(folder.file()).create_if_missing(true).migrate(true).open().await.unwrap();
    let entries: Vec<_> = (0..OLD).map(entry).collect();
    store.insert(&entries).await.unwrap();
    // Opened and closed long ago: generation 1 is dropped at the next step.
    folder.run("UPDATE hapax_generation SET opened_at = 0").await;
    store.evict(Duration::ZERO).await.unwrap();
    folder.run("UPDATE hapax_generation SET closed_at = 1 WHERE closed_at IS NOT NULL").await;
    let idle = store.evict(Duration::ZERO).await.unwrap().entries;
    let entries: Vec<_> = (OLD..OLD + SINCE).map(entry).collect();
    store.insert(&entries).await.unwrap();
    let busy = store.evict(Duration::ZERO).await.unwrap();
    assert!(busy.entries >= 2 * SINCE && busy.more, "{busy:?} after {SINCE} were inserted");
    let after = store.evict(Duration::ZERO).await.unwrap().entries;
    assert!(idle < SINCE && after == idle, "{idle} and {after} when nothing was inserted");
    store.close().await;
}

/// By its clock at the step a generation may seem older than what is in it, and would be dropped with it (S44).
#[tokio::test]
async fn a_generation_that_is_closed_while_the_clock_is_behind_lives_as_long_as_its_entries() {
    const HOUR_MS: i64 = 3_600_000;
    let retention = Duration::from_millis(4 * HOUR_MS as u64);
    for by_count in [false, true] {
        let folder = Folder::new();
        let options = Sqlite::options(folder.file()).create_if_missing(true).migrate(true);
        let store = if by_count { options.generation_entries(2) } else { options }.open().await.unwrap();
        store.evict(retention).await.unwrap();
        // Inserted before the clock was set back by two hours.
        let before = DedupEntry { time: Timestamp::now().after(Duration::from_millis(2 * HOUR_MS as u64)), ..entry(1) };
        store.insert(&[before.clone(), entry(2)]).await.unwrap();
        if !by_count {
            folder.run("UPDATE hapax_generation SET opened_at = 0").await;
        }
        for _ in 0..LOOKS {
            if folder.number("SELECT count(*) FROM hapax_generation").await > 1 {
                break;
            }
            store.evict(retention).await.unwrap();
        }
        let closed = folder.number("SELECT closed_at FROM hapax_generation WHERE id = 1").await;
        let time = i64::try_from(before.time.as_millis()).unwrap();
        assert!(closed > time, "by count: {by_count}: closed at {closed}, its latest entry is of {time}");
        // A clock that was a year ahead keeps nothing for a year.
        let far = DedupEntry { time: Timestamp::MAX, ..entry(3) };
        store.insert(&[far, entry(4)]).await.unwrap();
        folder.run("UPDATE hapax_generation SET opened_at = 0 WHERE closed_at IS NULL").await;
        for _ in 0..LOOKS {
            if folder.number("SELECT count(*) FROM hapax_generation").await > 2 {
                break;
            }
            store.evict(retention).await.unwrap();
        }
        let closed = folder.number("SELECT closed_at FROM hapax_generation WHERE id = 2").await;
        assert!(
            closed <= crate::sql::sqlite::ride::now() + 4 * HOUR_MS + 1,
            "by count: {by_count}: closed at {closed}"
        );
        store.close().await;
    }
}
