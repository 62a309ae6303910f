//! How the store is opened: each bound with its default and the reason for it, and what of durability may be given up.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hapax_core::ports::StoreError;

use super::{Sqlite, generations::GENERATION_ENTRIES, migrate, start};

/// How long a writer waits for another process's transaction, before it says that the file is locked. Default 5 s: far
/// above any of our own commits, a checkpoint included.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a write is waited for, before its outcome counts as unknown. Default 30 s: beyond the busy timeout, so that a
/// locked file is told as what it is; below the default deadline of a pass.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a read is waited for, before it is given up. Default 30 s: as long as a write.
const READ_LIMIT: Duration = WRITE_LIMIT;
/// Writes that share a commit, and reads that share a statement, at most. Default 512: beyond it throughput gains little
/// and the first in the group waits for the last.
pub(super) const GROUP_MAX: usize = 512;
/// Beyond it a statement would have more parameters than SQLite takes.
const GROUP_LIMIT: usize = 1024;
/// Reading connections. Default 1: it answers whole groups and is idle most of the time; each takes a thread and a page
/// cache.
const READERS: usize = 1;

/// When SQLite tells the disk to keep what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// At every commit: what was confirmed survives a power failure. What the ports promise.
    #[default]
    Full,
    /// At checkpoints only: the last commits before a power failure (not a crash of the process) may be gone, and their
    /// messages acknowledged. For tests, or where the broker redelivers from before that time.
    Normal,
}

/// How a [`Sqlite`] store is opened. From [`Sqlite::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteOptions {
    pub(super) place: PathBuf,
    pub(super) create_if_missing: bool,
    pub(super) migrate: bool,
    pub(super) synchronous: Synchronous,
    pub(super) readers: usize,
    pub(super) group_max: usize,
    pub(super) busy_timeout: Duration,
    pub(super) write_limit: Duration,
    pub(super) read_limit: Duration,
    pub(super) share_file: bool,
    pub(super) generation_entries: u64,
}

impl SqliteOptions {
    pub(super) fn new(place: &Path) -> Self {
        Self {
            place: place.to_owned(),
            create_if_missing: false,
            migrate: false,
            synchronous: Synchronous::Full,
            readers: READERS,
            group_max: GROUP_MAX,
            busy_timeout: BUSY_TIMEOUT,
            write_limit: WRITE_LIMIT,
            read_limit: READ_LIMIT,
            share_file: false,
            generation_entries: GENERATION_ENTRIES,
        }
    }

    /// Whether a file that is not there is created. Default: no.
    pub const fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Whether missing tables and columns are added. Default: no, and a file whose schema is older is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Default: [`Synchronous::Full`].
    pub const fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Reading connections, at least 1. Default 1.
    pub const fn readers(mut self, readers: usize) -> Self {
        self.readers = if readers == 0 { 1 } else { readers };
        self
    }

    /// How many writes may share a commit, from 1 to 1024. Default 512.
    pub fn group_max(mut self, max: usize) -> Self {
        self.group_max = max.clamp(1, GROUP_LIMIT);
        self
    }

    /// How long to wait for a lock that another process holds. Default 5 s, at most a day.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        self.busy_timeout = timeout.min(DAY);
        self
    }

    /// How long to wait for a write before its outcome counts as unknown. Default 30 s.
    pub const fn write_limit(mut self, limit: Duration) -> Self {
        self.write_limit = limit;
        self
    }

    /// How long to wait for a read before it is an error: `Unavailable`, nothing was changed. Default 30 s.
    pub const fn read_limit(mut self, limit: Duration) -> Self {
        self.read_limit = limit;
        self
    }

    /// Whether a file may be used that another program has begun, its own tables in it and none of hapax's: for an
    /// application that keeps its tables in the same file. Hapax adds tables whose names begin with `hapax_` (to add them,
    /// set [`migrate`](Self::migrate) too), leaves the others alone, and makes the file's journal mode WAL, for every
    /// program that opens it. Default: no, and such a file is an error and left as it was. A file that holds tables of
    /// hapax has been shared before and needs no saying so.
    pub const fn share_file(mut self, share: bool) -> Self {
        self.share_file = share;
        self
    }

    /// How many dedup entries a generation takes before the next one is opened, at least 1; each process counts its own.
    /// Default 262,144. More of them make inserts of ids in random order slower, less make more generations to look into.
    pub const fn generation_entries(mut self, entries: u64) -> Self {
        self.generation_entries = if entries == 0 { 1 } else { entries };
        self
    }

    /// Opens the store and checks that the file is what the promises need. Must be called within a tokio runtime with
    /// its timer enabled; the store lives as long as that runtime.
    ///
    /// # Errors
    /// [`StoreError`], one line that names the file, the cause and the remedy: `Misconfigured` for a file of another
    /// program (see [`share_file`](Self::share_file)), an older schema, a directory, a file that cannot use a write-ahead log; `Absent` where there is no file, or no
    /// schema in it; `Malformed` for a file that is not SQLite's or of a newer hapax; `Denied` for what may not be read or written; `Unavailable` for one that
    /// another process keeps locked.
    pub async fn open(self) -> Result<Sqlite, StoreError> {
        start::open(self, &migrate::STORE).await
    }
}
