//! How queues are opened: each bound with its default and the reason for it; in a store's file, in the same commits, or in a file of their own.

use std::{path::Path, time::Duration};

use hapax_core::ports::StoreError;
use hapax_stores::{
    Sqlite,
    sql::sqlite::{
        SqliteOptions,
        ride::{Rider, Schema},
    },
};

use super::{SqliteQueue, statements::SCHEMA};

/// How long a lease lasts. Default 30 s: long enough for any handler, extended while one runs; a process that dies keeps
/// its messages from others for as long as that.
const LEASE: Duration = Duration::from_secs(30);
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB: what
/// NATS and Kafka take unless configured, and every message is written twice, into the log and into the file.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Beyond it a group of messages would not fit into what SQLite takes as one value.
const MESSAGE_BYTES_LIMIT: usize = 64 << 20;
/// Most messages in all queues of a file. Default a million: a gigabyte of usual ones, hours of falling behind.
const MESSAGES_MAX: u64 = 1_000_000;
/// How often to look for what other processes have sent, while something comes. Default 2 ms: with the timer's own
/// rounding, within 5 ms.
const POLL_BUSY: Duration = Duration::from_millis(2);
/// The same after a while in which nothing came. Default 240 ms: with the timer's rounding within 250 ms, and less than 5
/// looks in a second.
const POLL_IDLE: Duration = Duration::from_millis(240);
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);

/// How an [`SqliteQueue`] is opened. From [`SqliteQueue::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteQueueOptions {
    pub(super) lease: Duration,
    pub(super) message_bytes_max: usize,
    pub(super) messages_max: u64,
    pub(super) ordered_keys: bool,
    pub(super) poll_busy: Duration,
    pub(super) poll_idle: Duration,
    pub(super) redelivery_max: Duration,
    migrate: bool,
    schema: &'static Schema,
}

impl SqliteQueueOptions {
    pub(super) const fn new() -> Self {
        Self {
            lease: LEASE,
            message_bytes_max: MESSAGE_BYTES_MAX,
            messages_max: MESSAGES_MAX,
            ordered_keys: false,
            poll_busy: POLL_BUSY,
            poll_idle: POLL_IDLE,
            redelivery_max: REDELIVERY_MAX,
            migrate: true,
            schema: &SCHEMA,
        }
    }

    /// How long a lease lasts unless it is extended, at least 1 ms. Default 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(1));
        self
    }

    /// Largest message, in bytes, at most 64 MiB. Default 1 MiB. Larger ones are refused before anything is saved.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Most messages in all queues of the file; beyond it sending fails for now. Default a million. They are counted now
    /// and then, so that there may be a hundredth more for each process that sends.
    pub const fn messages_max(mut self, messages: u64) -> Self {
        self.messages_max = messages;
        self
    }

    /// Whether a message waits until every earlier one of its partition key in its queue is settled, whether under a lease
    /// or put off to be retried. Default no: it costs an index over keys, and one process at a time has a key. It holds
    /// where every process that sends to the queue, and every one that receives from it, asks for it: one that receives warns, once, of what
    /// was sent without.
    pub const fn ordered_keys(mut self, ordered: bool) -> Self {
        self.ordered_keys = ordered;
        self
    }

    /// How often to look for what other processes have sent: while something comes, and after a while in which nothing
    /// came. Default 2 ms and 240 ms. What this process sends is known without a look.
    pub fn polls(mut self, busy: Duration, idle: Duration) -> Self {
        self.poll_busy = busy.max(Duration::from_millis(1));
        self.poll_idle = idle.max(self.poll_busy);
        self
    }

    /// The longest time after which a copy of a message may still come: how far the queue may fall behind. Default a day;
    /// endpoints must remember messages for longer.
    pub const fn redelivery_max(mut self, longest: Duration) -> Self {
        self.redelivery_max = longest;
        self
    }

    /// Whether missing tables are added. Default yes; if not, a file without them is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// The queue's own tables.
    #[doc(hidden)]
    #[must_use]
    pub const fn known_schema() -> &'static Schema {
        &SCHEMA
    }

    /// Other tables than the queue's own: for tests with a version of the queue that is yet to come.
    #[doc(hidden)]
    pub const fn schema(mut self, schema: &'static Schema) -> Self {
        self.schema = schema;
        self
    }

    /// Queues in the file of `store`, written in the same commits.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn on(self, store: &Sqlite) -> Result<SqliteQueue, StoreError> {
        let file = Rider::on(store, self.schema, self.migrate).await?;
        Ok(SqliteQueue::new(file, self))
    }

    /// Queues in a file of their own, which is created if it is not there.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteQueue, StoreError> {
        let file = Sqlite::options(path).create_if_missing(true);
        self.open_database(file).await
    }

    /// Queues in a file that is opened as `file` says.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn open_database(self, file: SqliteOptions) -> Result<SqliteQueue, StoreError> {
        let file = Rider::open(file.migrate(self.migrate), self.schema).await?;
        Ok(SqliteQueue::new(file, self))
    }
}
