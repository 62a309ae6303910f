//! How the store is opened: each bound with its default and the reason for it. A service is not believed; what it is probed for is said at `open`.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use hapax_core::ports::StoreError;
use object_store::ObjectStore;

use super::{ObjectDedup, start};

/// How long a write is waited for, before its outcome counts as unknown. Default 30 s: below the default deadline of a pass.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a read is waited for. Default 30 s: as long as a write.
const READ_LIMIT: Duration = WRITE_LIMIT;
/// Requests at the same time of one call. Default 32: a call of 32 keys costs the latency of one, and a service that answers
/// "slow down" is met by few.
const PARALLEL: usize = 32;
/// More than a service is asked at once by one call.
const PARALLEL_LIMIT: usize = 256;
/// Time that shares a bucket. Default an hour: a week has 168 buckets, which are one page of a list.
const BUCKET: Duration = Duration::from_secs(60 * 60);
/// Less and there would be more buckets than marks.
const BUCKET_MIN: Duration = Duration::from_secs(1);
/// More and evictions come late.
const BUCKET_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How far apart the clocks of one service may be. Default a minute: no service says how well its machines agree, and beside a
/// retention of days it is nothing.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// Where entries are kept.
#[derive(Clone)]
pub(super) enum Place {
    /// In the store, below the prefix.
    Store(Arc<dyn ObjectStore>, String),
    Directory(PathBuf),
}

/// How an [`ObjectDedup`] is opened. From [`ObjectDedup::options`] or [`ObjectDedup::directory`].
#[derive(Clone)]
#[must_use]
pub struct ObjectDedupOptions {
    pub(super) place: Place,
    pub(super) second: Option<Arc<dyn ObjectStore>>,
    pub(super) parallel: usize,
    pub(super) read_limit: Duration,
    pub(super) write_limit: Duration,
    pub(super) bucket: Duration,
    pub(super) clock_margin: Duration,
    pub(super) durable: bool,
    pub(super) create_if_missing: bool,
}

impl ObjectDedupOptions {
    pub(super) const fn at(place: Place) -> Self {
        // In a directory one clock stamps all files.
        let clock_margin = match &place {
            Place::Store(..) => CLOCK_MARGIN,
            Place::Directory(_) => Duration::ZERO,
        };
        Self {
            place,
            second: None,
            parallel: PARALLEL,
            read_limit: READ_LIMIT,
            write_limit: WRITE_LIMIT,
            bucket: BUCKET,
            clock_margin,
            durable: true,
            create_if_missing: false,
        }
    }

    /// Whether a directory that is not there, or holds no dedup entries yet, is made one of them. Default: no, for a disk that is
    /// not mounted looks the same, and an empty directory in its place has seen no message: effects would double. So say it
    /// where the directory is set up, once, and not wherever a service starts. Buckets and containers are never created.
    pub const fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// A second client of the same store, with connections of its own. The probe of the start reads with one what it has
    /// written with the other; without it both are the same client, which may be served from a cache of its own.
    pub fn second(mut self, second: Arc<dyn ObjectStore>) -> Self {
        self.second = Some(second);
        self
    }

    /// Requests at the same time of one call, from 1 to 256. Default 32.
    pub fn parallel(mut self, requests: usize) -> Self {
        self.parallel = requests.clamp(1, PARALLEL_LIMIT);
        self
    }

    /// How long to wait for a request that writes, with all that the client does to repeat it, before its outcome counts as
    /// unknown. Default 30 s.
    pub const fn write_limit(mut self, limit: Duration) -> Self {
        self.write_limit = limit;
        self
    }

    /// How long to wait for a request that reads before it is an error: `Unavailable`. Default 30 s.
    pub const fn read_limit(mut self, limit: Duration) -> Self {
        self.read_limit = limit;
        self
    }

    /// Time whose entries are evicted together, from a second to a day. Default an hour: entries are kept for as much
    /// longer than the retention. Handles on one prefix may differ in it.
    pub fn bucket(mut self, bucket: Duration) -> Self {
        self.bucket = bucket.clamp(BUCKET_MIN, BUCKET_MAX);
        self
    }

    /// How far apart the clocks of the service's own machines may be: an entry is kept for as much longer, and a store whose stamps
    /// are further apart when it is opened is refused. Default a minute; none in a directory, where one clock stamps all files.
    pub const fn clock_margin(mut self, margin: Duration) -> Self {
        self.clock_margin = margin;
        self
    }

    /// Whether what the store confirms survives the process. Default yes; say no for one in memory, so that an endpoint with
    /// durable queues refuses it.
    pub const fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Opens the store and probes, with some fifty requests, that it does what the promises need: of twenty creates of one
    /// name one wins and its content stays; what is created is read and listed at once, by the second client too, also where it
    /// was looked for before; its stamps are no further apart than [`clock_margin`](Self::clock_margin) and the
    /// time that the probe took. That what is deleted is gone is looked at too, but no reason to
    /// refuse: what is there longer is evicted late, and a warning says so. Must be called within a tokio runtime with its
    /// timer enabled.
    ///
    /// # Errors
    /// [`StoreError`], with cause and remedy: `Misconfigured` for a store that does not do that, for one that is not there
    /// (of a directory see [`create_if_missing`](Self::create_if_missing)) and for a prefix that is none; `Denied` for missing rights; `Unavailable` for one that cannot be reached.
    pub async fn open(self) -> Result<ObjectDedup, StoreError> {
        start::open(self).await
    }
}

impl fmt::Debug for ObjectDedupOptions {
    /// Without the clients, which may show what they are let in with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ObjectDedupOptions");
        match &self.place {
            Place::Store(_, prefix) => shown.field("prefix", prefix),
            Place::Directory(path) => shown.field("directory", path),
        };
        shown.field("bucket", &self.bucket).field("clock_margin", &self.clock_margin).finish_non_exhaustive()
    }
}
