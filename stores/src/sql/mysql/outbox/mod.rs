//! An outbox in a MariaDB database: messages are stored in the user's own transactions, and a [relay](hapax_core::relay) sends
//! them. The statements keep to what MySQL 8 has as well, but it has not been tried.
//!
//! ```no_run
//! # async fn run(pool: sqlx::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
//! # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: String }
//! # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
//! use hapax_stores::sql::mysql::outbox::MySqlOutbox;
//!
//! let outbox = MySqlOutbox::open("mysql://app@localhost/shop").await?;
//! let mut tx = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id) VALUES (?)").bind("o-1").execute(&mut *tx).await?;
//! let ticket = outbox.enqueue(&mut tx, &OrderPlaced { order: "o-1".into() }).await?;
//! outbox.commit(tx, ticket).await?; // The message is on its way; had it been rolled back, there were none.
//! # Ok(())
//! # }
//! ```
//!
//! The transaction may be at any isolation level; the message is one more row in it. What the row costs is one statement, or
//! one for many ([`MySqlOutbox::enqueue_all`]). No broker is asked.
//!
//! **Give a transaction up at its first error.** After a deadlock the server has rolled all of it back, and takes what comes
//! next as transactions of their own. [`MySqlOutbox::commit`] looks whether the messages of its ticket are still there.
//!
//! The server tells nobody what was stored: a relay in another process than the writer looks for it, every two seconds at a quiet
//! time ([`RelayOptions::polls`](hapax_core::relay::RelayOptions::polls)). What is stored in the relay's own process is sent
//! at once.
//!
//! A replica that is promoted may lack the last commits that the primary confirmed, and the messages with them: as your own
//! rows in the same transactions. See [`hapax_stores::sql::mysql`](super), under *Fail-over*.

mod care;
mod import;
mod inbox;
mod listed;
mod options;
mod ordered;
mod statements;
mod table;
mod tick;

use std::{
    fmt,
    sync::{Arc, Mutex, RwLock},
};

use hapax_core::{
    envelope::Outgoing,
    ids::MessageId,
    ports::StoreError,
    relay::{PushLine, Stored, Ticket},
};
pub use inbox::{MySqlInbox, MySqlTransaction};
pub use options::MySqlOutboxOptions;
use sqlx::{
    AssertSqlSafe, Executor as _, MySql as Driver, MySqlConnection, Row as _, Transaction, mysql::MySqlArguments,
};
use tokio::sync::Mutex as AsyncMutex;

pub use super::super::outbox::{CommitError, EnqueueError, FailedMessage, Import, Imported, Routes, Source};
use super::{
    super::outbox::{Births, Looked, Row, Writes, as_i64, hex, ids, millis, storing},
    MySqlOptions,
    arguments::{Bind, Text},
    error::rolled_back,
    wire::{Server, Wire},
};

/// Bytes of one text with messages in it, at most, and half of what the server takes: beyond it nothing is gained.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// What a row is in a text, besides its messages.
const ROW_BYTES: usize = 400;

/// Whose tickets its outboxes commit.
const DATABASE: &str = "MariaDB";

/// An outbox table in a MariaDB database; MySQL is untested. Cloning gives another handle to the same.
///
/// # Limits
/// A message has at most 1 MiB, which is an option, and must fit into the server's `max_allowed_packet`. It has up to two
/// connections of its own: one for the relay and one for what is rare; messages are stored on the user's. The runtime in which
/// it was opened must live as long as it is used, and must have its timer enabled.
#[derive(Clone)]
pub struct MySqlOutbox(Arc<Shared>);

struct Shared {
    server: Server,
    name: String,
    writes: Writes,
    texts: Texts,
    line: RwLock<Option<Arc<PushLine>>>,
    ordered: bool,
    relay: AsyncMutex<Wire>,
    /// For what is rare, or not urgent.
    rare: AsyncMutex<Wire>,
    looked: Mutex<Looked<i64>>,
}

