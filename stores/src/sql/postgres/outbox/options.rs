//! How the outbox is opened. What has to be the same for all who use a table (order, partitions, who sends) stands in the database, and nobody
//! decides it for himself.

use std::time::Duration;

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{Row as _, postgres::PgArguments};

use super::{
    super::{
        super::outbox::{self, Settings, settings},
        Postgres, PostgresOptions,
        arguments::Bind,
        wire::Server,
    },
    PostgresOutbox,
    statements::{self, KEEP_ORDER, ORDER, SCHEMA},
    timed,
};

/// How a [`PostgresOutbox`] is opened. From [`PostgresOutbox::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PostgresOutboxOptions {
    settings: Settings,
    listen: bool,
    time_partitions: Option<Duration>,
    #[cfg(feature = "postgres-log")]
    log: Option<super::LogOptions>,
}

impl PostgresOutboxOptions {
    settings!();

    pub(super) fn new() -> Self {
        Self {
            settings: Settings::default(),
            listen: true,
            time_partitions: None,
            #[cfg(feature = "postgres-log")]
            log: None,
        }
    }

    /// Whether a relay has a connection of its own by which the server tells it what other processes have stored (`LISTEN`).
    /// Default yes; never behind a connection pooler. Without it new rows are looked for.
    pub const fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Relays from the server's log instead of claiming rows: see [`LogOptions`](super::LogOptions). Who stores messages and who
    /// relays them say so alike; a relay that was not told sends what is left to the log only after its lease, and messages
    /// that are in the log alone never. Not where order is kept. Default no.
    #[cfg(feature = "postgres-log")]
    pub fn log(mut self, log: super::LogOptions) -> Self {
        self.log = Some(log);
        self
    }

    /// Whether Debezium sends what is stored ([`DebeziumConnector`](super::DebeziumConnector)), and no relay does. Default no. It is
    /// said in the table and the same for all who open it: who says otherwise is refused, and so is a relay. Not for a table
    /// that keeps order, since the numbers of its lanes are no part of what Debezium sends; nor while relays are at work on it.
    ///
    /// Debezium sends everything at its commit and knows nothing of due times, attempts and failures: messages with a due time
    /// are refused, and so are destinations and types that no topic of Kafka may be called by. What expires is sent with its
    /// time in a header. Rows stay as they are: remove them yourself. What is said here does not count where the table is taken
    /// [as it is](Self::order_as_it_is).
    pub const fn debezium(mut self, debezium: bool) -> Self {
        self.settings.writes.debezium = debezium;
        self
    }

    /// Removes what was sent by dropping partitions of the table, each with what was stored in a time of `every`, instead of
    /// deleting rows in batches: for tables that thousands go through in a second. Whole milliseconds, from a minute to ten years.
    /// Default: a table without partitions. It is decided when the table is made, and the same for all who open it; a table that is
    /// there does not become one.
    ///
    /// A partition is dropped once all in it is over for as long as rows are kept
    /// ([`RelayOptions::keep`](hapax_core::relay::RelayOptions::keep)). There is no archive then: what is to be archived stays in its
    /// partition for that time as well, so that it is kept for up to `every` longer than said. Every look of a relay looks into
    /// each partition: choose `every` so that there are no more than 20, a sixteenth of the time that rows are kept (with the default of 37 days, two or
    /// three days): the one that is written to, two ahead and the one for the rest come on top. Rows that
    /// wait or have failed keep their partition; what is over beside them goes in batches once the partition is due for `every`.
    ///
    /// In which partition a message is its id tells, which for those that hapax gives begins with a time (UUIDv7, UUIDv8). Other
    /// ids are in a partition for the rest, whose rows go in batches as ever, and which is read whole each time that a partition is
    /// made: not for tables most of whose ids are of the user's own making and tell no time.
    ///
    /// Partitions are made ahead, and dropped, by relays and by whoever opens the outbox, if the role owns the table (or is a
    /// member of the role that does, and may create tables in the schema). For others it is said once, and what is over goes in
    /// batches. To drop one takes a lock that excludes everybody for a moment. It is waited for no longer than 200 ms, in which
    /// others who store messages wait behind it, and is tried again when the relay cares next: a transaction that has stored a
    /// message and stays open for longer keeps partitions from being dropped meanwhile, and so does a dump of the database.
    ///
    /// Not for an outbox that Debezium sends.
    pub const fn time_partitions(mut self, every: Duration) -> Self {
        self.time_partitions = Some(every);
        self
    }

