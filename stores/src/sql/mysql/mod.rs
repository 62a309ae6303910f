//! Entities, dedup entries, dead letters and messages that are not due yet in a MariaDB database, 10.6 or later. The statements keep to what MySQL
//! 8 has as well, but it has not been tried.
//!
//! Any number of processes may share it; they race by compare-and-set on each entity's version, so that nothing depends on
//! the isolation level. What the server has confirmed is on its disk: a server that says otherwise is refused at the start.
//! But it shows others what it has not yet confirmed: what a message's fate hangs on, such as a dedup entry that says that it
//! was seen, is given only after a commit of the store's own, which is on the disk after all that came before it. The same
//! goes for what was to be written and was there already.
//!
//! A few connections of the store's own write and read, each owned by a task. Requests of all callers queue up; whatever has
//! queued while the last group was being written is written in one transaction and one commit: a small group in two round
//! trips, a large one in a few. Nothing waits for a timer; a lone update takes one round trip, and goes at once.
//!
//! Of the two writes that a message with outgoing messages makes of its entity, the second removes what is sent from the outbox.
//! It waits a moment for the next save of the entity, which does it in passing, and is written by itself only where none comes:
//! [`clean_up_wait`](MySqlOptions::clean_up_wait).
//!
//! Dedup entries are kept in generations by the time of their insertion, each in a table of its own, so that evicting is
//! emptying a table, however many entries there are. Entries of all endpoints with one prefix are kept for the longest
//! retention that any of them ever asked for, by the server's clock; how to lower it is told in [`MySql::schema_sql`].
//! What has to be remembered beyond that ([`LongMemory`](hapax_core::ports::LongMemory)) is in tables of its own, whose names begin
//! with `long_`. Once anybody has asked for it, programs that do not know them are refused when they connect.
//!
//! ```no_run
//! # async fn open(pool: sqlx::MySqlPool) -> Result<(), hapax_core::ports::StoreError> {
//! use hapax_stores::{MySql, sql::mysql::MySqlOptions};
//!
//! let store = MySql::open("mysql://shop:secret@localhost/shop").await?;
//!
//! // Beside an application's own pool, with another prefix, whose tables somebody else has made:
//! let store = MySqlOptions::from(&pool).table_prefix("orders_").open().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Fail-over
//! A replica that is promoted may lack the last commits that the primary confirmed: replication does not wait for it. Lost dedup
//! entries double effects, if the broker gives their messages again and what they did elsewhere was not lost. Where the promise
//! has to outlive the primary, let commits wait for a replica: on both `sync_binlog = 1`; on the primary
//! `rpl_semi_sync_master_enabled = ON`, `rpl_semi_sync_master_wait_point = AFTER_SYNC` (MariaDB begins with `AFTER_COMMIT`, which
//! shows a commit to others before a replica has it) and `rpl_semi_sync_master_timeout`, in milliseconds, longer than any outage
//! that is to be sat out: after it (10000 as MariaDB comes, ten seconds) the primary goes on without the replica, commits are
//! confirmed that are on no other server, and nobody is told but its own log. On the replica `rpl_semi_sync_slave_enabled = ON`.
//! Promote only a replica that was waited for, and none beside a primary that still runs.
//!
//! Numbers that the server has given to names are looked up anew when a connection is lost.
//!
//! Each connection that is made looks at the server anew. One that has become a replica, or that confirms what it may lose, or
//! whose tables are other ones, is told of in the error of every call, and nothing is read or written there; with the next
//! server that is as it should be, all goes on.
//!
//! # Clocks
//! The server's decides how long dedup entries and tombstones are kept, how long an outbox entry has waited for the sweeper,
//! and in a queue when leases end and messages are due. A process's own gives the due time of a delayed message, which the
//! server's then judges: messages come too early or too late by as much as the two are apart. What a process measures by
//! itself, as its deadlines, it measures by a clock that is never set. A server whose clock is more than a second off is
//! warned of when a connection is made.
//!
//! # Not tested
//! MySQL; Galera clusters, of which all programs must use one and the same node, since locks of a session are known to one
//! node only; and poolers that share a connection between clients (ProxySQL with multiplexing, MaxScale): connect to the
//! server itself.

mod arguments;
mod connection;
mod due;
mod error;
mod generations;
mod letters;
mod long;
mod migrate;
mod names;
mod optimistic;
mod options;
pub mod outbox;
mod plan;
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
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use connection::Link;
use hapax_core::{
    ids::Scope,
    ports::{ErrorKind, StoreError},
};
use names::Names;
pub use options::MySqlOptions;
use read::Read;
use settled::Confirmed;
use sqlx::mysql::MySqlConnectOptions;
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

/// A store in one MariaDB database; MySQL is untested. Cloning gives another handle to the same store; its tasks end with the last handle.
///
/// # Limits
/// An entity has at most 16 MiB, and at most 15/16 of the server's `max_allowed_packet`: 15 MiB as MariaDB comes. The runtime in which the store was opened must live as long as the store is used, and must
/// have its timer enabled.
#[derive(Clone)]
pub struct MySql(Arc<Shared>);

