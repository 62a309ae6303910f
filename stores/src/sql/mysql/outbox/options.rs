//! How the outbox is opened. Whether its table keeps order stands in the database, since it has to be the same for all who use it.

use hapax_core::ports::StoreError;
use sqlx::{Row as _, mysql::MySqlArguments};

use super::{
    super::{
        super::outbox::{self, Settings, settings},
        MySql, MySqlOptions,
        arguments::Bind,
        wire::{Fault, Server},
    },
    MySqlOutbox,
    statements::{KEEP_ORDER, ORDER, SCHEMA},
};

/// How a [`MySqlOutbox`] is opened. From [`MySqlOutbox::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MySqlOutboxOptions {
    settings: Settings,
}

impl MySqlOutboxOptions {
    settings!();

    pub(super) fn new() -> Self {
        Self { settings: Settings::default() }
    }

    /// An outbox in the database at `url` (`mysql://USER:PASSWORD@HOST:PORT/DATABASE`), in tables whose names begin with
    /// `hapax_`.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`]; and an address that is none.
    pub async fn open(self, url: impl AsRef<str>) -> Result<MySqlOutbox, StoreError> {
        self.open_database(MySql::options(url)).await
    }

    /// An outbox in a database that is reached as `database` says: by URL or as a pool does, the prefix of its tables, how long
    /// a call may take. Several tables of one database have several prefixes. What it says of a store's own connections and
    /// groups is of no account here.
    ///
    /// # Errors
    /// See [`MySqlOptions::open`]; and an address that is none.
    pub async fn open_database(self, database: MySqlOptions) -> Result<MySqlOutbox, StoreError> {
        let settings = self.settings.check(SCHEMA.opening)?;
        let order = settings.order();
        let Settings { writes, migrate, .. } = settings;
        let server = Server::open(&database, &SCHEMA, migrate).await?;
        let ordered = decide(&server, order).await?;
        Ok(MySqlOutbox::new(server, writes, ordered, &database))
    }
}

/// Whether the table keeps order is the same for all who use it.
async fn decide(server: &Server, order: Option<bool>) -> Result<bool, StoreError> {
    let mut wire = server.wire();
    let failed = |fault: Fault| fault.store_error(SCHEMA.opening, server.place());
    let mut rows = wire.read(&server.text(ORDER), MySqlArguments::default()).await.map_err(failed)?;
    if let Some(ordered) = order.filter(|_| rows.is_empty()) {
        let mut arguments = MySqlArguments::default();
        arguments.bind(i64::from(ordered));
        wire.write(&server.text(KEEP_ORDER), arguments).await.map_err(failed)?;
        rows = wire.read(&server.text(ORDER), MySqlArguments::default()).await.map_err(failed)?;
    }
    wire.close().await;
    let decided = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok()).map(|value| value != 0);
    outbox::decided(decided, order, SCHEMA.opening, server.place())
}
