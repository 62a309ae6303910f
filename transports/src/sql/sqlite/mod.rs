//! Durable queues in one SQLite file, the entity store's own or another.
//!
//! No server: any number of processes on one host share the file. A message is there when the dispatch is confirmed, at
//! the disk as the store's own writes are, and comes again until it is settled. In the store's file the queue has no
//! connection of its own: what it writes rides in the store's commits, so that a message that is handled costs the disk
//! little more than its save.
//!
//! - *Leases* end by the clock of the host, which all processes share. One that is set forward ends them early. One that is
//!   set back is noticed, and then no lease ends later than one that begins now; retries, and what is due at a time, come
//!   later by as much.
//! - *Receivers* know at once what their own process sends. What other processes send they look for: every 2 ms while
//!   something comes, less and less often down to every 240 ms when nothing does, once for all queues of a process.
//! - *Order* of the messages of one partition key is kept where it is asked for
//!   ([`SqliteQueueOptions::ordered_keys`]). A message with a due time takes its place when it is due.
//! - *Published* messages go to who subscribes at that moment. A subscription stays while its endpoint is away; one that
//!   is gone for good must be told to be ([`SqliteQueue::abandon`]).
//!
//! Open a file once in a process and clone the handle: two handles opened apart are like two processes.

mod arguments;
mod dispatcher;
mod letters;
mod marks;
mod options;
mod receiver;
mod signals;
mod statements;
mod survey;

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
};

use arguments::{Bind, as_i64, json};
use async_trait::async_trait;
use hapax_core::{
    Sender,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, ErrorKind, StoreError, Transport, TransportCapabilities, TransportError},
};
use hapax_stores::{
    Sqlite,
    sql::sqlite::ride::{self, Rider},
};
pub use options::SqliteQueueOptions;
use receiver::EndpointQueue;
use signals::{SET_BACK_MS, Signals};
use sqlx::{Row, sqlite::SqliteArguments};

pub use super::SetAside;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use super::fuzzing::fuzz;
use super::{errors::transport_error, room::Room};

/// Most queues in a file: far above the endpoints of any host, and a bound for names that come from outside, as the
/// addresses of replies.
const QUEUES_MAX: i64 = 10_000;

const CONNECTING: &str = "opening a queue";

/// Queues in one SQLite file. Cloning gives another handle to the same queues.
///
/// # Limits
/// A message has at most 1 MiB, a file a million messages and 10,000 queues; the first two are options. The runtime in
/// which it was opened must live as long as the queue is used, and must have its timer enabled.
#[derive(Clone)]
pub struct SqliteQueue(Arc<Shared>);

struct Shared {
    file: Rider,
    options: SqliteQueueOptions,
    /// Never changed and never removed in the file, so they may be remembered.
    names: RwLock<HashMap<EndpointName, i64>>,
    signals: Signals,
    room: Room,
    /// The next lease's token. Begins at random, so that no other process gives the same ones.
    token: AtomicI64,
}