struct Shared {
    /// Host, port and database, for messages.
    place: Arc<str>,
    names: Names,
    texts: Texts,
    /// Each for its share of the entities.
    writers: Vec<mpsc::Sender<Write>>,
    reads: mpsc::Sender<Read>,
    /// For what is rare: names, dead letters, upkeep.
    rare: Arc<Mutex<Link>>,
    /// For messages that are not due yet.
    scheduling: Arc<Mutex<Link>>,
    commits: Arc<AtomicU64>,
    entity_bytes_max: usize,
    confirmed: Confirmed,
    write_limit: Duration,
    read_limit: Duration,
    scopes: Numbers<Arc<Scope>>,
    clean_ups: CleanUps<Vec<u8>>,
    cleaning: StdMutex<Option<JoinHandle<()>>>,
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
    moment: Arc<str>,
    withdraw: Arc<str>,
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
            moment: text(&statements::now()),
            withdraw: text(statements::long::WITHDRAW),
        }
    }
}

impl MySql {
    /// Opens the database at `url` (`mysql://USER:PASSWORD@HOST:PORT/DATABASE`), and brings its schema up to date. A server on
    /// another machine has to show who it is: [`MySqlOptions::open`] says how.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options(url).migrate(true).open().await
    }

    /// For more control than [`MySql::open`] gives: nothing is migrated unless it is asked for.
    pub fn options(url: impl AsRef<str>) -> MySqlOptions {
        MySqlOptions::url(url.as_ref())
    }

    /// For a server that is described by sqlx's own options, or by a pool of the application:
    /// `MySqlOptions::from(&pool)`. Their TLS is the application's own business: nothing is looked at.
    pub fn with(options: MySqlConnectOptions) -> MySqlOptions {
        MySqlOptions::with(options)
    }

    /// Brings the schema up to date. Harmless when repeated, or when several programs do it at once.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn migrate(options: MySqlOptions) -> Result<(), StoreError> {
        start::migrate(options).await
    }

    /// The schema as plain SQL, to be applied by hand, with the names of `options`. Harmless when applied again.
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(options: &MySqlOptions) -> Result<String, StoreError> {
        Ok(migrate::schema_sql(&Names::new(&options.table_prefix, start::OPENING)?, &migrate::SCHEMA))
    }

    /// What the account that runs the program must be granted, where another one has applied the schema, as plain SQL: less
    /// than owning the tables, and nothing beyond hapax's own. To be granted anew when the schema has come further. `account`: `NAME`, from any host, or `NAME@HOST`.
    ///
    /// # Errors
    /// Names that are none, or no database.
    pub fn grants_sql(options: &MySqlOptions, account: &str) -> Result<String, StoreError> {
        migrate::grants_sql(options, account)
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

    /// Queues a write and waits for its answer. Unknown is what has been queued and is not answered in time.
    async fn write<T>(
        &self,
        operation: &'static str,
        writer: usize,
        write: Write,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = self.0.write_limit;
        let Some(writes) = self.0.writers.get(writer) else { return Err(self.closed(operation)) };
        match writes.try_send(write) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => return Err(self.closed(operation)),
            Err(TrySendError::Full(write)) => match timeout(limit, writes.send(write)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(self.closed(operation)),
                Err(_) => {
                    let why = format!("{}: more is asked for than the server can write: send less", self.place());
                    return Err(StoreError::new(ErrorKind::Unavailable, operation, why));
                }
            },
        }
        let unknown = |why: &str| {
            let why = format!("{}: {why}; whether it was stored is not known: load again", self.place());
            StoreError::new(ErrorKind::UnknownOutcome, operation, why)
        };
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unknown("the writer ended")),
            Err(_) => Err(unknown("the write has taken longer than its limit")),
        }
    }

    /// Queues a read and waits for its answer. Nothing is written, so that no answer in time is no unknown outcome.
    async fn read<T>(
        &self,
        operation: &'static str,
        read: Read,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answered = async {
            self.0.reads.send(read).await.map_err(|_| ())?;
            answer.await.map_err(|_| ())
        };
        match timeout(self.0.read_limit, answered).await {
            Ok(answer) => answer.map_err(|()| self.closed(operation))?,
            Err(_) => {
                let why = format!(
                    "{}: the read has taken longer than its limit, nothing was changed: see what keeps the server busy, or \
                     raise `read_limit`",
                    self.place()
                );
                Err(StoreError::new(ErrorKind::Unavailable, operation, why))
            }
        }
    }

    fn closed(&self, operation: &'static str) -> StoreError {
        let why =
            format!("{}: the store is closed, or the runtime that opened it is gone: open it again", self.place());
        StoreError::new(ErrorKind::Unavailable, operation, why)
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql").field("place", &self.0.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
