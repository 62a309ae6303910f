//! Durable queues in a MariaDB database, the entity store's own or another; MySQL is untested.
//!
//! No broker: any number of processes on any number of hosts share the tables. A message is there when the dispatch is
//! confirmed, at the server's disk as the store's own writes are, and comes again until it is settled. The queue has a few
//! connections of its own, apart from those of a store in the same database. Whatever has been asked for while the last
//! group was being written (sending, settling, receiving) is one text, one round trip and one commit.
//!
//! - *Leases*, delays and due times end by the server's clock, which all processes share. One that is set forward ends them
//!   early, one that is set back late.
//! - *Receivers* know at once what their own process sends. What other processes send they look for, since the server tells
//!   nobody: every 5 ms while something comes, less and less often down to every 240 ms when nothing does, once for all queues
//!   of a process. So a message from another process waits for 250 ms at most, and a process that waits for nothing but messages
//!   asks the server less than 5 times in a second. What is committed late by a slow transaction, and what comes free because
//!   its receiver has died, is found within the same time.
//! - *Order* of the messages of one partition key is kept where it is asked for
//!   ([`MySqlQueueOptions::ordered_keys`]). A message with a due time takes its place when it is due.
//! - *Published* messages go to who subscribes at that moment. A subscription stays while its endpoint is away; one that
//!   is gone for good must be told to be ([`MySqlQueue::abandon`]).
//! - *Deleted* messages stay in the server's indexes until it has purged them, which a transaction that is open for hours, as
//!   that of a backup, puts off. Receivers begin behind them, and look at them for a fifth of the time at most.
//!
//! Tested with MariaDB 10.11. The statements keep to what MySQL 8 has as well, but neither MySQL, a Galera cluster nor a connection pooler
//! before a server has been tried. A server that replicates by statement (`binlog_format = STATEMENT`) refuses them; `MIXED`, the
//! default, and `ROW` do not.
//!
//! A replica that is promoted may lack the last commits that the primary confirmed: what was sent with them is gone, and what was
//! acknowledged with them comes again. Where the store is in another database, a message that is gone is gone for good: the
//! outbox does not hold it any more. Let commits wait for a replica (semi-synchronous replication; the settings are told in
//! [`hapax_stores::sql::mysql`], under *Fail-over*). An endpoint whose queue was lost says so, and is started again.
//!
//! Open a database once in a process and clone the handle: two handles opened apart are like two processes.

mod arguments;
mod letters;
mod options;
mod ordered;
mod rare;
mod statements;
mod survey;
mod write;

use std::{
    fmt,
    ops::RangeInclusive,
    sync::{Arc, Mutex as StdMutex, PoisonError},
};

use arguments::Bind;
use async_trait::async_trait;
use hapax_core::{
    Sender,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delays, DispatchError, Dispatcher, ErrorKind, Refused, StoreError, Transport, TransportCapabilities,
        TransportError,
    },
};
use hapax_stores::{
    MySql,
    sql::mysql::{
        MySqlOptions,
        wire::{Numbers, Server, Wire},
    },
};
pub use options::MySqlQueueOptions;
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
    task::JoinHandle,
};
use write::Writer;

pub use super::SetAside;
use super::{
    errors::transport_error,
    served::{
        ASKS_MAX, Hub, Rules, asks::Ask, dispatcher, rare::CONNECTING, receiver::EndpointQueue, signals::Signals,
        writer,
    },
};

/// How far behind the newest message a look begins, in milliseconds; measured.
const LATE_MS: RangeInclusive<i64> = 50..=1000;

/// A reason may be as long as its text; more of it than that helps nobody, and would not fit into what the server takes.
const REASON_BYTES_MAX: usize = 256 << 10;

/// Queues in one MariaDB database; MySQL is untested. Cloning gives another handle to the same queues; its tasks end with the last handle.
///
/// # Limits
/// A message has at most 1 MiB, a database a million messages and 10,000 queues; the first two are options. It has up to four
/// connections: two that write, one that looks for messages and one for what is rare. The runtime in which it was opened must live as long as the queue is used,
/// and must have its timer enabled.
#[derive(Clone)]
pub struct MySqlQueue(Arc<Shared>);

struct Shared {
    server: Server,
    options: MySqlQueueOptions,
    texts: Texts,
    hub: Hub<MySqlQueue>,
    /// For looks, which wait for nothing else.
    looks: Arc<Mutex<Wire>>,
    /// For what is rare: names, dead letters, counts.
    rare: Arc<Mutex<Wire>>,
    names: Numbers<EndpointName>,
    writers: StdMutex<Vec<JoinHandle<()>>>,
}

/// Statements that are prepared.
struct Texts {
    queue_id: Arc<str>,
    queue_add: Arc<str>,
    backlog: Arc<str>,
    messages: Arc<str>,
    newest: Arc<str>,
    is_left: Arc<str>,
    letter_add: Arc<str>,
    letter_list: Arc<str>,
    letter_discard: Arc<str>,
    letter_purge: Arc<str>,
}

impl Texts {
    fn new(server: &Server) -> Self {
        Self {
            queue_id: server.text(statements::QUEUE_ID),
            queue_add: server.text(statements::QUEUE_ADD),
            backlog: server.text(statements::BACKLOG),
            messages: server.text(statements::MESSAGES),
            newest: server.text(statements::NEWEST),
            is_left: server.text(statements::IS_LEFT),
            letter_add: server.text(statements::LETTER_ADD),
            letter_list: server.text(statements::LETTER_LIST),
            letter_discard: server.text(statements::LETTER_DISCARD),
            letter_purge: server.text(statements::LETTER_PURGE),
        }
    }
}

