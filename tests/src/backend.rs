//! What a store must be for a rig to stand on it; and what tests of several stores do with each of them.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

#[cfg(feature = "dynamodb")]
use hapax::DynamoDb;
use hapax::{
    Memory,
    ids::Scope,
    ports::{DeadLetters, DedupStore, EntityStore, Schedule, Take},
};
#[cfg(feature = "databases")]
use hapax::{MySql, Postgres, Sqlite};

use crate::samples;

/// A store that a rig can be built on.
pub trait Backend: EntityStore + DedupStore + DeadLetters + Clone + 'static {
    /// A write takes effect in the poll in which it is answered.
    const EXACT: bool;

    /// How many dedup entries there are, if nobody else uses the store.
    fn dedup_entries(&self) -> Option<usize>;
}

impl Backend for Memory {
    const EXACT: bool = true;

    fn dedup_entries(&self) -> Option<usize> {
        Some(Self::dedup_entries(self))
    }
}

#[cfg(feature = "databases")]
impl Backend for Sqlite {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

#[cfg(feature = "databases")]
impl Backend for Postgres {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

#[cfg(feature = "databases")]
impl Backend for MySql {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

#[cfg(feature = "dynamodb")]
impl Backend for DynamoDb {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

#[cfg(feature = "cosmos")]
impl Backend for hapax::CosmosDb {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

/// A directory for the files of one test, which goes with it.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// A new directory; its name begins with that of the test.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(test: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax-{test}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a place for temporary files");
        Self { directory }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        &self.directory
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory)); // What stays is in the directory for temporary files.
    }
}

/// How many tombstones of `scope` a first purge that finds any has removed, and how many a second one. A clean-up may wait for a
/// moment, and spares its entity until then.
///
/// # Panics
/// When nothing is removed within half a minute.
pub async fn purged(store: &impl EntityStore, scope: &Arc<Scope>) -> [usize; 2] {
    const PATIENCE: Duration = Duration::from_secs(30);
    let purge = async || store.purge(scope, Duration::ZERO, 10).await.expect("a purge");
    let begun = Instant::now();
    loop {
        match purge().await {
            0 => assert!(begun.elapsed() < PATIENCE, "nothing is purged"),
            first => return [first, purge().await],
        }
        tokio::task::yield_now().await;
    }
}

/// Everything that a schedule does, once.
///
/// # Panics
/// When it does not.
pub async fn scheduled(schedule: &dyn Schedule) {
    let (endpoint, all) = (samples::endpoint(), [samples::outgoing("a"), samples::outgoing("b")]);
    schedule.put(&endpoint, &all).await.expect("a put");
    schedule.put(&endpoint, &all).await.expect("another one");
    let id = all[0].envelope.message_id.clone();
    assert_eq!(schedule.cancel(&endpoint, &[id]).await.expect("a cancellation"), 1);
    assert!(schedule.next(&endpoint).await.expect("a look").is_some());
    let take = Take { within: Duration::ZERO, max: 10, bytes_max: usize::MAX, lease: Duration::from_secs(60) };
    let taken = schedule.take_due(&endpoint, take).await.expect("a take");
    assert!(taken.iter().map(|due| &due.outgoing).eq([&all[1]]), "{taken:?}");
    let receipts: Vec<_> = taken.into_iter().map(|due| due.receipt).collect();
    schedule.done(&endpoint, &receipts).await.expect("an end");
    assert_eq!(schedule.next(&endpoint).await.expect("a look"), None);
}
