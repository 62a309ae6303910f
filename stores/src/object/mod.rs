//! Dedup entries in object storage: Amazon S3, Azure Blob, Google Cloud Storage, a local directory.
//!
//! For entities that are kept in a store without room for dedup entries, or when these are to be kept for long and cheaply. An
//! entry is an object named by its key, which is created only if there is none (a conditional put), so that the first to be
//! inserted stays. It costs a read to look for an entry, and two writes to insert one.
//!
//! ```no_run
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use hapax_stores::ObjectDedup;
//!
//! // Made once, with `create_if_missing(true)`.
//! let dedup = ObjectDedup::directory("/var/lib/shop/dedup").open().await?;
//!
//! // Any client of the crate `object_store`, with the feature of its service:
//! # let client = object_store::memory::InMemory::new();
//! let dedup = ObjectDedup::options(Arc::new(client), "shop/dedup").open().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Eviction
//! Before an entry its mark is written: an empty object in the bucket of the hour. Evicting lists only buckets that are over for
//! as long as the retention, and asks for each entry in them when the service wrote it. That alone decides, beside the
//! service's time now, which is the stamp of an object that was written for it; the process's clock has no part. Buckets are
//! hints: an entry that is younger than its bucket says stays, and its mark is moved to the right one.
//!
//! One handle evicts at a time: entries are removed by their names, so a second one that had looked at an old entry could remove
//! a new one of the same name. Turns are numbered objects too; one that was not ended is over after five minutes by the
//! service's clock. Whoever has it looks at its age before each round of 256 marks, and again before it removes what that round
//! has found: it begins no removal after half of the time, and gives one up that is not done after four minutes. What is left is a
//! process that stands still between that look and the request, or a removal that the service or the client applies late or
//! again, for minutes each, and to a key that was inserted again in between: its message had come again after more than the
//! retention.
//!
//! The retention is the longest that was ever asked for below the prefix: each that was longer is an object below `r/`,
//! whose name says milliseconds. To lower it, delete those objects while no endpoint with the longer one runs.
//!
//! # Limits
//! What a service or a person removes by other ways, a lifecycle rule for example, is not known any more, and the effects of
//! its message double. A bucket that is not there is an error, and so is a directory that is not there, not mounted or empty
//! ([`create_if_missing`](ObjectDedupOptions::create_if_missing) apart); a bucket that was emptied cannot be told from a new
//! one.

mod clock;
mod directory;
mod error;
mod evict;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod names;
mod objects;
mod options;
mod ports;
mod probe;
mod record;
mod start;
mod turn;

use std::{fmt, path::PathBuf, sync::Arc};

use clock::Clock;
#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz;
use names::Names;
/// The crate whose clients are given, in the version that they must be of.
pub use object_store;
use object_store::ObjectStore;
use objects::Objects;
pub use options::ObjectDedupOptions;
use options::Place;

/// Dedup entries in object storage. Cloning gives another handle to the same entries.
#[derive(Clone)]
pub struct ObjectDedup(Arc<Shared>);

struct Shared {
    /// Store and prefix, for messages.
    place: String,
    objects: Objects,
    names: Names,
    clock: Clock,
    /// Requests at the same time of one call.
    parallel: usize,
    /// Length of the buckets that this handle writes, in milliseconds.
    bucket: i64,
    /// How far apart the service's clocks may be, in milliseconds.
    clock_margin: i64,
    durable: bool,
}

impl ObjectDedup {
    /// Entries in `store`, below `prefix`: names with `/` between them, or nothing. Whatever else is in the store
    /// is left alone. Processes that handle the same messages name the same prefix.
    pub fn options(store: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> ObjectDedupOptions {
        ObjectDedupOptions::at(Place::Store(store, prefix.into()))
    }

    /// Entries in files of the directory `path`, which has to hold them already unless
    /// [`create_if_missing`](ObjectDedupOptions::create_if_missing) is said. An entry is confirmed once it is on disk, with the
    /// folders that name it, and one that is found is waited for as well; folders only on Unix.
    pub fn directory(path: impl Into<PathBuf>) -> ObjectDedupOptions {
        ObjectDedupOptions::at(Place::Directory(path.into()))
    }
}

impl fmt::Debug for ObjectDedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectDedup").field("place", &self.0.place).finish_non_exhaustive()
    }
}
