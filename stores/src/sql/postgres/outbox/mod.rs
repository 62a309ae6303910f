//! An outbox in a PostgreSQL database: messages are stored in the user's own transactions, and a
//! [relay](hapax_core::relay) sends them.
//!
//! ```no_run
//! # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPlaced { order: String }
//! # impl hapax_core::Message for OrderPlaced { const TYPE: &'static str = "shop.order-placed"; }
//! use hapax_stores::sql::postgres::outbox::PostgresOutbox;
//!
//! let outbox = PostgresOutbox::open("postgres://app@localhost/shop").await?;
//! let mut tx = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind("o-1").execute(&mut *tx).await?;
//! let ticket = outbox.enqueue(&mut tx, &OrderPlaced { order: "o-1".into() }).await?;
//! outbox.commit(tx, ticket).await?; // The message is on its way; had it been rolled back, there were none.
//! # Ok(())
//! # }
//! ```
//!
//! The transaction may be at any isolation level and behind any pooler; the message is one more row in it. What the row costs
//! is one statement, or one for many ([`PostgresOutbox::enqueue_all`]). No broker is asked.
//!
//! A standby that is promoted may lack the last commits that the primary confirmed, and the messages with them: as your own
//! rows in the same transactions. See [`hapax_stores::sql::postgres`](super), under *Fail-over*.

mod care;
mod debezium;
mod import;
mod inbox;
mod listed;
#[cfg(feature = "postgres-log")]
mod log;
mod options;
mod ordered;
mod statements;
mod table;
mod tick;
mod timed;
mod told;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

pub(in crate::sql) use debezium::refusal as debezium_refusal;
pub use debezium::{DebeziumConnector, RouteBy};
use hapax_core::{
    envelope::Outgoing,
    ids::MessageId,
    ports::StoreError,
    relay::{PushLine, Stored, Tell, Ticket},
};
pub use inbox::{PostgresInbox, PostgresTransaction};
#[cfg(feature = "postgres-log")]
pub use log::LogOptions;
#[cfg(all(feature = "postgres-log", feature = "fuzzing"))]
pub use log::fuzz_log;
pub use options::PostgresOutboxOptions;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Postgres as Driver, Transaction, postgres::PgArguments};
use tokio::{
    sync::Mutex as AsyncMutex,
    task::{AbortHandle, JoinHandle},
};
use told::Teller;
use uuid::Uuid;

pub use super::super::outbox::{CommitError, EnqueueError, FailedMessage, Import, Imported, Routes, Source};
use super::{
    super::outbox::{Births, Looked, Row, Writes, lanes, millis, storing},
    PostgresOptions,
    arguments::Bind,
    error::refused,
    wire::{Server, Wire},
};

/// Whose tickets its outboxes commit.
const DATABASE: &str = "PostgreSQL";

/// An outbox table in a PostgreSQL database. Cloning gives another handle to the same.
///
/// # Limits
/// A message has at most 1 MiB, which is an option. It has up to four connections of its own: one for the relay, one that
/// listens, one that tells and one for what is rare; with [`PostgresOutboxOptions::log`] up to three more; messages are stored on the user's. The runtime in which it was opened must live as long as it is
/// used, and must have its timer enabled.
#[derive(Clone)]
pub struct PostgresOutbox(Arc<Shared>);

struct Shared {
    server: Server,
    name: String,
    table: Arc<str>,
    writes: Writes,
    texts: Texts,
    line: RwLock<Option<Arc<PushLine>>>,
    teller: Arc<Teller>,
    telling: JoinHandle<()>,
    listen: bool,
    ordered: bool,
    timed: Option<timed::Timed>,
    listening: Mutex<Option<AbortHandle>>,
    relay: AsyncMutex<Wire>,
    /// For what is rare, or not urgent.
    rare: AsyncMutex<Wire>,
    ticks: Mutex<HashMap<tick::Kinds, Arc<str>>>,
    looked: Mutex<Looked<(i32, String)>>,
    #[cfg(feature = "postgres-log")]
    log: Option<Arc<log::Log>>,
}

struct Texts {
    enqueue_one: Arc<str>,
    enqueue_many: Arc<str>,
    enqueue_ordered: Arc<str>,
    lock: Arc<str>,
    leave: Arc<str>,
    remove: Arc<str>,
    remove_archived: Arc<str>,
    failed: Arc<str>,
    retry: Arc<str>,
    discard: Arc<str>,
    state: Arc<str>,
}

impl PostgresOutbox {
    storing!(PostgresOutboxOptions, PgConnection);