impl MySqlQueue {
    /// Opens queues in the database at `url` (`mysql://USER:PASSWORD@HOST:PORT/DATABASE`), and brings their schema up to
    /// date.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(url).await
    }

    /// Opens queues in the database of `store`, on connections of their own, and brings their schema up to date.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn on(store: &MySql) -> Result<Self, StoreError> {
        Self::options().migrate(true).on(store).await
    }

    /// For more control: lease, limits, order, how often to look. Nothing is migrated unless it is asked for.
    pub const fn options() -> MySqlQueueOptions {
        MySqlQueueOptions::new()
    }

    /// The schema as plain SQL, to be applied by hand, with the names of `database`. Harmless when applied again.
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(database: &MySqlOptions) -> Result<String, StoreError> {
        statements::SCHEMA.sql(database)
    }

    /// What the account (`NAME`, or `NAME@HOST`) that runs the program must be granted, where another one has applied the
    /// schema, as plain SQL: nothing beyond the queue's own tables.
    ///
    /// # Errors
    /// Names that are none.
    pub fn grants_sql(database: &MySqlOptions, account: &str) -> Result<String, StoreError> {
        statements::SCHEMA.with_account(database, account, statements::GRANTS)
    }

    /// Sends messages from outside any handler.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }

    /// How many messages wait for `endpoint` or are being handled there, those that are not due included.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        const OPERATION: &str = "counting messages";
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes());
        let rows = self.read(OPERATION, &self.0.texts.backlog, arguments).await?;
        self.counted(OPERATION, &rows)
    }

    /// How many messages are in all queues of the schema.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn messages(&self) -> Result<u64, StoreError> {
        const OPERATION: &str = "counting messages";
        let rows = self.read(OPERATION, &self.0.texts.messages, MySqlArguments::default()).await?;
        self.counted(OPERATION, &rows)
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), StoreError> {
        if !types.is_empty() {
            let types: Vec<&str> = types.iter().map(TypeName::as_str).collect();
            let text = statements::unsubscribe(endpoint.as_str(), &types);
            self.transaction("unsubscribing", vec![text]).await?;
        }
        Ok(())
    }

    /// Removes what waits for an endpoint that is gone for good: its subscriptions, and up to `limit` of its messages,
    /// whether under a lease or not. Tells how many messages; call again until there are none.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn abandon(&self, endpoint: &EndpointName, limit: usize) -> Result<u64, StoreError> {
        const OPERATION: &str = "abandoning a queue";
        let answers = self.transaction(OPERATION, statements::abandon(endpoint.as_str(), limit)).await?;
        Ok(answers.get(2).map_or(0, |answer| answer.affected))
    }

    /// How many commits this queue has made since it was opened: with its messages, how well they share commits. Those of
    /// other processes are not counted.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.server.commits()
    }

    /// Writes what has been asked for, closes all connections and ends. All handles refuse to work from then on. Not needed
    /// for safety: what was confirmed is stored.
    pub async fn close(&self) {
        let writers = std::mem::take(&mut *self.0.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = self.0.hub.asks.send(Ask::Close).await;
        for writer in writers {
            let _ = writer.await;
        }
        self.0.looks.lock().await.close().await;
        self.0.rare.lock().await.close().await;
    }

    fn new(server: Server, options: MySqlQueueOptions) -> Result<Self, StoreError> {
        let runtime = Handle::try_current().map_err(|_| {
            let why = "there is no tokio runtime: open it within one";
            StoreError::new(ErrorKind::Misconfigured, statements::SCHEMA.opening, why)
        })?;
        let text_max = options.text_max(&server)?;
        let (asks, queue) = mpsc::channel(ASKS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let signals = Signals::new(options.poll_busy, options.poll_idle, LATE_MS);
        let writer = |_| {
            let writer = Writer::new(&server, text_max, signals.late());
            runtime.spawn(writer::run(writer, queue.clone()))
        };
        let writers = (0..options.writers).map(writer).collect();
        let rules = Rules {
            lease: options.lease,
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            messages_max: options.messages_max,
            group_bytes_max: text_max,
            limit: server.limit(),
        };
        Ok(Self(Arc::new(Shared {
            hub: Hub::new(server.place(), rules, asks, signals, runtime),
            texts: Texts::new(&server),
            looks: Arc::new(Mutex::new(server.wire())),
            rare: Arc::new(Mutex::new(server.wire())),
            names: server.numbers(),
            writers: StdMutex::new(writers),
            server,
            options,
        })))
    }

    fn place(&self) -> &str {
        self.0.server.place()
    }

    fn counted(&self, operation: &'static str, rows: &[MySqlRow]) -> Result<u64, StoreError> {
        self.0.hub.counted(operation, rows.first().and_then(|row| row.try_get(0).ok()))
    }
}

#[async_trait]
impl Dispatcher for MySqlQueue {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        dispatcher::check(self, outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        dispatcher::dispatch(self, outgoing).await
    }
}

#[async_trait]
impl Transport for MySqlQueue {
    fn capabilities(&self) -> TransportCapabilities {
        let MySqlQueueOptions { lease, message_bytes_max, ordered_keys, redelivery_max, .. } = self.0.options;
        TransportCapabilities {
            name: "mysql",
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
        let signal = self.0.hub.signals.of_queue(id);
        let queue = Arc::new(self.clone());
        let receiver = Arc::new(EndpointQueue::new(self.clone(), endpoint.clone(), signal));
        let marks = receiver.clone();
        Ok(Connected { receiver, dispatcher: queue.clone(), dead_letters: Some(queue), marks: Some(marks) })
    }
}

impl fmt::Debug for MySqlQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlQueue").field("place", &self.place()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