struct Texts {
    by_id: Arc<str>,
    enqueue: Arc<str>,
    enqueue_one: Arc<str>,
    remove_archived: Arc<str>,
    failed: Arc<str>,
    state: Arc<str>,
}

impl MySqlOutbox {
    storing!(MySqlOutboxOptions, MySqlConnection);

    /// Opens the outbox in the database at `url` (`mysql://USER:PASSWORD@HOST:PORT/DATABASE`), and brings its schema up to
    /// date.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(url).await
    }

    /// The schema as plain SQL, to be applied by hand, with the names of `database`. Harmless when applied again.
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(database: &MySqlOptions) -> Result<String, StoreError> {
        statements::SCHEMA.sql(database)
    }

    /// What the account that runs the program must be granted, where another one has applied the schema, as plain SQL: less
    /// than owning the tables, and nothing beyond the outbox's own. `account`: `NAME`, from any host, or `NAME@HOST`.
    ///
    /// # Errors
    /// Names that are none, or no database.
    pub fn grants_sql(database: &MySqlOptions, account: &str) -> Result<String, StoreError> {
        statements::SCHEMA.with_account(database, account, statements::GRANTS)
    }

    /// Stores many messages, as they are: in one statement, or in one for every 2 MiB of them. Nothing is stored if one is
    /// refused.
    ///
    /// # Errors
    /// [`EnqueueError`]. A message whose id is in the table already is an error of the database: an id is of one message for
    /// ever.
    pub async fn enqueue_all(&self, tx: &mut MySqlConnection, messages: &[Outgoing]) -> Result<Ticket, EnqueueError> {
        if messages.is_empty() {
            return Ok(Ticket::empty());
        }
        let line = self.line();
        let rows = messages.iter().map(|outgoing| self.0.writes.row(outgoing, line.as_deref()));
        let rows = rows.collect::<Result<Vec<Row>, EnqueueError>>()?;
        if self.0.ordered {
            // What has no key has no order.
            let lanes: Vec<i64> = rows.iter().filter(|row| row.key.is_some()).map(lane).collect();
            if !lanes.is_empty() {
                tx.execute(sqlx::raw_sql(AssertSqlSafe(self.0.server.text(&ordered::lock(&lanes))))).await?;
            }
            // Whose relay has their lanes is not known here.
            self.insert(tx, &rows, &Births::of(None, messages)).await?;
            return Ok(Ticket::waiting(line, None).storing(self.in_table(messages)));
        }
        let births = Births::of(line, messages);
        self.insert(tx, &rows, &births).await?;
        Ok(births.ticket(messages, &rows, self.in_table(messages), None))
    }

    /// Commits, and hands `ticket` over: its messages are on their way. For transactions of a pool; a savepoint within one ends
    /// without a commit, and is not taken here. Who has begun on a connection of his own commits himself and calls
    /// [`Ticket::committed`].
    ///
    /// # Errors
    /// [`CommitError`], which says whether it may be committed all the same; also that messages of `ticket` are not in the
    /// table any more, since the server has rolled them back: after a deadlock, or to a savepoint.
    /// Nothing is pushed then: where it is committed, a relay finds the messages when the lease of their birth is over.
    pub async fn commit(&self, mut tx: Transaction<'static, Driver>, ticket: Ticket) -> Result<(), CommitError> {
        CommitError::unless_of(DATABASE, &ticket)?;
        still_there(&mut tx, &ticket).await?;
        tx.commit().await.map_err(|error| {
            let unknown = !rolled_back(&error);
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
        let retried = care::change(&self.0, "retrying messages", tick::RETRY, messages).await?;
        self.wake();
        Ok(retried)
    }

    /// Gives messages up that have failed: they count as expired, and hold up nothing any more. Tells how many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        let discarded = care::change(&self.0, "discarding messages", tick::DISCARD, messages).await?;
        self.wake();
        Ok(discarded)
    }

    fn wake(&self) {
        if let Some(line) = self.line() {
            line.wake();
        }
    }

    /// In as few statements as fit into what the server takes; all of them, or none.
    async fn insert(&self, tx: &mut MySqlConnection, rows: &[Row], births: &Births) -> Result<(), EnqueueError> {
        let limit = TEXT_BYTES_MAX.min(self.0.server.packet_bytes_max() / 2);
        let parts = parts(rows, limit, size);
        if parts.len() > 1 {
            tx.execute(sqlx::raw_sql("SAVEPOINT hapax_enqueue")).await?;
        }
        let mut from = 0;
        for part in &parts {
            let tokens = &births.tokens[from..from + part.len()];
            if let Err(error) = self.insert_part(tx, part, tokens, births).await {
                if parts.len() > 1 {
                    // Where that fails as well, the transaction is gone.
                    let _ = tx.execute(sqlx::raw_sql("ROLLBACK TO SAVEPOINT hapax_enqueue")).await;
                }
                return Err(error.into());
            }
            from += part.len();
        }
        Ok(())
    }

    async fn insert_part(
        &self,
        tx: &mut MySqlConnection,
        rows: &[Row],
        tokens: &[i64],
        births: &Births,
    ) -> Result<(), sqlx::Error> {
        let (lease, owner) = (millis(births.lease()), births.owner());
        let ([row], [token]) = (rows, tokens) else {
            let mut text = Text::with_capacity(rows.iter().map(size).sum());
            text.sql(&self.0.texts.enqueue);
            for (at, (row, token)) in rows.iter().zip(tokens).enumerate() {
                text.sql(if at == 0 { "(" } else { ", (" });
                let lane = self.0.ordered.then(|| lane(row));
                push(&mut text, row, *token, lane, owner.filter(|_| *token != 0), lease);
            }
            return tx.execute(sqlx::raw_sql(AssertSqlSafe(text.into_string()))).await.map(drop);
        };
        let (lease, owner) = if *token == 0 { (0, None) } else { (lease, owner) };
        let mut arguments = MySqlArguments::default();
        arguments.bind(&row.id.as_bytes()[..]);
        for text in [Some(&row.destination), row.key.as_ref(), Some(&row.message_type), Some(&row.content_type)] {
            arguments.bind(text.map(String::as_bytes));
        }
        for text in [&row.correlation_id, &row.causation_id, &row.tenant, &row.traceparent] {
            arguments.bind(text.as_ref().map(String::as_bytes));
        }
        arguments.bind(row.occurred_at).bind(row.due_at).bind(row.expires_at);
        arguments.bind(row.headers.as_ref().map(String::as_bytes)).bind(&row.body[..]);
        arguments.bind(*token).bind(token.signum()).bind(self.0.ordered.then(|| lane(row)));
        arguments.bind(as_i64(row.body.len())).bind(owner).bind(lease).bind(row.due_at.unwrap_or_default());
        let query = sqlx::query_with(AssertSqlSafe(self.0.texts.enqueue_one.clone()), arguments);
        query.execute(tx).await.map(drop)
    }

    /// What a commit looks for.
    fn in_table(&self, messages: &[Outgoing]) -> Stored {
        Stored { database: DATABASE, table: self.0.texts.by_id.clone(), messages: ids(messages) }
    }

    fn new(server: Server, writes: Writes, ordered: bool, database: &MySqlOptions) -> Self {
        let texts = Texts {
            by_id: server.text(statements::BY_ID),
            enqueue: server.text(&statements::enqueue()),
            enqueue_one: server.text(&statements::enqueue_one()),
            remove_archived: server.text(&statements::remove_archived()),
            failed: server.text(&statements::failed()),
            state: server.text(&statements::state()),
        };
        Self(Arc::new(Shared {
            name: format!("{}/{}outbox", server.place(), database.table_prefix),
            relay: AsyncMutex::new(server.wire()),
            rare: AsyncMutex::new(server.wire()),
            server,
            writes,
            texts,
            line: RwLock::default(),
            ordered,
            looked: Mutex::default(),
        }))
    }
}