impl SqliteQueue {
    /// Opens queues in the file at `path`, which is created if it is not there. It may be a store's file, but then
    /// [`SqliteQueue::on`] is the better choice: a file has one writer at a time.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`](hapax_stores::sql::sqlite::SqliteOptions::open).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().open(path).await
    }

    /// Opens queues in the file of `store`. What they write shares its commits.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`](hapax_stores::sql::sqlite::SqliteOptions::open).
    pub async fn on(store: &Sqlite) -> Result<Self, StoreError> {
        Self::options().on(store).await
    }

    /// For more control: lease, limits, order, how often to look.
    pub const fn options() -> SqliteQueueOptions {
        SqliteQueueOptions::new()
    }

    /// The schema as plain SQL, to be applied by hand in one transaction. Harmless when applied again.
    #[must_use]
    pub fn schema_sql() -> String {
        statements::SCHEMA.sql()
    }

    /// Sends messages from outside any handler.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }

    /// How many messages wait for `endpoint` or are being handled there, those that are not due included.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str());
        self.count("counting messages", statements::BACKLOG, arguments).await
    }

    /// How many messages are in all queues of the file.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read.
    pub async fn messages(&self) -> Result<u64, StoreError> {
        self.count("counting messages", statements::MESSAGES, SqliteArguments::default()).await
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(json(types.iter().map(TypeName::as_str)));
        self.0.file.write_text("unsubscribing", statements::UNSUBSCRIBE, 1, arguments).await?;
        Ok(())
    }

    /// Removes what waits for an endpoint that is gone for good: its subscriptions, and up to `limit` of its messages,
    /// whether under a lease or not. Tells how many messages; call again until there are none.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn abandon(&self, endpoint: &EndpointName, limit: usize) -> Result<u64, StoreError> {
        const OPERATION: &str = "abandoning a queue";
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_i64(limit));
        let statements = statements::ABANDON_STATEMENTS;
        let (_, changed) = self.0.file.write_text(OPERATION, statements::ABANDON, statements, arguments).await?;
        Ok(changed.get(2).copied().unwrap_or_default())
    }

    /// Ends the connections to a file that was opened for the queues alone; one of a store stays open.
    pub async fn close(&self) {
        self.0.file.close().await;
    }

    fn new(file: Rider, options: SqliteQueueOptions) -> Self {
        let signals = Signals::new(options.poll_busy, options.poll_idle, ride::now());
        let token = AtomicI64::new(fastrand::i64(..));
        Self(Arc::new(Shared { file, options, names: RwLock::default(), signals, room: Room::default(), token }))
    }

    /// A token that no lease has.
    fn token(&self) -> i64 {
        self.0.token.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the leases of a queue end as if they had begun now, and what was sent later than now be given, after the clock
    /// was set back.
    async fn shorten(&self, queue: i64) {
        tracing::warn!(file = self.0.file.file_name(), "the host's clock was set back: leases are shortened");
        let mut arguments = SqliteArguments::default();
        let now = ride::now();
        arguments.bind(queue).bind(now).bind(now.saturating_add(super::millis(self.0.options.lease)));
        if let Err(error) = self.0.file.write_text("shortening leases", statements::SHORTEN, 1, arguments).await {
            tracing::warn!(%error, "shortening leases failed: they end when the clock has come there again");
        }
    }

    async fn count(
        &self,
        operation: &'static str,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<u64, StoreError> {
        let rows = self.0.file.read_text(operation, sql, arguments).await?;
        let count = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        count.and_then(|count| u64::try_from(count).ok()).ok_or_else(|| self.damaged(operation, "a count"))
    }

    fn known_queue(&self, endpoint: &EndpointName) -> Option<i64> {
        self.0.names.read().unwrap_or_else(PoisonError::into_inner).get(endpoint).copied()
    }

    /// The number of `endpoint`'s queue, written if it is new.
    async fn queue_of(&self, endpoint: &EndpointName) -> Result<i64, StoreError> {
        if let Some(id) = self.known_queue(endpoint) {
            return Ok(id);
        }
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str());
        let rows = self.0.file.read_text(CONNECTING, statements::QUEUE_ID, arguments).await?;
        match rows.first() {
            Some(row) => self.remember(endpoint, row),
            None => self.subscribe(endpoint, &[]).await,
        }
    }

    /// Writes down a queue with its subscriptions.
    async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<i64, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(QUEUES_MAX).bind(json(types.iter().map(TypeName::as_str)));
        let statements = statements::CONNECT_STATEMENTS;
        let file = self.0.file.file_name();
        match self.0.file.write_text(CONNECTING, statements::CONNECT, statements, arguments).await {
            Ok((rows, _)) => match rows.first() {
                Some(row) => self.remember(endpoint, row),
                None => {
                    let why = format!("{file}: it has {QUEUES_MAX} queues, and {endpoint} is one too many");
                    Err(StoreError::new(ErrorKind::Unavailable, CONNECTING, why))
                }
            },
            // Whatever became of the name, what was to be written under it was not.
            Err(e) if e.is_unknown_outcome() => {
                let why = format!("{file}: a new queue could not be written in time: try again");
                Err(StoreError::new(ErrorKind::Unavailable, CONNECTING, why).caused_by(e))
            }
            Err(e) => Err(e),
        }
    }

    fn remember(&self, endpoint: &EndpointName, row: &sqlx::sqlite::SqliteRow) -> Result<i64, StoreError> {
        let id = row.try_get(0).map_err(|e| self.damaged(CONNECTING, "the list of queues").caused_by(e))?;
        self.0.names.write().unwrap_or_else(PoisonError::into_inner).insert(endpoint.clone(), id);
        Ok(id)
    }

    fn damaged(&self, operation: &'static str, what: &str) -> StoreError {
        let why = format!("{}: {what} cannot be read by this version of hapax", self.0.file.file_name());
        StoreError::new(ErrorKind::Malformed, operation, why)
    }
}

#[async_trait]
impl Transport for SqliteQueue {
    fn capabilities(&self) -> TransportCapabilities {
        let SqliteQueueOptions { lease, message_bytes_max, ordered_keys, redelivery_max, .. } = self.0.options;
        TransportCapabilities {
            name: "sqlite",
            lease: Some(lease),
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys,
            message_bytes_max,
            durable: true,
            redelivery_max,
            offsets: false,
            marks: true,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let id = self.subscribe(endpoint, types).await.map_err(|e| transport_error(CONNECTING, e))?;
        let newest = self.0.file.read_text(CONNECTING, statements::NEWEST, SqliteArguments::default()).await;
        let newest = newest.map_err(|e| transport_error(CONNECTING, e))?;
        let newest = newest.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        if newest.is_some_and(|newest| newest > ride::now() + SET_BACK_MS) {
            self.shorten(id).await;
        }
        let signal = self.0.signals.of_queue(id, types);
        let queue = Arc::new(self.clone());
        let receiver = Arc::new(EndpointQueue::new(self.clone(), endpoint.clone(), signal));
        let marks = receiver.clone();
        Ok(Connected { receiver, dispatcher: queue.clone(), dead_letters: Some(queue), marks: Some(marks) })
    }
}

impl fmt::Debug for SqliteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteQueue").field("file", &self.0.file.file_name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
