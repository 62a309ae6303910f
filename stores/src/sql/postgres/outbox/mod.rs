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
mod inbox;
mod options;
mod ordered;
mod statements;
mod table;
mod told;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use hapax_core::{
    Message,
    envelope::Outgoing,
    ids::MessageId,
    ports::{Page, StoreError},
    relay::{PushLine, Pushed, Tell, Ticket},
    time::Timestamp,
};
pub use inbox::{PostgresInbox, PostgresTransaction};
pub use options::PostgresOutboxOptions;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Postgres as Driver, Transaction, postgres::PgArguments};
use table::Looked;
use tokio::{
    sync::Mutex as AsyncMutex,
    task::{AbortHandle, JoinHandle},
    time::Instant,
};
use told::Teller;
use uuid::Uuid;

pub use super::super::outbox::{EnqueueError, FailedMessage, Routes};
use super::{
    super::outbox::{Row, Writes},
    PostgresOptions,
    arguments::Bind,
    wire::{Server, Wire},
};

/// An outbox table in a PostgreSQL database. Cloning gives another handle to the same.
///
/// # Limits
/// A message has at most 1 MiB, which is an option. It has up to four connections of its own: one for the relay, one that
/// listens, one that tells and one for what is rare; messages are stored on the user's. The runtime in which it was opened must live as long as it is
/// used, and must have its timer enabled.
#[derive(Clone)]
pub struct PostgresOutbox(Arc<Shared>);

