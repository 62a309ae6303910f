use hapax_core::ports::StoreError;
use sqlx::{Row as _, postgres::PgArguments};

use super::{
    super::{
        super::outbox::{self, Settings, settings},
        Postgres, PostgresOptions,
        arguments::Bind,
        wire::Server,
    },
    PostgresOutbox,
    statements::{KEEP_ORDER, ORDER, SCHEMA},
};

/// How a [`PostgresOutbox`] is opened. From [`PostgresOutbox::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PostgresOutboxOptions {
    settings: Settings,
    listen: bool,
}

impl PostgresOutboxOptions {
    settings!();

    pub(super) fn new() -> Self {
        Self { settings: Settings::default(), listen: true }
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
        let Settings { writes, migrate, ordered, .. } = self.settings.check(SCHEMA.opening)?;
        let server = Server::open(&database, &SCHEMA, migrate).await?;
        decide(&server, ordered).await?;
        Ok(PostgresOutbox::new(server, writes, self.listen, ordered))
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
    outbox::decided(decided, ordered, SCHEMA.opening, server.place())
}
