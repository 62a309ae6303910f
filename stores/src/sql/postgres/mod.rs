//! Entities, dedup entries, dead letters, messages that are not due yet and large bodies in a PostgreSQL database, 14 or later.
//!
//! Any number of processes may share it; they race by compare-and-set on each entity's version, and take no lock for longer
//! than a statement. Transactions are read committed, whatever the database's default is: who has waited for a rotation of
//! dedup entries must see it, and at a stricter level would write into the closed generation. What the server has confirmed
//! is on its disk: a server that says otherwise is refused at the start.
//!
//! A few connections of the store's own write and read, each owned by a task. Requests of all callers queue up; whatever has
//! queued while the last group was being written is written in one statement, which is one round trip and one commit. Nothing
//! waits for a timer, and a lone request goes at once.
//!
//! Of the two writes that a message with outgoing messages makes of its entity, the second removes what is sent from the outbox.
//! It waits a moment for the next save of the entity, which does it in passing, and is written by itself only where none comes:
//! [`clean_up_wait`](PostgresOptions::clean_up_wait).
//!
//! Dedup entries are kept in generations by the time of their insertion, each in a table of its own, so that evicting is
//! emptying a table, however many entries there are. Entries of all endpoints in one schema are kept for the longest
//! retention that any of them ever asked for, by the server's clock; how to lower it is told in [`Postgres::schema_sql`].
//! What has to be remembered beyond that ([`LongMemory`](hapax_core::ports::LongMemory)) is in tables of its own, whose names begin
//! with `long_`. Once anybody has asked for it, programs that do not know them are refused when they connect.
//!
//! ```no_run
//! # async fn open(pool: sqlx::PgPool) -> Result<(), hapax_core::ports::StoreError> {
//! use hapax_stores::{Postgres, sql::postgres::PostgresOptions};
//!
//! let store = Postgres::open("postgres://shop:secret@localhost/shop").await?;
//!
//! // Beside an application's own pool, in a schema of another name, whose tables somebody else has made:
//! let store = PostgresOptions::from(&pool).schema("orders").open().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Fail-over
//! A standby that is promoted may lack the last commits that the primary confirmed, unless commits wait for it
//! (`synchronous_standby_names`, as `'ANY 1 (first, second)'`, with `synchronous_commit = on`; less beside it is refused: `local`
//! waits for none, and `remote_write` for no disk). Lost dedup entries double effects, if the broker gives their messages again
//! and what they did elsewhere was not lost: set it where the promise has to outlive the primary, and promote only a standby that
//! was waited for. While none of those named is there, commits wait, and a write's outcome is unknown after its limit. A standby that
//! follows while none is named is warned of when a store is opened.
//!
//! A commit whose wait for the standby is cut is an unknown outcome, and nothing is acted on that is on no standby yet: a message
//! that was seen before, and what waits in an outbox, cost one more commit there. That standbys are named is seen when a
//! connection is made and with each eviction.
//!
//! Numbers of endpoints and sagas that a process remembers are asked for anew once a connection was lost: a
//! promoted standby that lacks the last ones may give them to others. What was about to be written at that very moment may
//! still carry the old one, another reason to have commits wait for the standby.
//!
//! Each connection that is made looks at the server anew. One that has become a standby, or that confirms what it may lose,
//! is told of in the error of every call, and nothing is read or written there; with the next server that is as it should be,
//! all goes on. Behind a connection pooler only the connection to the pooler is seen.
//!
//! # Clocks
//! The server's decides how long dedup entries and tombstones are kept, how long an outbox entry has waited for the sweeper,
//! and in a queue when leases end and messages are due. A process's own gives the due time of a delayed message, which the
//! server's then judges: messages come too early or too late by as much as the two are apart. What a process measures by
//! itself, as its deadlines, it measures by a clock that is never set. A server whose clock is more than a second off is
//! warned of when a connection is made.

mod arguments;
mod bodies;
mod connection;
mod due;
mod error;
mod followed;
mod generations;
mod letters;
mod long;
mod migrate;
mod names;
mod notices;
mod options;
pub mod outbox;
mod ports;
mod rare;
mod read;
mod rows;
mod schedule;
mod scopes;
mod server;
mod settled;
mod start;
mod statements;
mod survey;
mod upkeep;
#[doc(hidden)]
pub mod wire;
mod write;