struct Shared {
    server: Server,
    name: String,
    writes: Writes,
    texts: Texts,
    line: RwLock<Option<Arc<PushLine>>>,
    teller: Arc<Teller>,
    telling: JoinHandle<()>,
    listen: bool,
    ordered: bool,
    listening: Mutex<Option<AbortHandle>>,
    relay: AsyncMutex<Wire>,
    /// For what is rare, or not urgent.
    rare: AsyncMutex<Wire>,
    ticks: Mutex<HashMap<statements::Kinds, Arc<str>>>,
    looked: Mutex<Looked>,
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
    /// Opens the outbox in the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`), and brings its schema up to
    /// date.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::options().migrate(true).open(url).await
    }

    /// For more control: addresses, codec, limits. Nothing is migrated unless it is asked for.
    pub fn options() -> PostgresOutboxOptions {
        PostgresOutboxOptions::new()
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
    /// than owning the tables, and nothing beyond the outbox's own.
    ///
    /// # Errors
    /// Names that are none.
    pub fn grants_sql(database: &PostgresOptions, role: &str) -> Result<String, StoreError> {
        let role = format!("\"{}\"", role.replace('"', "\"\""));
        let grants = statements::SCHEMA.with_names(database, statements::GRANTS)?;
        Ok(grants.replace("{schema}", &statements::SCHEMA.name(database)?).replace("{role}", &role))
    }

    /// Stores `message` in the transaction of `tx`, addressed by its type ([`PostgresOutboxOptions::route`]). It is sent once
    /// that is committed, and never if it is not.
    ///
    /// # Errors
    /// [`EnqueueError`].
    pub async fn enqueue<M: Message>(&self, tx: &mut PgConnection, message: &M) -> Result<Ticket, EnqueueError> {
        let outgoing = self.0.writes.outgoing(message)?;
        self.enqueue_all(tx, &[outgoing]).await
    }

    /// The same, to one endpoint.
    ///
    /// # Errors
    /// [`EnqueueError`].
    pub async fn enqueue_to<M: Message>(
        &self,
        tx: &mut PgConnection,
        endpoint: &str,
        message: &M,
    ) -> Result<Ticket, EnqueueError> {
        let outgoing = self.0.writes.outgoing_to(endpoint, message)?;
        self.enqueue_all(tx, &[outgoing]).await
    }

    /// `message` as [`PostgresOutbox::enqueue`] would store it, to change its address, keys, headers and times before
    /// [`PostgresOutbox::enqueue_all`]. With a due time it waits in the table until then.
    ///
    /// # Errors
    /// [`EnqueueError::Refused`].
    pub fn outgoing<M: Message>(&self, message: &M) -> Result<Outgoing, EnqueueError> {
        self.0.writes.outgoing(message)
    }

    /// Stores many messages in one statement, as they are. Nothing is stored if one is refused.
    ///
    /// # Errors
    /// [`EnqueueError`]. A message whose id is in the table already is an error of the database: an id is of one message for
    /// ever.
    pub async fn enqueue_all(&self, tx: &mut PgConnection, messages: &[Outgoing]) -> Result<Ticket, EnqueueError> {
        if messages.is_empty() {
            return Ok(Ticket::waiting(None, None));
        }
        let line = self.line();
        let rows = messages.iter().map(|outgoing| self.0.writes.row(outgoing, line.as_deref()));
        let rows = rows.collect::<Result<Vec<Row>, EnqueueError>>()?;
        if self.0.ordered {
            self.enqueue_ordered(tx, &rows).await?;
            // Whose relay has their lanes is not known here.
            return Ok(Ticket::waiting(line, Some(self.0.teller.clone())));
        }
        // Before the server reads its clock, so that here the lease is over first.
        let begun = Instant::now();
        let clock = Timestamp::now();
        // What may expire is claimed, since the server's clock decides.
        let is_due = |outgoing: &Outgoing| {
            outgoing.envelope.due.is_none_or(|due| due <= clock) && outgoing.envelope.expires.is_none()
        };
        let token = |outgoing: &Outgoing| line.as_ref().filter(|_| is_due(outgoing)).map_or(0, |line| line.owner());
        let tokens: Vec<i64> = messages.iter().map(token).collect();
        let lease = line.as_ref().map_or(Duration::ZERO, |line| line.lease());
        let (text, mut arguments) = match &rows[..] {
            [row] => (&self.0.texts.enqueue_one, one(row, tokens[0])),
            rows => (&self.0.texts.enqueue_many, many(rows, &tokens)),
        };
        let has_any = tokens.iter().any(|token| *token != 0);
        arguments.bind(if has_any { millis(lease) } else { 0 });
        arguments.bind(line.as_ref().filter(|_| has_any).map(|line| line.owner()));
        self.run(tx, text, arguments).await?;
        let Some(line) = line else { return Ok(Ticket::waiting(None, Some(self.0.teller.clone()))) };
        let born = messages.iter().zip(&tokens).zip(&rows).filter(|((_, token), _)| **token != 0);
        let born: Vec<Pushed> = born
            .map(|((outgoing, token), row)| Pushed {
                claim: table::claim(row.id, *token),
                until: begun + lease,
                outgoing: outgoing.clone(),
            })
            .collect();
        let others = born.len() < rows.len();
        Ok(Ticket::born(line, born, others))
    }

    /// Commits, and hands `ticket` over: its messages are on their way. For transactions of a pool; a savepoint within one ends
    /// without a commit, and is not taken here. Who has begun on a connection of his own commits himself and calls
    /// [`Ticket::committed`].
    ///
    /// # Errors
    /// What the commit has met; also that a statement before it has failed, so that there is nothing to commit (PostgreSQL takes
    /// such a commit for a rollback, and tells nobody). Nothing is pushed then: where it has happened all the same, which nobody may know, a relay
    /// finds the messages when the lease of their birth is over.
    pub async fn commit(&self, mut tx: Transaction<'static, Driver>, ticket: Ticket) -> Result<(), sqlx::Error> {
        still_good(&mut tx).await?;
        tx.commit().await?;
        ticket.committed();
        Ok(())
    }

    /// Messages that have failed, those that failed first before others. They stay until a person decides:
    /// [`PostgresOutbox::retry`] or [`PostgresOutbox::discard`].
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn failed(&self, page: &Page) -> Result<Vec<FailedMessage>, StoreError> {
        care::failed(&self.0, page).await
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
        let lanes: Vec<String> = rows.iter().map(|row| row.key.clone().unwrap_or_else(|| row.id.to_string())).collect();
        // Of this table's lanes.
        let table = ordered::number(&self.0.name);
        let locks: BTreeSet<i64> = lanes.iter().map(|lane| (ordered::number(lane) ^ table).cast_signed()).collect();
        let mut arguments = PgArguments::default();
        arguments.bind(Vec::from_iter(locks));
        self.run(tx, &self.0.texts.lock, arguments).await?;
        let partition = |lane: &String| (ordered::number(lane) % ordered::PARTITIONS) as i32;
        let partitions: Vec<i32> = lanes.iter().map(partition).collect();
        let mut arguments = many(rows, &vec![0; rows.len()]);
        arguments.bind(0_i64).bind(None::<i64>).bind(lanes).bind(partitions);
        self.run(tx, &self.0.texts.enqueue_ordered, arguments).await
    }

    async fn run(&self, tx: &mut PgConnection, text: &Arc<str>, arguments: PgArguments) -> Result<(), EnqueueError> {
        let query = sqlx::query_with(AssertSqlSafe(text.clone()), arguments);
        query.persistent(self.0.server.session().is_some()).execute(tx).await?;
        Ok(())
    }

    fn new(server: Server, writes: Writes, listen: bool, ordered: bool) -> Self {
        let texts = Texts {
            enqueue_one: server.text(&statements::enqueue_one()),
            enqueue_many: server.text(&statements::enqueue_many()),
            enqueue_ordered: server.text(&ordered::enqueue()),
            lock: server.text(ordered::LOCK),
            leave: server.text(statements::LEAVE),
            remove: server.text(&statements::remove()),
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
            listening: Mutex::default(),
            ticks: Mutex::default(),
            looked: Mutex::default(),
        }))
    }

    fn line(&self) -> Option<Arc<PushLine>> {
        self.0.line.read().unwrap_or_else(PoisonError::into_inner).clone()
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
    arguments.bind(tokens.to_vec());
    arguments
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
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