    /// Opens the outbox in the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`), and brings its schema up to
    /// date.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(url).await
    }

    /// The schema as plain SQL, to be applied by hand in one transaction, with the names of `database`. Harmless when
    /// applied again. With time partitions: [`PostgresOutboxOptions::schema_sql`].
    ///
    /// # Errors
    /// Names that are none.
    pub fn schema_sql(database: &PostgresOptions) -> Result<String, StoreError> {
        statements::SCHEMA.sql(database)
    }

    /// What the role that runs the program must be granted, where another role has applied the schema, as plain SQL: less
    /// than owning the tables, and nothing beyond the outbox's own. Time partitions are made and dropped by an owner only, see
    /// [`PostgresOutboxOptions::time_partitions`].
    ///
    /// # Errors
    /// Names that are none.
    pub fn grants_sql(database: &PostgresOptions, role: &str) -> Result<String, StoreError> {
        let role = format!("\"{}\"", role.replace('"', "\"\""));
        let grants = statements::SCHEMA.with_names(database, statements::GRANTS)?;
        Ok(grants.replace("{schema}", &statements::SCHEMA.name(database)?).replace("{role}", &role))
    }

    /// Whether Debezium sends what is stored, and no relay does: [`PostgresOutboxOptions::debezium`], or as the table says where it was
    /// taken [as it is](PostgresOutboxOptions::order_as_it_is).
    #[must_use]
    pub fn is_debeziums(&self) -> bool {
        self.0.writes.debezium
    }

    /// Stores many messages in one statement, as they are. Nothing is stored if one is refused.
    ///
    /// # Errors
    /// [`EnqueueError`]. A message whose id is in the table already is an error of the database: an id is of one message for
    /// ever.
    pub async fn enqueue_all(&self, tx: &mut PgConnection, messages: &[Outgoing]) -> Result<Ticket, EnqueueError> {
        if messages.is_empty() {
            return Ok(Ticket::empty());
        }
        #[cfg(feature = "postgres-log")]
        if let Some(log) = &self.0.log {
            return self.enqueue_for_log(log, tx, messages).await;
        }
        let line = self.line();
        let rows = messages.iter().map(|outgoing| self.0.writes.row(outgoing, line.as_deref()));
        let rows = rows.collect::<Result<Vec<Row>, EnqueueError>>()?;
        if self.0.ordered {
            self.enqueue_ordered(tx, &rows).await?;
            // Whose relay has their lanes is not known here.
            return Ok(Ticket::waiting(line, Some(self.0.teller.clone())).storing(self.in_table()));
        }
        let births = Births::of(line, messages);
        let (text, mut arguments) = match &rows[..] {
            [row] => (&self.0.texts.enqueue_one, one(row, births.tokens[0])),
            rows => (&self.0.texts.enqueue_many, many(rows, &births.tokens)),
        };
        arguments.bind(millis(births.lease())).bind(births.owner());
        self.run(tx, text, arguments).await?;
        Ok(births.ticket(messages, &rows, self.in_table(), Some(self.0.teller.clone())))
    }

    /// Commits, and hands `ticket` over: its messages are on their way. For transactions of a pool; a savepoint within one ends
    /// without a commit, and is not taken here. Who has begun on a connection of his own commits himself and calls
    /// [`Ticket::committed`].
    ///
    /// # Errors
    /// [`CommitError`], which says whether it may be committed all the same; also that a statement before it has failed, so
    /// that there is nothing to commit (PostgreSQL takes such a commit for a rollback, and tells nobody).
    /// Nothing is pushed then: where it is committed, a relay finds the messages when the lease of their birth is over.
    pub async fn commit(&self, mut tx: Transaction<'static, Driver>, ticket: Ticket) -> Result<(), CommitError> {
        CommitError::unless_of(DATABASE, &ticket)?;
        still_good(&mut tx).await.map_err(CommitError::NotCommitted)?;
        tx.commit().await.map_err(|error| {
            let unknown = !refused(&error);
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
        let retried = care::change(&self.0, "retrying messages", &self.0.texts.retry, messages).await?;
        self.wake_all();
        Ok(retried)
    }

    /// There is something for relays here and elsewhere.
    fn wake_all(&self) {
        self.0.teller.tell();
        if let Some(line) = self.line() {
            line.wake();
        }
    }

    /// Gives messages up that have failed: they count as expired, and hold up nothing any more. Tells how many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    pub async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        let discarded = care::change(&self.0, "discarding messages", &self.0.texts.discard, messages).await?;
        self.wake_all();
        Ok(discarded)
    }

    /// Each lane is locked before its numbers are drawn, in a statement of its own: so the order of numbers is that of commits.
    async fn enqueue_ordered(&self, tx: &mut PgConnection, rows: &[Row]) -> Result<(), EnqueueError> {
        let of_rows: Vec<String> =
            rows.iter().map(|row| row.key.clone().unwrap_or_else(|| row.id.to_string())).collect();
        // Of this table's lanes.
        let table = lanes::number(&self.0.name);
        let locks: BTreeSet<i64> = of_rows.iter().map(|lane| (lanes::number(lane) ^ table).cast_signed()).collect();
        let mut arguments = PgArguments::default();
        arguments.bind(Vec::from_iter(locks));
        self.run(tx, &self.0.texts.lock, arguments).await?;
        let partitions: Vec<i32> = of_rows.iter().map(|lane| lanes::partition(lane) as i32).collect();
        let mut arguments = many(rows, &vec![0; rows.len()]);
        arguments.bind(0_i64).bind(None::<i64>).bind(of_rows).bind(partitions);
        self.run(tx, &self.0.texts.enqueue_ordered, arguments).await
    }

    /// A transaction that can be committed has all that was stored in it: nothing is looked for.
    fn in_table(&self) -> Stored {
        Stored { database: DATABASE, table: self.0.table.clone(), messages: Vec::new() }
    }

    async fn run(&self, tx: &mut PgConnection, text: &Arc<str>, arguments: PgArguments) -> Result<(), EnqueueError> {
        let query = sqlx::query_with(AssertSqlSafe(text.clone()), arguments);
        query.persistent(self.0.server.session().is_some()).execute(tx).await?;
        Ok(())
    }

    fn new(
        server: Server,
        writes: Writes,
        listen: bool,
        ordered: bool,
        timed: Option<timed::Timed>,
        #[cfg(feature = "postgres-log")] log: Option<Arc<log::Log>>,
    ) -> Self {
        let texts = Texts {
            enqueue_one: server.text(&statements::enqueue_one()),
            enqueue_many: server.text(&statements::enqueue_many()),
            enqueue_ordered: server.text(&ordered::enqueue()),
            lock: server.text(ordered::LOCK),
            leave: server.text(statements::LEAVE),
            remove: server.text(&statements::remove("hapax.outbox", "true")),
            remove_archived: server.text(&statements::remove_archived()),
            failed: server.text(&statements::failed()),
            retry: server.text(&statements::retry()),
            discard: server.text(&statements::discard()),
            state: server.text(&statements::state()),
        };
        let teller = Arc::<Teller>::default();
        let telling = tokio::spawn(told::tell(teller.clone(), server.wire(), server.clone()));
        Self(Arc::new(Shared {
            name: format!("{}/{}outbox", server.place(), server.channel()),
            table: server.text("hapax.outbox"),
            relay: AsyncMutex::new(server.wire()),
            rare: AsyncMutex::new(server.wire()),
            server,
            writes,
            texts,
            line: RwLock::default(),
            teller,
            telling,
            listen,
            ordered,
            timed,
            listening: Mutex::default(),
            ticks: Mutex::default(),
            looked: Mutex::default(),
            #[cfg(feature = "postgres-log")]
            log,
        }))
    }
}