use std::{
    fmt,
    sync::{
        Arc, Mutex as StdMutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arguments::Begin;
use connection::Link;
use hapax_core::{
    ids::Scope,
    ports::{ErrorKind, StoreError},
};
use names::Names;
pub use options::PostgresOptions;
use read::Read;
use settled::Settling;
use sqlx::postgres::PgConnectOptions;
use tokio::{
    runtime::Handle,
    sync::{
        Mutex,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinHandle,
    time::timeout,
};
use write::Write;

use super::{clean_ups::CleanUps, numbers::Numbers};

/// A store in one PostgreSQL database. Cloning gives another handle to the same store; its tasks end with the last handle.
///
/// # Limits
/// An entity has at most 16 MiB, a body that does not travel 256 MiB. The runtime in which the store was opened must live as long as the store is used, and must
/// have its timer enabled.
#[derive(Clone)]
pub struct Postgres(Arc<Shared>);

struct Shared {
    /// Host, port and database, for messages.
    place: Arc<str>,
    names: Names,
    /// For rare work of several statements.
    begin: Begin,
    texts: Texts,
    /// Each for its share of the entities.
    writers: Vec<mpsc::Sender<Write>>,
    reads: mpsc::Sender<Read>,
    /// For what is rare: names, dead letters, upkeep.
    rare: Arc<Mutex<Link>>,
    /// For messages that are not due yet.
    scheduling: Arc<Mutex<Link>>,
    commits: Arc<AtomicU64>,
    write_limit: Duration,
    read_limit: Duration,
    scopes: Numbers<Arc<Scope>>,
    clean_ups: CleanUps<Vec<u8>>,
    cleaning: StdMutex<Option<JoinHandle<()>>>,
    /// Whether commits wait for a standby.
    standbys: Arc<AtomicBool>,
    settling: Arc<Settling>,
    tasks: StdMutex<Vec<JoinHandle<()>>>,
    runtime: Handle,
}

/// Texts that are the same for the life of a store.
struct Texts {
    version: Arc<str>,
    pending_page: Arc<str>,
    scope_id: Arc<str>,
    scope_add: Arc<str>,
    letter_add: Arc<str>,
    letter_list: Arc<str>,
    letter_discard: Arc<str>,
    schedule: schedule::Texts,
    recall: Arc<str>,
    moment: Arc<str>,
    ask: Arc<str>,
    withdraw: Arc<str>,
    bodies: statements::bodies::Texts,
}

impl Texts {
    fn new(names: &Names) -> Self {
        let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
        Self {
            version: text(statements::VERSION),
            pending_page: text(&statements::pending_page()),
            scope_id: text(statements::SCOPE_ID),
            scope_add: text(statements::SCOPE_ADD),
            letter_add: text(statements::LETTER_ADD),
            letter_list: text(statements::LETTER_LIST),
            letter_discard: text(statements::LETTER_DISCARD),
            schedule: schedule::Texts::new(names),
            recall: text(&statements::long::recall()),
            moment: text(&statements::long::moment()),
            ask: text(statements::long::ASK),
            withdraw: text(statements::long::WITHDRAW),
            bodies: statements::bodies::Texts::new(names),
        }
    }
}

impl Postgres {
    /// Opens the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`), and brings its schema up to date. A server on
    /// another machine has to show who it is: [`PostgresOptions::open`] says how.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options(url).migrate(true).open().await
    }

    /// For more control than [`Postgres::open`] gives: nothing is migrated unless it is asked for.
    pub fn options(url: impl AsRef<str>) -> PostgresOptions {
        PostgresOptions::url(url.as_ref())
    }

    /// For a server that is described by sqlx's own options, or by a pool of the application:
    /// `PostgresOptions::from(&pool)`. Their TLS is the application's own business: nothing is looked at.
    pub fn with(options: PgConnectOptions) -> PostgresOptions {
        PostgresOptions::with(options)
    }

    /// Brings the schema up to date. Harmless when repeated, or when several programs do it at once.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn migrate(options: PostgresOptions) -> Result<(), StoreError> {
        start::migrate(options).await
    }

    /// The schema as plain SQL, to be applied by hand in one transaction, with the names of `options`. Harmless when applied
    /// again.
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(options: &PostgresOptions) -> Result<String, StoreError> {
        migrate::SCHEMA.sql(options)
    }

    /// What the role that runs the program must be granted, where another role has applied the schema, as plain SQL: less than
    /// owning the tables, and nothing beyond hapax's own. To be granted anew when the schema has come further.
    ///
    /// # Errors
    /// Names that are none.
    pub fn grants_sql(options: &PostgresOptions, role: &str) -> Result<String, StoreError> {
        Ok(migrate::grants_sql(&Names::new(options, start::OPENING)?, role))
    }

    /// Writes what has been asked for, closes all connections and ends. All handles refuse to work from then on. Not needed
    /// for safety: what was confirmed is stored.
    pub async fn close(&self) {
        self.0.clean_ups.close();
        let cleaning = self.0.cleaning.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cleaning) = cleaning {
            let _ = cleaning.await;
        }
        for writes in &self.0.writers {
            let _ = writes.send(Write::Close).await;
        }
        let _ = self.0.reads.send(Read::Close).await;
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        self.0.rare.lock().await.close().await;
        self.0.scheduling.lock().await.close().await;
        self.0.settling.close().await;
    }

    /// How many commits this store has made since it was opened: with its requests, how well they share commits. Those of
    /// other processes are not counted.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::Relaxed)
    }

    fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    fn place(&self) -> &str {
        &self.0.place
    }

    /// Queues a write, before this returns if there is room, and waits for its answer. Unknown is what has been queued and is
    /// not answered in time.
    fn write<T>(
        &self,
        operation: &'static str,
        writer: usize,
        write: Write,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send,
    {
        let queued = match self.0.writers.get(writer) {
            None => Err(self.closed(operation)),
            Some(writes) => match writes.try_send(write) {
                Ok(()) => Ok(None),
                Err(TrySendError::Full(write)) => Ok(Some(Box::pin(self.write_later(operation, writer, write)))),
                Err(TrySendError::Closed(_)) => Err(self.closed(operation)),
            },
        };
        async move {
            if let Some(later) = queued? {
                later.await?;
            }
            let unknown = |why: &str| {
                let why = format!("{}: {why}; whether it was stored is not known: load again", self.place());
                StoreError::new(ErrorKind::UnknownOutcome, operation, why)
            };
            match timeout(self.0.write_limit, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(unknown("the writer ended")),
                Err(_) => Err(unknown("the write has taken longer than its limit")),
            }
        }
    }

    /// Waits for room in the queue of a writer.
    async fn write_later(&self, operation: &'static str, writer: usize, write: Write) -> Result<(), StoreError> {
        let Some(writes) = self.0.writers.get(writer) else { return Err(self.closed(operation)) };
        match timeout(self.0.write_limit, writes.send(write)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.closed(operation)),
            Err(_) => {
                let why = format!("{}: more is asked for than the server can write: send less", self.place());
                Err(StoreError::new(ErrorKind::Unavailable, operation, why))
            }
        }
    }

    /// Queues a read, before this returns if there is room, and waits for its answer. Nothing is written, so that no answer
    /// in time is no unknown outcome.
    fn read<T>(
        &self,
        operation: &'static str,
        read: Read,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send,
    {
        let queued = match self.0.reads.try_send(read) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(read)) => Ok(Some(Box::pin(self.0.reads.send(read)))),
            Err(TrySendError::Closed(_)) => Err(self.closed(operation)),
        };
        async move {
            let queued = queued?;
            let answered = async {
                if let Some(later) = queued {
                    later.await.map_err(|_| ())?;
                }
                answer.await.map_err(|_| ())
            };
            match timeout(self.0.read_limit, answered).await {
                Ok(answer) => answer.map_err(|()| self.closed(operation))?,
                Err(_) => {
                    let why = format!(
                        "{}: the read has taken longer than its limit, nothing was changed: see what keeps the server \
                         busy, or raise `read_limit`",
                        self.place()
                    );
                    Err(StoreError::new(ErrorKind::Unavailable, operation, why))
                }
            }
        }
    }

    fn closed(&self, operation: &'static str) -> StoreError {
        let why =
            format!("{}: the store is closed, or the runtime that opened it is gone: open it again", self.place());
        StoreError::new(ErrorKind::Unavailable, operation, why)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("place", &self.0.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
