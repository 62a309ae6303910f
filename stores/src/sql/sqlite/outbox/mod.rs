//! An outbox in an SQLite file: messages are stored in the user's own transactions, and a [relay](hapax_core::relay) sends them.
//!
//! ```no_run
//! # async fn run(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
//! # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: String }
//! # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
//! use hapax_stores::sql::sqlite::outbox::SqliteOutbox;
//!
//! let outbox = SqliteOutbox::open("shop.db").await?;
//! let mut tx = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id) VALUES (?)").bind("o-1").execute(&mut *tx).await?;
//! let ticket = outbox.enqueue(&mut tx, &OrderPlaced { order: "o-1".into() }).await?;
//! outbox.commit(tx, ticket).await?; // The message is on its way; had it been rolled back, there were none.
//! # Ok(())
//! # }
//! ```
//!
//! The file is the application's own: the outbox adds tables whose names begin with `hapax_outbox`, and `hapax_inbox`. It makes
//! the file's journal mode WAL, for every program that opens it. Connections of the user's that write must have
//! `synchronous = FULL`, as sqlx's own default is: with `NORMAL` a power failure may take back a transaction whose messages
//! were sent.
//!
//! A file has one writer at a time. A transaction that has stored a message keeps the others and the relay waiting until it
//! ends, and a relay that waits for longer than its busy timeout tries again later.
//!
//! SQLite tells nobody what was stored: a relay in another process than the writer looks for it, every two seconds at a quiet time
//! ([`RelayOptions::polls`](hapax_core::relay::RelayOptions::polls)). What is stored in the relay's own process is sent at
//! once. Where order is kept, one relay at a time sends, and others wait for its end.
//!
//! Leases and due times are by the host's clock. One that is set back by more than a minute while a relay is at work, or was killed at it,
//! is noticed: then no claim ends later than one that begins now, and what waits for its next attempt is tried at once.

mod care;
mod import;
mod inbox;
mod listed;
mod options;
mod statements;
mod table;
mod tick;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_core::{
    envelope::Outgoing,
    ids::MessageId,
    ports::StoreError,
    relay::{PushLine, Stored, Ticket},
};
pub use inbox::{SqliteInbox, SqliteTransaction};
pub use options::SqliteOutboxOptions;
use sqlx::{
    AssertSqlSafe, Executor as _, Row as _, Sqlite as Driver, SqliteConnection, Transaction, sqlite::SqliteArguments,
};
use tokio::sync::Mutex as AsyncMutex;

pub use super::super::outbox::{CommitError, EnqueueError, FailedMessage, Import, Imported, Routes, Source};
use super::{
    super::outbox::{Births, Looked, Row, Writes, as_i64, hex, ids, millis, storing},
    arguments::Bind,
    connection::{Link, Ran},
    error::{Failure, Place, wrote_nothing},
    rows,
};

/// Whose tickets its outboxes commit.
const DATABASE: &str = "SQLite";
/// Rows of one statement: SQLite takes 32,766 values.
const ROWS_MAX: usize = 500;

/// An outbox table in an SQLite file. Cloning gives another handle to the same.
///
/// # Limits
/// A message has at most 1 MiB, which is an option. It has up to two connections of its own, each with a thread: one for the
/// relay and one for what is rare; messages are stored on the user's. The runtime in which it was opened must live as long as it
/// is used, and must have its timer enabled.
#[derive(Clone)]
pub struct SqliteOutbox(Arc<Shared>);

struct Shared {
    name: String,
    /// The same for all: a file has one.
    table: Arc<str>,
    writes: Writes,
    line: RwLock<Option<Arc<PushLine>>>,
    ordered: bool,
    relay: Arc<AsyncMutex<Link>>,
    /// For what is rare, or not urgent.
    rare: Arc<AsyncMutex<Link>>,
    looked: Mutex<Looked<i64>>,
    /// How long another writer is waited for.
    patience: Duration,
}

impl SqliteOutbox {
    storing!(SqliteOutboxOptions, SqliteConnection);

