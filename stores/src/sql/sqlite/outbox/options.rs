//! How the outbox is opened, in a file that may be another program's. Whether its table keeps order stands in the file, since it has to be the
//! same for all who use it.

use std::path::Path;

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{AssertSqlSafe, Row as _, sqlite::SqliteArguments};

use super::{
    super::{
        super::outbox::{self, Settings, settings},
        SqliteOptions,
        arguments::Bind,
        connection::Link,
        start,
    },
    SqliteOutbox,
    statements::{KEEP_ORDER, ORDER, SCHEMA},
};

/// How a [`SqliteOutbox`] is opened. From [`SqliteOutbox::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteOutboxOptions {
    settings: Settings,
}

impl SqliteOutboxOptions {
    settings!();

    pub(super) fn new() -> Self {
        Self { settings: Settings::default() }
    }

    /// An outbox in the file at `path` (or an URL, `sqlite://PATH`), which is created if it is not there and tables are to be
    /// added.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`]; and an address that is none.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteOutbox, StoreError> {
        let create = self.settings.migrate;
        self.open_database(SqliteOptions::new(path.as_ref()).create_if_missing(create)).await
    }

    /// An outbox in a file that is reached as `database` says: how long to wait for locks, when the disk is told. The file may
    /// be another program's, with its tables in it: it becomes one with a write-ahead log, for every program that opens it. What
    /// `database` says of a store's own connections and groups is of no account here.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`]; and an address that is none.
    pub async fn open_database(self, database: SqliteOptions) -> Result<SqliteOutbox, StoreError> {
        let settings = self.settings.check(SCHEMA.opening)?;
        let order = settings.order();
        let Settings { writes, migrate, .. } = settings;
        if tokio::runtime::Handle::try_current().is_err() {
            let why = "there is no tokio runtime: open it within one";
            return Err(StoreError::new(ErrorKind::Misconfigured, SCHEMA.opening, why));
        }
        let database = database.migrate(migrate).share_file(true);
        let ([relay, mut rare], file) = start::links(&database, &SCHEMA).await?;
        let ordered = decide(&mut rare, order, &file).await?;
        Ok(SqliteOutbox::open_with(relay, rare, file, writes, ordered, database.busy_timeout))
    }
}

/// Whether the table keeps order is the same for all who use it.
async fn decide(link: &mut Link, order: Option<bool>, file: &str) -> Result<bool, StoreError> {
    let failed = |failure: super::super::error::Failure| failure.store_error(SCHEMA.opening, file);
    if let Some(ordered) = order {
        let mut arguments = SqliteArguments::default();
        arguments.bind(i64::from(ordered));
        link.write(AssertSqlSafe(KEEP_ORDER), 1, arguments).await.map_err(failed)?;
    }
    let rows = link.read(AssertSqlSafe(ORDER), SqliteArguments::default()).await.map_err(failed)?;
    let decided = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok()).map(|value| value != 0);
    outbox::decided(decided, order, SCHEMA.opening, file)
}
