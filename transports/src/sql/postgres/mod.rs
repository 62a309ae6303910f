//! Durable queues in a PostgreSQL database, the entity store's own or another.
//!
//! No broker: any number of processes on any number of hosts share the tables. A message is there when the dispatch is
//! confirmed, at the server's disk as the store's own writes are, and comes again until it is settled. The queue has a few
//! connections of its own, apart from those of a store in the same database. Whatever has been asked for while the last
//! group was being written (sending, settling, receiving) is one statement, one round trip and one commit.
//!
//! - *Leases*, delays and due times end by the server's clock, which all processes share. One that is set forward ends them
//!   early, one that is set back late.
//! - *Receivers* know at once what their own process sends, and are told by the server what others send (`LISTEN`, at most
//!   5 ms later); behind a connection pooler, or while that connection is lost, they look for it: every 5 ms while something
//!   comes, less and less often down to every 240 ms when nothing does, once for all queues of a process. What is committed
//!   late by a slow transaction, and what comes free because its receiver has died, is found within the longer of these.
//! - *Order* of the messages of one partition key is kept where it is asked for
//!   ([`PostgresQueueOptions::ordered_keys`]). A message with a due time takes its place when it is due.
//! - *Published* messages go to who subscribes at that moment. A subscription stays while its endpoint is away; one that
//!   is gone for good must be told to be ([`PostgresQueue::abandon`]).
//!
//! A standby that is promoted may lack the last commits that the primary confirmed: what was sent with them is gone, and what was
//! acknowledged with them comes again. Where the store is in another database, a message that is gone is gone for good: the
//! outbox does not hold it any more. Let commits wait for a standby (`synchronous_standby_names`, with `synchronous_commit =
//! on`; see [`hapax_stores::sql::postgres`], under *Fail-over*). A subscription or a dead letter that was there already is told as
//! done when the standby has it as well.
//!
//! Open a database once in a process and clone the handle: two handles opened apart are like two processes.

mod arguments;
mod letters;
mod options;
mod rare;
mod statements;
mod survey;
mod told;
mod write;

use std::{
    fmt,
    ops::RangeInclusive,
    sync::{Arc, Mutex as StdMutex, PoisonError},
};

use arguments::{Bind, as_i64};
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
    Postgres,
    sql::postgres::{
        PostgresOptions,
        wire::{Numbers, Server, Wire},
    },
};
pub use options::PostgresQueueOptions;
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc},
    task::JoinHandle,
};
use told::Told;
use write::Writer;

pub use super::SetAside;
use super::{
    errors::transport_error,
    served::{
        ASKS_MAX, Hub, Rules, asks::Ask, dispatcher, rare::CONNECTING, receiver::EndpointQueue, signals::Signals,
        writer,
    },
};

/// How far behind the newest message a look begins, in milliseconds: longer than a usual commit takes.
const LATE_MS: RangeInclusive<i64> = 200..=200;

/// Queues in one PostgreSQL database. Cloning gives another handle to the same queues; its tasks end with the last handle.
///
/// # Limits
/// A message has at most 1 MiB, a schema a million messages and 10,000 queues; the first two are options. It has up to six
/// connections: two that write, one that looks for messages, one for what is rare, one that tells and one that listens. The runtime in which it was opened must
/// live as long as the queue is used, and must have its timer enabled.
#[derive(Clone)]
pub struct PostgresQueue(Arc<Shared>);

struct Shared {
    server: Server,
    options: PostgresQueueOptions,
    texts: Texts,
    hub: Hub<PostgresQueue>,
    /// For looks, which wait for nothing else.
    looks: Arc<Mutex<Wire>>,
    /// For what is rare: names, dead letters, counts.
    rare: Arc<Mutex<Wire>>,
    names: Numbers<EndpointName>,
    told: Arc<Told>,
    writers: StdMutex<Vec<JoinHandle<()>>>,
    /// They wait for what may never come.
    others: StdMutex<Vec<JoinHandle<()>>>,
}

/// Texts that are the same for the life of a queue.
struct Texts {
    look: Arc<str>,
    queue_id: Arc<str>,
    queue_add: Arc<str>,
    subscribe: Arc<str>,
    unsubscribe: Arc<str>,
    abandon: Arc<str>,
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
            look: server.text(&statements::look()),
            queue_id: server.text(statements::QUEUE_ID),
            queue_add: server.text(statements::QUEUE_ADD),
            subscribe: server.text(statements::SUBSCRIBE),
            unsubscribe: server.text(statements::UNSUBSCRIBE),
            abandon: server.text(statements::ABANDON),
            backlog: server.text(statements::BACKLOG),
            messages: server.text(statements::MESSAGES),
            newest: server.text(statements::NEWEST),
            is_left: server.text(statements::IS_LEFT),
            letter_add: server.text(statements::LETTER_ADD),
            letter_list: server.text(statements::LETTER_LIST),
            letter_discard: server.text(statements::LETTER_DISCARD),
            letter_purge: server.text(&statements::letter_purge()),
        }
    }
}