/// What the server has rolled back by itself, or to a savepoint, is not there any more, whatever the commit says. Each table of
/// the transaction is looked at, in one statement.
async fn still_there(tx: &mut MySqlConnection, ticket: &Ticket) -> Result<(), CommitError> {
    let (mut counts, mut messages) = (Vec::new(), 0);
    for Stored { table, messages: stored, .. } in ticket.stored() {
        let ids: Vec<String> = stored.iter().filter_map(|id| Some(hex(id.as_uuid()?.as_bytes()))).collect();
        if !ids.is_empty() {
            counts.push(format!("(SELECT COUNT(*) FROM {table} WHERE m.id IN ({}))", ids.join(",")));
            messages += ids.len();
        }
    }
    if counts.is_empty() {
        return Ok(());
    }
    let found = tx.fetch_one(sqlx::raw_sql(AssertSqlSafe(format!("SELECT {}", counts.join(" + "))))).await;
    let found = found.map_err(CommitError::NotCommitted)?;
    if found.try_get::<i64, _>(0).map_err(CommitError::NotCommitted)? == as_i64(messages) {
        return Ok(());
    }
    let why = "the messages of the ticket are not in the table any more: the server has rolled them back, after a \
               deadlock or to a savepoint";
    let why = sqlx::Error::Protocol(why.to_owned());
    // Where the server has ended the transaction, what was done after that is stored, each statement by itself.
    let told = tx.fetch_one("SELECT CAST(@@in_transaction AS SIGNED)").await;
    let is_open = told.and_then(|row| row.try_get::<i64, _>(0)).is_ok_and(|open| open != 0);
    Err(CommitError::new(why, !is_open))
}

