//! Saves that go on while their store is hurt: its server is killed, or its connections are ended.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use hapax::{
    entity::Expected,
    ports::{EntityStore, ErrorKind, Saved, StoreError},
};
use tokio::task::JoinHandle;

use crate::Samples;

/// Longer than a server needs to start, and than any one save takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Often enough to meet statements that are running, seldom enough for some to end.
const CUT_EVERY: Duration = Duration::from_millis(3);
/// Longer than a commit takes, on a slow disk too.
const COMMIT_LIMIT: Duration = Duration::from_millis(500);

/// Waits until a store's connections are to be ended again. By turns, since on a disk that takes longer for a commit all of
/// them would be cut: after the next of its `commits`.
pub(crate) async fn between_cuts(commits: impl Fn() -> u64) {
    tokio::time::sleep(CUT_EVERY).await;
    let (since, before, waits) = (Instant::now(), commits(), fastrand::bool());
    while waits && commits() == before && since.elapsed() < COMMIT_LIMIT {
        tokio::time::sleep(CUT_EVERY).await;
    }
}

/// What a caller of `save` knows afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is stored.
    Saved,
    /// Nothing of it is stored.
    Refused,
    /// Nobody knows.
    Unknown,
}

impl Told {
    /// What `answer` says.
    ///
    /// # Panics
    /// At what no fault may be told as: a conflict where nobody else writes, or an error that is not transient.
    #[must_use]
    pub fn by(answer: &Result<Saved, StoreError>) -> Self {
        match answer {
            Ok(Saved::At(_)) => Self::Saved,
            Err(e) if e.is_unknown_outcome() => Self::Unknown,
            Err(e) if e.kind() == ErrorKind::Unavailable => Self::Refused,
            other => panic!("{other:?}"),
        }
    }
}

/// New entities, each with a dedup entry, that several tasks save until they are told to end.
pub struct Saves {
    samples: Samples,
    count: Arc<Count>,
    tasks: Vec<JoinHandle<Vec<(u32, Told)>>>,
}

#[derive(Default)]
struct Count {
    ended: AtomicBool,
    saved: AtomicU32,
    unknown: AtomicU32,
    /// What the last save that was none has said.
    last: Mutex<String>,
}

impl Saves {
    /// The first ones are on their way.
    #[must_use]
    pub fn begin(store: &Arc<dyn EntityStore>, samples: &Samples) -> Self {
        const TASKS: u32 = 8;
        let count = Arc::new(Count::default());
        let tasks = (0..TASKS).map(|task| {
            let (store, samples, count) = (store.clone(), samples.clone(), count.clone());
            tokio::spawn(async move { count.save(&*store, &samples, (task..).step_by(TASKS as usize)).await })
        });
        Self { samples: samples.clone(), tasks: tasks.collect(), count }
    }

    /// Waits until so many more are saved. How long they take together is the machine's affair, and the disk's.
    ///
    /// # Panics
    /// When none is for a minute.
    pub async fn go_on(&self, more: u32) {
        let saved = || self.count.saved.load(Ordering::Relaxed);
        let (mut since, mut last, enough) = (Instant::now(), saved(), saved() + more);
        while last < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if saved() > last {
                (since, last) = (Instant::now(), saved());
            }
            let why = || self.count.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            assert!(since.elapsed() < PATIENCE, "saves do not go on, {} are missing: {}", enough - last, why());
        }
    }

    /// How many have had an unknown outcome so far.
    #[must_use]
    pub fn unknown(&self) -> u32 {
        self.count.unknown.load(Ordering::Relaxed)
    }

    /// Ends them, and looks in `store` whether what is there is what was told. How many of each there were.
    ///
    /// # Panics
    /// Where it is not.
    pub async fn end(self, store: &dyn EntityStore) -> [usize; 3] {
        let (counts, lost) = self.end_with_losses(store).await;
        assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
        counts
    }

    /// The same where what was confirmed may be gone again, and which those are.
    ///
    /// # Panics
    /// Where anything else is not as it was told.
    pub async fn end_with_losses(self, store: &dyn EntityStore) -> ([usize; 3], Vec<u32>) {
        self.count.ended.store(true, Ordering::Relaxed);
        let (mut counts, mut lost, mut all) = ([0; 3], Vec::new(), Vec::new());
        for task in self.tasks {
            all.extend(task.await.expect("a task's saves"));
        }
        for (number, told) in all {
            let done = self.samples.done(number);
            let loaded = store.load(&self.samples.key(number), &[done.key]).await.expect("what is stored");
            let marked = loaded.known.expect("the store's own dedup entries").entry(&done.key).cloned();
            let stored = loaded.stored.map(|stored| stored.entity);
            assert_eq!(stored.is_some(), marked.is_some(), "{number}, {told:?}: half of it is stored");
            match told {
                Told::Saved if stored.is_none() => lost.push(number),
                Told::Saved => assert_eq!(stored, Some(self.samples.entity(number)), "{number}: stored otherwise"),
                Told::Refused => assert_eq!(stored, None, "{number}: refused and stored"),
                Told::Unknown => {}
            }
            counts[told as usize] += 1;
        }
        (counts, lost)
    }
}

impl Count {
    async fn save(
        &self,
        store: &dyn EntityStore,
        samples: &Samples,
        numbers: impl Iterator<Item = u32>,
    ) -> Vec<(u32, Told)> {
        let mut all = Vec::new();
        for number in numbers {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            let done = [samples.done(number)];
            let answer = store.save(&samples.key(number), &Expected::Absent, &samples.entity(number), &done).await;
            let told = Told::by(&answer);
            all.push((number, told));
            self.saved.fetch_add(u32::from(told == Told::Saved), Ordering::Relaxed);
            self.unknown.fetch_add(u32::from(told == Told::Unknown), Ordering::Relaxed);
            if let Err(why) = answer {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = format!("{why:?}");
                // As a caller does, so that it is not only refusals.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        all
    }
}

impl fmt::Debug for Saves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saves").field("samples", &self.samples).finish_non_exhaustive()
    }
}