impl PostgresQueue {
    /// Opens queues in the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`), and brings their schema up to
    /// date.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(url).await
    }

    /// Opens queues in the database of `store`, on connections of their own, and brings their schema up to date.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn on(store: &Postgres) -> Result<Self, StoreError> {
        Self::options().migrate(true).on(store).await
    }

    /// For more control: lease, limits, order, how often to look. Nothing is migrated unless it is asked for.
    pub const fn options() -> PostgresQueueOptions {
        PostgresQueueOptions::new()
    }

    /// The schema as plain SQL, to be applied by hand in one transaction, with the names of `database`. Harmless when
    /// applied again.
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(database: &PostgresOptions) -> Result<String, StoreError> {
        statements::SCHEMA.sql(database)
    }

    /// What the role that runs the program must be granted, where another role has applied the schema, as plain SQL: less
    /// than owning the tables, and nothing beyond the queue's own.
    ///
    /// # Errors
    /// Names that are none.
    pub fn grants_sql(database: &PostgresOptions, role: &str) -> Result<String, StoreError> {
        let role = format!("\"{}\"", role.replace('"', "\"\""));
        let grants = statements::SCHEMA.with_names(database, statements::GRANTS)?;
        Ok(grants.replace("{schema}", &statements::SCHEMA.name(database)?).replace("{role}", &role))
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
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str());
        let rows = self.read(OPERATION, &self.0.texts.backlog, arguments).await?;
        self.counted(OPERATION, &rows)
    }

    /// How many messages are in all queues of the schema.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn messages(&self) -> Result<u64, StoreError> {
        self.count_up_to(u64::MAX).await
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(types.iter().map(TypeName::as_str).collect::<Vec<&str>>());
        self.rare("unsubscribing", &self.0.texts.unsubscribe, arguments).await?;
        Ok(())
    }

    /// Removes what waits for an endpoint that is gone for good: its subscriptions, and up to `limit` of its messages,
    /// whether under a lease or not. Tells how many messages; call again until there are none.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn abandon(&self, endpoint: &EndpointName, limit: usize) -> Result<u64, StoreError> {
        const OPERATION: &str = "abandoning a queue";
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_i64(limit));
        let rows = self.rare(OPERATION, &self.0.texts.abandon, arguments).await?;
        self.counted(OPERATION, &rows)
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
        self.0.end_others();
        let writers = std::mem::take(&mut *self.0.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = self.0.hub.asks.send(Ask::Close).await;
        for writer in writers {
            let _ = writer.await;
        }
        self.0.looks.lock().await.close().await;
        self.0.rare.lock().await.close().await;
    }

    fn new(server: Server, options: PostgresQueueOptions) -> Result<Self, StoreError> {
        let runtime = Handle::try_current().map_err(|_| {
            let why = "there is no tokio runtime: open it within one";
            StoreError::new(ErrorKind::Misconfigured, statements::SCHEMA.opening, why)
        })?;
        let (asks, queue) = mpsc::channel(ASKS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let writer = |_| runtime.spawn(writer::run(Writer::new(&server), queue.clone()));
        let writers = (0..options.writers).map(writer).collect();
        let told = Arc::new(Told::new());
        let rules = Rules {
            lease: options.lease,
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            messages_max: options.messages_max,
            group_bytes_max: write::GROUP_BYTES_MAX,
            limit: server.limit(),
        };
        let signals = Signals::new(options.poll_busy, options.poll_idle, LATE_MS);
        let shared = Arc::new(Shared {
            hub: Hub::new(server.place(), rules, asks, signals, runtime.clone()),
            texts: Texts::new(&server),
            looks: Arc::new(Mutex::new(server.wire())),
            rare: Arc::new(Mutex::new(server.wire())),
            names: server.numbers(),
            told: told.clone(),
            writers: StdMutex::new(writers),
            others: StdMutex::default(),
            server: server.clone(),
            options,
        });
        let mut others = vec![runtime.spawn(told::tell(told, server.wire(), server.clone()))];
        match server.session().filter(|_| shared.options.listen && shared.server.may_listen()) {
            Some(session) => {
                let listening = told::listen(Arc::downgrade(&shared), session, server.channel());
                others.push(runtime.spawn(listening));
            }
            None => {
                let place = server.place();
                tracing::info!(%place, "nobody listens to the server here: new messages are looked for");
            }
        }
        *shared.others.lock().unwrap_or_else(PoisonError::into_inner) = others;
        Ok(Self(shared))
    }

    fn place(&self) -> &str {
        self.0.server.place()
    }

    async fn count_up_to(&self, most: u64) -> Result<u64, StoreError> {
        const OPERATION: &str = "counting messages";
        let mut arguments = PgArguments::default();
        arguments.bind(i64::try_from(most).unwrap_or(i64::MAX));
        let rows = self.read(OPERATION, &self.0.texts.messages, arguments).await?;
        self.counted(OPERATION, &rows)
    }

    fn counted(&self, operation: &'static str, rows: &[PgRow]) -> Result<u64, StoreError> {
        self.0.hub.counted(operation, rows.first().and_then(|row| row.try_get(0).ok()))
    }
}

impl Shared {
    fn end_others(&self) {
        let others = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        others.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_others();
    }
}

#[async_trait]
impl Dispatcher for PostgresQueue {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        dispatcher::check(self, outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        dispatcher::dispatch(self, outgoing).await
    }
}

#[async_trait]
impl Transport for PostgresQueue {
    fn capabilities(&self) -> TransportCapabilities {
        let PostgresQueueOptions { lease, message_bytes_max, ordered_keys, redelivery_max, .. } = self.0.options;
        TransportCapabilities {
            name: "postgres",
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

impl fmt::Debug for PostgresQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresQueue").field("place", &self.place()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