/// The lane of a message: its key's, or its own.
fn lane(row: &Row) -> i64 {
    row.key.as_ref().map_or_else(|| ordered::lane(&row.id.to_string()), |key| ordered::lane(key))
}

fn lane_of(key: Option<&str>, id: &MessageId) -> i64 {
    key.map_or_else(|| ordered::lane(&id.as_uuid().unwrap_or_default().to_string()), ordered::lane)
}

/// What it takes in a text, about.
fn size(row: &Row) -> usize {
    ROW_BYTES + 2 * (row.body.len() + row.headers.as_ref().map_or(0, String::len))
}

/// `rows` in parts of no more than `limit` bytes, or of one row.
fn parts<T>(rows: &[T], limit: usize, size: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let (mut parts, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        bytes += size(row);
        if bytes > limit && at > from {
            parts.push(&rows[from..at]);
            (from, bytes) = (at, size(row));
        }
    }
    if from < rows.len() {
        parts.push(&rows[from..]);
    }
    parts
}

/// The values of one row, and the end of it.
fn push(text: &mut Text, row: &Row, token: i64, lane: Option<i64>, owner: Option<i64>, lease: i64) {
    text.bytes(row.id.as_bytes());
    let texts = [Some(&row.destination), row.key.as_ref(), Some(&row.message_type), Some(&row.content_type)];
    let others = [&row.correlation_id, &row.causation_id, &row.tenant, &row.traceparent].map(Option::as_ref);
    for value in texts.into_iter().chain(others) {
        text.sql(", ").bytes_or_null(value.map(String::as_bytes));
    }
    for time in [row.occurred_at, row.due_at, row.expires_at] {
        text.sql(", ").number_or_null(time);
    }
    text.sql(", ").bytes_or_null(row.headers.as_ref().map(String::as_bytes)).sql(", ").bytes(&row.body);
    text.sql(", ").number(token).sql(", ").number(token.signum()).sql(", ").number_or_null(lane);
    text.sql(", ").number(as_i64(row.body.len())).sql(", ").number_or_null(owner).sql(", 0, GREATEST(");
    text.sql(statements::NOW).sql(" + ").number(if token == 0 { 0 } else { lease }).sql(", ");
    text.number(row.due_at.unwrap_or_default()).sql("), ").sql(statements::NOW).sql(")");
}

impl fmt::Debug for MySqlOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlOutbox").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
