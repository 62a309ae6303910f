//! Entities, dedup entries, dead letters, messages that are not due yet and large bodies in one SQLite file.
//!
//! The embedded default: no server, one file, durable at every confirmed write (write-ahead log, `synchronous = FULL`).
//! Any number of processes on one host may share the file; they race by compare-and-set like any others. Not for network
//! file systems, whose locks SQLite cannot rely on.
//!
//! One connection writes and others read, each owned by a task. Requests of all callers queue up; whatever has queued
//! while the last group was being written is written in one commit, with one statement per kind. Nothing waits for a
//! timer, and a lone request goes at once.
//!
//! Dedup entries are kept in generations by the time of their insertion, so that inserts touch a small part of the file
//! however many entries there are, and evicting is dropping the oldest generation. A filter of each closed generation (16
//! bits an entry, at most 256 MiB, in memory and in the file) tells which ones a check need not look into. Space is
//! reused, never given back to the file system.
//!
//! Entries of all endpoints in the file are kept for the longest retention that any of them ever asked for, in the file as
//! `retention_ms`. To lower it, once no endpoint asks for the longer one any more:
//! `UPDATE hapax_meta SET value = 604800000 WHERE name = 'retention_ms'` (seven days, in milliseconds).
//! What has to be remembered beyond that ([`LongMemory`](hapax_core::ports::LongMemory)) is in tables of its own, whose names begin
//! with `hapax_long_`. Once anybody has asked for it, programs that do not know them are refused when they open the file.

mod arguments;
mod bodies;
mod connection;
mod error;
mod filter;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod generations;
mod letters;
mod long;
mod migrate;
mod options;
pub mod outbox;
mod ports;
mod read;
#[doc(hidden)]
pub mod ride;
mod riders;
mod rows;
mod schedule;
mod scopes;
mod start;
mod statements;
mod survey;
mod write;

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz_filter;
use generations::Generations;
use hapax_core::{
    ids::Scope,
    ports::{ErrorKind, Loaded, StoreError},
};
pub use options::{SqliteOptions, Synchronous};
use read::{Load, Read};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::{AbortHandle, JoinHandle},
    time::timeout,
};
use write::Write;

/// A store in one SQLite file. Cloning gives another handle to the same store; its tasks end with the last handle.
///
/// # Limits
/// An entity has at most 16 MiB, a body that does not travel 256 MiB. The runtime in which the store was opened must live as long as the store is used, and
/// must have its timer enabled.
#[derive(Clone)]
pub struct Sqlite(Arc<Shared>);

struct Shared {
    file: Arc<str>,
    writes: mpsc::Sender<Write>,
    /// The writer has nothing to do.
    idle: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    reads: mpsc::Sender<Read>,
    generations: Arc<Generations>,
    write_limit: Duration,
    read_limit: Duration,
    /// Never changed and never removed in the file, so they may be remembered.
    scopes: RwLock<HashMap<Arc<Scope>, i64>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The keeper, which has nothing to finish.
    keeper: Option<AbortHandle>,
}

impl Sqlite {
    /// Opens the file at `path` (or an URL, `sqlite://PATH`), creates it if it is not there and brings its schema up to
    /// date.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options(path).create_if_missing(true).migrate(true).open().await
    }

    /// For more control than [`Sqlite::open`] gives: nothing is created or migrated unless it is asked for.
    pub fn options(path: impl AsRef<Path>) -> SqliteOptions {
        SqliteOptions::new(path.as_ref())
    }

    /// Creates the file if it is not there, and brings its schema up to date. Harmless when repeated, or when several
    /// processes do it at once.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn migrate(path: impl AsRef<Path>) -> Result<(), StoreError> {
        start::migrate(path.as_ref()).await
    }

    /// The schema as plain SQL, to be applied by hand in one transaction. Harmless when applied again.
    #[must_use]
    pub fn schema_sql() -> String {
        migrate::schema_sql()
    }

    /// Writes what has been asked for, closes the file and ends. All handles refuse to work from then on. Not needed for
    /// safety: what was confirmed is stored.
    pub async fn close(&self) {
        if let Some(keeper) = &self.0.keeper {
            keeper.abort();
        }
        let _ = self.0.writes.send(Write::Close).await;
        let _ = self.0.reads.send(Read::Close).await;
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
    }

    /// How many commits this store has made since it was opened: with its requests, how well they share commits. Those of
    /// other processes on the same file are not counted.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::Relaxed)
    }

    fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    fn file(&self) -> &str {
        &self.0.file
    }

    /// Queues a write and waits for its answer. Unknown is what has been queued and is not answered in time.
    async fn write<T>(
        &self,
        operation: &'static str,
        write: Write,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Shared { writes, write_limit, .. } = &*self.0;
        match writes.try_send(write) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Err(self.closed(operation)),
            Err(TrySendError::Full(write)) => match timeout(*write_limit, writes.send(write)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(self.closed(operation)),
                Err(_) => {
                    let why = format!("{}: more is asked for than the disk can write: send less", self.file());
                    return Err(StoreError::new(ErrorKind::Unavailable, operation, why));
                }
            },
        }
        let unknown = |why: &str| {
            let why = format!("{}: {why}; whether it was stored is not known: load again", self.file());
            StoreError::new(ErrorKind::UnknownOutcome, operation, why)
        };
        match timeout(*write_limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unknown("the writer ended")),
            Err(_) => Err(unknown("the write has taken longer than its limit")),
        }
    }

    /// Loads by the writer if it has nothing to do, else by a reader.
    async fn load(
        &self,
        load: Load,
        answer: oneshot::Receiver<Result<Loaded, StoreError>>,
    ) -> Result<Loaded, StoreError> {
        let operation = load.operation;
        let read = if self.0.idle.load(Ordering::Relaxed) {
            match self.0.writes.try_send(Write::Load(load)) {
                Ok(()) => return self.read_answer(operation, answer).await,
                Err(TrySendError::Full(Write::Load(load)) | TrySendError::Closed(Write::Load(load))) => load,
                Err(_) => return Err(self.closed(operation)),
            }
        } else {
            load
        };
        self.read(operation, Read::Load(read), answer).await
    }

    async fn read<T>(
        &self,
        operation: &'static str,
        read: Read,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.read_answer(operation, async {
            self.0.reads.send(read).await.map_err(|_| ())?;
            answer.await.map_err(|_| ())
        })
        .await
    }

    /// Waits for what was read. Nothing is written, so that no answer in time is no unknown outcome.
    async fn read_answer<T, E>(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<Result<T, StoreError>, E>>,
    ) -> Result<T, StoreError> {
        match timeout(self.0.read_limit, answer).await {
            Ok(answer) => answer.map_err(|_| self.closed(operation))?,
            Err(_) => {
                let why = format!(
                    "{}: the read has taken longer than its limit, nothing was changed: see what keeps the disk busy, or \
                     raise `read_limit`",
                    self.file()
                );
                Err(StoreError::new(ErrorKind::Unavailable, operation, why))
            }
        }
    }

    fn closed(&self, operation: &'static str) -> StoreError {
        let why = format!("{}: the store is closed, or the runtime that opened it is gone: open it again", self.file());
        StoreError::new(ErrorKind::Unavailable, operation, why)
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.0.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
