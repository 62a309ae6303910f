use std::sync::Arc;

use hapax_core::{
    codec::Codec,
    ids::InvalidId,
    ports::{Dispatcher, ErrorKind, StoreError},
};

use sqlx::{Row as _, postgres::PgArguments};

use super::{
    super::{super::outbox::Writes, Postgres, PostgresOptions, arguments::Bind, wire::Server},
    PostgresOutbox,
    statements::{KEEP_ORDER, ORDER, SCHEMA},
};

/// How a [`PostgresOutbox`] is opened. From [`PostgresOutbox::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PostgresOutboxOptions {
    writes: Writes,
    migrate: bool,
    listen: bool,
    ordered: bool,
    wrong: Option<InvalidId>,
}

impl PostgresOutboxOptions {
    pub(super) fn new() -> Self {
        Self { writes: Writes::default(), migrate: false, listen: true, ordered: false, wrong: None }
    }

    /// Messages of `message_type` go to `endpoint`, unless they are given an address. Default: to everybody who subscribes to
    /// their type.
    pub fn route(mut self, message_type: &str, endpoint: &str) -> Self {
        let added = self.writes.routes.add(message_type, endpoint);
        self.wrong = self.wrong.or_else(|| added.err());
        self
    }

    /// Messages of other types go to `endpoint`.
    pub fn route_all(mut self, endpoint: &str) -> Self {
        let set = self.writes.routes.set_usual(endpoint);
        self.wrong = self.wrong.or_else(|| set.err());
        self
    }

    /// Whether messages of one partition key are sent in the order of their commits, each only once the one before it is
    /// confirmed. Default no. It is a property of the table, decided when that is first opened. Transactions that store
    /// messages of one key wait for each other then, and one of several keys may meet a deadlock, which is to be repeated like
    /// any other. A message that has failed holds up those of its key until a person decides; a relay that is overtaken may
    /// repeat an older message later, but never sends a newer one first.
    pub const fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// How messages are encoded. Default JSON.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.writes.codec = codec;
        self
    }

    /// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB. Larger
    /// ones are refused before anything is stored.
    pub const fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.writes.message_bytes_max = bytes;
        self
    }

    /// The transport that relays elsewhere send with: what it could never send is refused before it is stored. Not needed
    /// where the relay runs in the same process, and asks its own.
    pub fn transport(mut self, transport: Arc<dyn Dispatcher>) -> Self {
        self.writes.transport = Some(transport);
        self
    }

    /// Whether missing tables are added, in a schema that is created if it is not there. Default: no, and a database without
    /// them is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether a relay has a connection of its own by which the server tells it what other processes have stored (`LISTEN`).
    /// Default yes; never behind a connection pooler. Without it new rows are looked for.
    pub const fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
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
        if let Some(wrong) = self.wrong {
            return Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, wrong.to_string()));
        }
        let server = Server::open(&database, &SCHEMA, self.migrate).await?;
        decide(&server, self.ordered).await?;
        Ok(PostgresOutbox::new(server, self.writes, self.listen, self.ordered))
    }
}

/// Whether the table keeps order is the same for all who use it.
async fn decide(server: &Server, ordered: bool) -> Result<(), StoreError> {
    let mut wire = server.wire();
    let failed = |fault: super::super::wire::Fault| fault.store_error(SCHEMA.opening, server.place());
    let mut rows = wire.read(&server.text(ORDER), PgArguments::default()).await.map_err(failed)?;
    if rows.is_empty() {
        let mut arguments = PgArguments::default();
        arguments.bind(i64::from(ordered));
        wire.write(&server.text(KEEP_ORDER), arguments).await.map_err(failed)?;
        rows = wire.read(&server.text(ORDER), PgArguments::default()).await.map_err(failed)?;
    }
    wire.close().await;
    let decided = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok()).map(|value| value != 0);
    if decided == Some(ordered) {
        return Ok(());
    }
    let (is, asked) = if ordered { ("does not keep order", "`ordered(true)`") } else { ("keeps order", "no order") };
    let why = format!(
        "{}: the outbox {is}, and it was opened with {asked}: open it as all others do, or use another table prefix",
        server.place()
    );
    Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, why))
}