    /// Opens the outbox in the file at `path` (or an URL, `sqlite://PATH`), creates it if it is not there and brings its schema
    /// up to date.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`](super::SqliteOptions::open).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(path).await
    }

    /// The schema as plain SQL, to be applied by hand in one transaction. Harmless when applied again.
    #[must_use]
    pub fn schema_sql() -> String {
        statements::SCHEMA.sql()
    }

    /// Stores many messages, as they are, in statements of up to 500. Nothing is stored if one is refused.
    ///
    /// # Errors
    /// [`EnqueueError`]. A message whose id is in the table already is an error of the database: an id is of one message for
    /// ever.
    pub async fn enqueue_all(&self, tx: &mut SqliteConnection, messages: &[Outgoing]) -> Result<Ticket, EnqueueError> {
        if messages.is_empty() {
            return Ok(Ticket::empty());
        }
        let line = self.line();
        let rows = messages.iter().map(|outgoing| self.0.writes.row(outgoing, line.as_deref()));
        let rows = rows.collect::<Result<Vec<Row>, EnqueueError>>()?;
        let births = Births::of(line.clone().filter(|_| !self.0.ordered), messages);
        if rows.len() > ROWS_MAX {
            tx.execute(sqlx::raw_sql("SAVEPOINT hapax_enqueue")).await?;
        }
        let stored = self.insert(tx, &rows, &births).await;
        if rows.len() > ROWS_MAX {
            // What has failed in the middle leaves nothing behind.
            let end = if stored.is_ok() {
                "RELEASE hapax_enqueue"
            } else {
                "ROLLBACK TO hapax_enqueue; RELEASE hapax_enqueue"
            };
            let ended = tx.execute(sqlx::raw_sql(end)).await;
            stored?;
            ended?;
        } else {
            stored?;
        }
        if self.0.ordered {
            // Whose relay sends is not known here.
            return Ok(Ticket::waiting(line, None).storing(self.in_table(messages)));
        }
        Ok(births.ticket(messages, &rows, self.in_table(messages), None))
    }

    /// Commits, and hands `ticket` over: its messages are on their way. For transactions of a pool; a savepoint within one ends
    /// without a commit, and is not taken here. Who has begun on a connection of his own commits himself and calls
    /// [`Ticket::committed`].
    ///
    /// # Errors
    /// [`CommitError`], which says whether it may be committed all the same; also that messages of `ticket` are not in the
    /// table any more, since they were rolled back: to a savepoint, or by SQLite itself, as on a full disk.
    /// Nothing is pushed then: where it is committed, a relay finds the messages when the lease of their birth is over.
    pub async fn commit(&self, mut tx: Transaction<'static, Driver>, ticket: Ticket) -> Result<(), CommitError> {
        CommitError::unless_of(DATABASE, &ticket)?;
        still_there(&mut tx, &ticket).await?;
        tx.commit().await.map_err(|error| {
            let unknown = !wrote_nothing(&error);
            CommitError::new(error, unknown)
        })?;
        ticket.committed();
        Ok(())
    }

    /// Tries to send messages again that have failed, from their first attempt on. Tells how many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        self.change("retrying messages", statements::retry(rows::now()), messages).await
    }

    /// Gives messages up that have failed: they count as expired, and hold up nothing any more. Tells how many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        self.change("discarding messages", statements::discard(rows::now()), messages).await
    }

    async fn change(&self, operation: &'static str, set: String, messages: &[MessageId]) -> Result<u64, StoreError> {
        let changed = care::change(&self.0, operation, &set, messages).await?;
        if let Some(line) = self.line() {
            line.wake();
        }
        Ok(changed)
    }

    async fn insert(&self, tx: &mut SqliteConnection, all: &[Row], births: &Births) -> Result<(), sqlx::Error> {
        let (lease, now) = (millis(births.lease()), rows::now());
        for (rows, tokens) in all.chunks(ROWS_MAX).zip(births.tokens.chunks(ROWS_MAX)) {
            let mut arguments = SqliteArguments::default();
            for (row, token) in rows.iter().zip(tokens) {
                bind(&mut arguments, row);
                let is_born = *token != 0;
                let ready_at = (now + if is_born { lease } else { 0 }).max(row.due_at.unwrap_or_default());
                let lane = self.0.ordered.then(|| lane(row));
                arguments.bind(*token).bind(i64::from(is_born)).bind(lane);
                arguments.bind(births.owner().filter(|_| is_born)).bind(ready_at).bind(now);
            }
            let query = sqlx::query_with(AssertSqlSafe(statements::enqueue(rows.len())), arguments);
            // One is usual; every other number is another text.
            query.persistent(rows.len() == 1).execute(&mut *tx).await?;
        }
        Ok(())
    }

    /// What a commit looks for.
    fn in_table(&self, messages: &[Outgoing]) -> Stored {
        Stored { database: DATABASE, table: self.0.table.clone(), messages: ids(messages) }
    }

    fn open_with(relay: Link, rare: Link, file: String, writes: Writes, ordered: bool, patience: Duration) -> Self {
        Self(Arc::new(Shared {
            name: format!("{file}/hapax_outbox"),
            table: "hapax_outbox".into(),
            writes,
            line: RwLock::default(),
            ordered,
            relay: Arc::new(AsyncMutex::new(relay)),
            rare: Arc::new(AsyncMutex::new(rare)),
            looked: Mutex::default(),
            patience,
        }))
    }
}