/// Whether the transaction can still be committed. One in which a statement has failed is rolled back by a commit that tells of
/// success, and what was pushed then would be a ghost.
async fn still_good(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::raw_sql("SELECT 1")).await.map(drop)
}

/// Of [`statements::enqueue_one`], but for the lease and the owner.
fn one(row: &Row, token: i64) -> PgArguments {
    let mut arguments = PgArguments::default();
    arguments.bind(row.id).bind(&*row.destination).bind(row.key.as_deref()).bind(&*row.message_type);
    arguments.bind(&*row.content_type).bind(row.correlation_id.as_deref()).bind(row.causation_id.as_deref());
    arguments.bind(row.tenant.as_deref()).bind(row.traceparent.as_deref()).bind(row.occurred_at);
    arguments.bind(row.due_at).bind(row.expires_at).bind(row.headers.as_deref()).bind(&row.body[..]).bind(token);
    arguments
}

/// Of [`statements::enqueue_many`], but for the lease and the owner.
fn many(rows: &[Row], tokens: &[i64]) -> PgArguments {
    let mut arguments = columns(rows);
    arguments.bind(tokens.to_vec());
    arguments
}

/// [`statements::COLUMNS`] as arrays.
fn columns(rows: &[Row]) -> PgArguments {
    fn all<'r, T>(rows: &'r [Row], of: impl Fn(&'r Row) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    let mut arguments = PgArguments::default();
    arguments.bind(all::<Uuid>(rows, |row| row.id));
    arguments.bind(all::<&str>(rows, |row| &row.destination));
    arguments.bind(all(rows, |row| row.key.as_deref()));
    arguments.bind(all::<&str>(rows, |row| &row.message_type));
    arguments.bind(all::<&str>(rows, |row| &row.content_type));
    arguments.bind(all(rows, |row| row.correlation_id.as_deref()));
    arguments.bind(all(rows, |row| row.causation_id.as_deref()));
    arguments.bind(all(rows, |row| row.tenant.as_deref()));
    arguments.bind(all(rows, |row| row.traceparent.as_deref()));
    arguments.bind(all(rows, |row| row.occurred_at));
    arguments.bind(all(rows, |row| row.due_at));
    arguments.bind(all(rows, |row| row.expires_at));
    arguments.bind(all(rows, |row| row.headers.as_deref()));
    arguments.bind(all::<&[u8]>(rows, |row| &row.body));
    arguments
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.telling.abort();
        if let Some(listening) = self.listening.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            listening.abort();
        }
    }
}

impl fmt::Debug for PostgresOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOutbox").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
