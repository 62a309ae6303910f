//! How queues are opened: each bound with its default and the reason for it. A server that has no room for the largest message is refused at the
//! start, and not when one comes.

use std::time::Duration;

use hapax_core::ports::{ErrorKind, StoreError};
use hapax_stores::{
    MySql,
    sql::mysql::{MySqlOptions, wire::Server},
};

use super::{MySqlQueue, statements::SCHEMA, write::TEXT_BYTES_MAX};

/// How long a lease lasts. Default 30 s: long enough for any handler, extended while one runs; a process that dies keeps
/// its messages from others for as long as that.
const LEASE: Duration = Duration::from_secs(30);
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB: what
/// NATS and Kafka take unless configured, and every message is written twice, into the log and into its table.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Beyond it neither a text nor the server's log would have room for one.
const MESSAGE_BYTES_LIMIT: usize = 64 << 20;
/// What a text has beside the bytes of its messages, generously.
const TEXT_ASIDE_BYTES: usize = 64 << 10;
/// Most messages in all queues of a schema. Default a million: a gigabyte of usual ones, hours of falling behind.
const MESSAGES_MAX: u64 = 1_000_000;
/// How often to look for what other processes have sent, while something comes. Default 5 ms: a look is a round trip and a
/// few pages of an index.
const POLL_BUSY: Duration = Duration::from_millis(5);
/// The same after a while in which nothing came. Default 240 ms: with the timer's rounding within 250 ms, and less than 5
/// looks in a second.
const POLL_IDLE: Duration = Duration::from_millis(240);
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// Connections that write. Default 2: while one waits for its commit, the other gathers the next group.
const WRITERS: usize = 2;
/// More connections than a server is asked for by one queue.
const WRITERS_LIMIT: usize = 64;

/// How a [`MySqlQueue`] is opened. From [`MySqlQueue::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MySqlQueueOptions {
    pub(super) lease: Duration,
    pub(super) message_bytes_max: usize,
    pub(super) messages_max: u64,
    pub(super) ordered_keys: bool,
    pub(super) poll_busy: Duration,
    pub(super) poll_idle: Duration,
    pub(super) redelivery_max: Duration,
    pub(super) writers: usize,
    migrate: bool,
}

impl MySqlQueueOptions {
    pub(super) const fn new() -> Self {
        Self {
            lease: LEASE,
            message_bytes_max: MESSAGE_BYTES_MAX,
            messages_max: MESSAGES_MAX,
            ordered_keys: false,
            poll_busy: POLL_BUSY,
            poll_idle: POLL_IDLE,
            redelivery_max: REDELIVERY_MAX,
            writers: WRITERS,
            migrate: false,
        }
    }

    /// How long a lease lasts unless it is extended, at least 1 ms. Default 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(1));
        self
    }

    /// Largest message, in bytes, at most 64 MiB. Default 1 MiB. Larger ones are refused before anything is saved. The
    /// server's `max_allowed_packet` must be more than twice as large.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Most messages in all queues of the schema; beyond it sending fails for now. Default a million. They are counted now
    /// and then, so that there may be a hundredth more for each process that sends.
    pub const fn messages_max(mut self, messages: u64) -> Self {
        self.messages_max = messages;
        self
    }

    /// Whether a message waits until every earlier one of its partition key in its queue is settled, whether under a lease
    /// or put off to be retried. Default no: takes in one queue are made one after the other then, each in four round
    /// trips, and one process at a time has a key. It holds where every process that sends to the queue, and every one that
    /// receives from it, asks for it: one that receives warns, once, of what was sent without.
    pub const fn ordered_keys(mut self, ordered: bool) -> Self {
        self.ordered_keys = ordered;
        self
    }

    /// How often to look for what other processes have sent: while something comes, and after a while in which nothing
    /// came. Default 5 ms and 240 ms. What this process sends is known without a look. A lease that has run out is found by a
    /// look.
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

    /// Connections that write, from 1 to 64. Default 2.
    pub fn writers(mut self, writers: usize) -> Self {
        self.writers = writers.clamp(1, WRITERS_LIMIT);
        self
    }

    /// Whether missing tables are added, in a database that is there. Default: no, and one without them is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Queues in the database of `store`, with its prefix, on connections of their own.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn on(self, store: &MySql) -> Result<MySqlQueue, StoreError> {
        let server = Server::on(store, &SCHEMA, self.migrate).await?;
        MySqlQueue::new(server, self)
    }

    /// Queues in the database at `url` (`mysql://USER:PASSWORD@HOST:PORT/DATABASE`).
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open(self, url: impl AsRef<str>) -> Result<MySqlQueue, StoreError> {
        self.open_database(MySql::options(url)).await
    }

    /// Queues in a database that is reached as `database` says: by URL or as a pool does, the prefix of its
    /// tables, how long a write may take. What it says of a store's own
    /// connections and groups is of no account here.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open_database(self, database: MySqlOptions) -> Result<MySqlQueue, StoreError> {
        let server = Server::open(&database, &SCHEMA, self.migrate).await?;
        MySqlQueue::new(server, self)
    }
    /// Bytes of a text that the server takes; a message has to have room in one.
    pub(super) fn text_max(&self, server: &Server) -> Result<usize, StoreError> {
        let packet = server.packet_bytes_max();
        let needed = 2 * self.message_bytes_max + 2 * TEXT_ASIDE_BYTES;
        if packet < needed {
            let (place, most) = (server.place(), self.message_bytes_max);
            let why = format!(
                "{place}: messages of {most} bytes do not fit into `max_allowed_packet` of {packet}: raise it to {needed}, \
                 or lower `message_bytes_max`"
            );
            return Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, why));
        }
        Ok((packet - TEXT_ASIDE_BYTES).min(TEXT_BYTES_MAX))
    }
}