/// Runs `text`, of so many statements and a `COMMIT`, in a transaction.
///
/// In a task of its own: whoever is dropped in the middle of it would leave the transaction open, and with it the lock of the
/// file that all others wait for. But who waits for that lock and is dropped meanwhile does nothing when he has it: a relay
/// that has stopped claims nothing any more.
async fn write(link: &Arc<AsyncMutex<Link>>, text: String, statements: usize) -> Result<Ran, Failure> {
    let (link, is_awaited) = (link.clone(), Arc::new(AtomicBool::new(true)));
    let _leaving = Leaving(is_awaited.clone());
    let writing = tokio::spawn(async move {
        let mut link = link.lock().await;
        link.write("BEGIN IMMEDIATE", 1, SqliteArguments::default()).await?;
        if !is_awaited.load(Ordering::Relaxed) {
            return link.write("ROLLBACK", 1, SqliteArguments::default()).await;
        }
        link.write(AssertSqlSafe(text), statements, SqliteArguments::default()).await
    });
    writing.await.unwrap_or_else(|_| Err(Failure::new(sqlx::Error::WorkerCrashed, Place::Commit)))
}

/// Tells that nobody waits any more.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The lane of a message: its key's, or its own.
fn lane(row: &Row) -> i64 {
    row.key.as_ref().map_or_else(|| statements::lane(&row.id.to_string()), |key| statements::lane(key))
}

fn lane_of(key: Option<&str>, id: &MessageId) -> i64 {
    key.map_or_else(|| statements::lane(&id.as_uuid().unwrap_or_default().to_string()), statements::lane)
}

fn bind(arguments: &mut SqliteArguments, row: &Row) {
    arguments.bind(&row.id.as_bytes()[..]).bind(&*row.destination).bind(row.key.as_deref()).bind(&*row.message_type);
    arguments.bind(&*row.content_type).bind(row.correlation_id.as_deref()).bind(row.causation_id.as_deref());
    arguments.bind(row.tenant.as_deref()).bind(row.traceparent.as_deref()).bind(row.occurred_at);
    arguments.bind(row.due_at).bind(row.expires_at).bind(row.headers.as_deref()).bind(&row.body[..]);
}

/// What was rolled back to a savepoint, or by SQLite itself, is not there any more, whatever the commit says.
async fn still_there(tx: &mut SqliteConnection, ticket: &Ticket) -> Result<(), CommitError> {
    let messages = ticket.stored().flat_map(|stored| &stored.messages);
    let ids: Vec<String> = messages.filter_map(|id| Some(hex(id.as_uuid()?.as_bytes()))).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let text = format!("SELECT count(*) FROM hapax_outbox WHERE id IN ({})", ids.join(","));
    let found = tx.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.map_err(CommitError::NotCommitted)?;
    if found.try_get::<i64, _>(0).map_err(CommitError::NotCommitted)? == as_i64(ids.len()) {
        return Ok(());
    }
    // Where SQLite has ended the transaction, what was done after that is stored, each statement by itself.
    let was_ended = end_of_its_own(tx).await;
    let why = "the messages of the ticket are not in the table any more: they were rolled back, to a savepoint or by SQLite \
               itself";
    Err(CommitError::new(sqlx::Error::Protocol(why.to_owned()), was_ended))
}

/// Where SQLite has ended a transaction by itself, the driver does not know it: its own rollback would fail, and the connection
/// would go back to its pool with the next transaction taken for one within another. So it is given one to roll back.
/// Tells whether that was so.
async fn end_of_its_own(tx: &mut SqliteConnection) -> bool {
    tx.execute(sqlx::raw_sql("BEGIN")).await.is_ok() // Fails where one is open, as it should be.
}

impl fmt::Debug for SqliteOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOutbox").field("name", &self.0.name).finish_non_exhaustive()
    }
}