    /// The schema as [`PostgresOutbox::schema_sql`] tells it, with [`time_partitions`](Self::time_partitions) if that was said.
    ///
    /// # Errors
    /// Names that are none, or time partitions of a length that is none.
    pub fn schema_sql(&self, database: &PostgresOptions) -> Result<String, StoreError> {
        match timed::asked(self.time_partitions)? {
            Some(_) => timed::SCHEMA.sql(database),
            None => SCHEMA.sql(database),
        }
    }

    /// An outbox in the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`), in the schema `hapax`.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`]; and an address that is none.
    pub async fn open(self, url: impl AsRef<str>) -> Result<PostgresOutbox, StoreError> {
        self.open_database(Postgres::options(url)).await
    }

    /// An outbox in a database that is reached as `database` says: by URL or as a pool does, its schema, the prefix of its
    /// tables, whether a connection pooler stands before it, how long a call may take. Several tables of one database have
    /// several prefixes, or schemas. What it says of a store's own connections and groups is of no account here.
    ///
    /// # Errors
    /// See [`PostgresOptions::open`]; and an address that is none.
    pub async fn open_database(self, database: PostgresOptions) -> Result<PostgresOutbox, StoreError> {
        let settings = self.settings.check(SCHEMA.opening)?;
        let (order, debezium) = (settings.order(), settings.debezium());
        let Settings { mut writes, migrate, .. } = settings;
        let every = timed::asked(self.time_partitions)?;
        if every.is_some() && writes.debezium {
            let why = "Debezium's outbox has no time partitions, since nobody says what of it was sent: leave \
                       `time_partitions` out";
            return Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, why));
        }
        let schema = if every.is_some() { &*timed::SCHEMA } else { &SCHEMA };
        let server = Server::open(&database, schema, migrate).await?;
        let timed = timed::decide(&server, every).await?;
        let ordered = decide(&server, order).await?;
        writes.debezium = is_debeziums(&server, debezium).await?;
        if let Some(timed) = &timed {
            timed.open(&server).await?;
        }
        #[cfg(feature = "postgres-log")]
        let log = match self.log {
            Some(_) if ordered || writes.debezium => {
                let why = "where order is kept, or Debezium sends, the log is not relayed: use another table";
                return Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, why));
            }
            Some(log) => Some(super::log::Log::open(log, &server, migrate).await?),
            None => None,
        };
        Ok(PostgresOutbox::new(
            server,
            writes,
            self.listen,
            ordered,
            timed,
            #[cfg(feature = "postgres-log")]
            log,
        ))
    }
}

/// Whether the table keeps order is the same for all who use it.
async fn decide(server: &Server, order: Option<bool>) -> Result<bool, StoreError> {
    let mut wire = server.wire();
    let failed = |fault: super::super::wire::Fault| fault.store_error(SCHEMA.opening, server.place());
    let mut rows = wire.read(&server.text(ORDER), PgArguments::default()).await.map_err(failed)?;
    if let Some(ordered) = order.filter(|_| rows.is_empty()) {
        let mut arguments = PgArguments::default();
        arguments.bind(i64::from(ordered));
        wire.write(&server.text(KEEP_ORDER), arguments).await.map_err(failed)?;
        rows = wire.read(&server.text(ORDER), PgArguments::default()).await.map_err(failed)?;
    }
    wire.close().await;
    let decided = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok()).map(|value| value != 0);
    outbox::decided(decided, order, SCHEMA.opening, server.place())
}

/// Who sends is the same for all who use the table, too: answers whether Debezium does, as was `asked` for if anything was.
async fn is_debeziums(server: &Server, asked: Option<bool>) -> Result<bool, StoreError> {
    let mut wire = server.wire();
    let failed = |fault: super::super::wire::Fault| fault.store_error(SCHEMA.opening, server.place());
    if asked == Some(true) {
        wire.write(&server.text(statements::GIVE_TO_DEBEZIUM), PgArguments::default()).await.map_err(failed)?;
    }
    let rows = wire.read(&server.text(statements::IS_DEBEZIUMS), PgArguments::default()).await.map_err(failed)?;
    wire.close().await;
    let is = !rows.is_empty();
    let why = match (asked, is) {
        (Some(true), false) => {
            "a relay is at work on the outbox, or was until a moment ago, or the table keeps order: stop all relays and wait \
             until `outbox_relay` is empty (10 minutes for one that was killed), or use another table prefix"
        }
        (Some(false), true) => {
            "the outbox is sent by Debezium: open it with `debezium(true)`, or use another table prefix"
        }
        _ => return Ok(is),
    };
    Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, format!("{}: {why}", server.place())))
}
