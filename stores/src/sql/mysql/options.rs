//! How the store is opened: each bound with its default and the reason for it. What is wrong with a URL is said without the password in it.

use std::{fmt, str::FromStr, time::Duration};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{
    MySqlPool,
    mysql::{MySqlConnectOptions, MySqlSslMode},
};

use super::{
    super::{
        clean_ups,
        connections::Connections,
        tls::{self, Tls},
        url,
    },
    MySql, start,
};

/// How long a write is waited for, before its outcome counts as unknown; the server gives it up after as long. Default
/// 30 s: below the default deadline of a pass.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a read is waited for. Default 30 s: as long as a write.
const READ_LIMIT: Duration = WRITE_LIMIT;
/// Writes that share a commit, and reads that share a statement, at most. Default 256: beyond it throughput gains little and
/// the first in the group waits for the last.
const GROUP_MAX: usize = 256;
/// Statements longer than that gain nothing.
const GROUP_LIMIT: usize = 1024;
/// Writing connections. Default 2: while one waits for its commit, the other gathers the next group.
const WRITERS: usize = 2;
/// Reading connections. Default 1: it answers whole groups.
const READERS: usize = 1;
/// More connections than a server is asked for by one store.
const CONNECTIONS_LIMIT: usize = 64;

/// How a [`MySql`] store is opened. From [`MySql::options`] or [`MySql::with`].
#[derive(Clone)]
#[must_use]
pub struct MySqlOptions {
    pub(super) place: Result<MySqlConnectOptions, String>,
    /// Whether the URL says how TLS is used; nothing is looked at where there is none.
    tls_said: Option<bool>,
    danger_unverified_tls: bool,
    pub(super) table_prefix: String,
    pub(super) migrate: bool,
    pub(super) writers: usize,
    pub(super) readers: usize,
    pub(super) group_max: usize,
    pub(super) write_limit: Duration,
    pub(super) read_limit: Duration,
    pub(super) clean_up_wait: Duration,
    pub(super) connections: Option<Connections>,
}

impl MySqlOptions {
    fn at(place: Result<MySqlConnectOptions, String>, tls_said: Option<bool>) -> Self {
        Self {
            place,
            tls_said,
            danger_unverified_tls: false,
            table_prefix: "hapax_".to_owned(),
            migrate: false,
            writers: WRITERS,
            readers: READERS,
            group_max: GROUP_MAX,
            write_limit: WRITE_LIMIT,
            read_limit: READ_LIMIT,
            clean_up_wait: clean_ups::WAIT,
            connections: None,
        }
    }

    pub(super) fn url(url: &str) -> Self {
        // What the driver takes for the name of a host or a database is shown in messages.
        if url::has_unescaped_password(url) {
            let why = "`/`, `?` and `#` in a password are written `%2F`, `%3F` and `%23`";
            return Self::at(Err(why.to_owned()), None);
        }
        if !["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Self::at(Err("it is not one of MariaDB or MySQL".to_owned()), None);
        }
        if let Some(why) = tls::mistaken(url) {
            return Self::at(Err(why), None);
        }
        // The driver's error may show the URL, and with it the password.
        let place = MySqlConnectOptions::from_str(url).map_err(|e| match e {
            sqlx::Error::Configuration(e) => e.to_string(),
            _ => "it is not understood".to_owned(),
        });
        let place = place.map(|place| match tls::bracketed(place.get_host()) {
            Some(address) => place.host(&address),
            None => place,
        });
        Self::at(place, Some(tls::is_said(url, None)))
    }

    pub(super) fn with(options: MySqlConnectOptions) -> Self {
        Self::at(Ok(options), None)
    }

    /// Whether missing tables are added. Default: no, and a database whose schema is older is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// What the tables' names begin with, to share a database with others. Default `hapax_`. Lower-case ASCII letters, digits
    /// and `_`, 1 to 30.
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.table_prefix = prefix.into();
        self
    }

    /// Writing connections, from 1 to 64. Default 2. Each entity is written by one of them.
    pub fn writers(mut self, writers: usize) -> Self {
        self.writers = writers.clamp(1, CONNECTIONS_LIMIT);
        self
    }

    /// Reading connections, from 1 to 64. Default 1.
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, CONNECTIONS_LIMIT);
        self
    }

    /// With whom the store, and what is opened on it, shares the right to connections. Default: with nobody, and those it has are opened
    /// at once and stay.
    pub fn connections(mut self, shared: &Connections) -> Self {
        self.connections = Some(shared.clone());
        self
    }

    /// How many writes may share a commit, from 1 to 1024. Default 256.
    pub fn group_max(mut self, max: usize) -> Self {
        self.group_max = max.clamp(1, GROUP_LIMIT);
        self
    }

    /// How long to wait for a write before its outcome counts as unknown. Default 30 s. MariaDB ends a statement that has run
    /// for as long, or for a second if that is longer.
    pub const fn write_limit(mut self, limit: Duration) -> Self {
        self.write_limit = limit;
        self
    }

    /// How long to wait for a read before it is an error: `Unavailable`, nothing was changed. Default 30 s.
    pub const fn read_limit(mut self, limit: Duration) -> Self {
        self.read_limit = limit;
        self
    }

    /// How long the clean-up of an entity, once its messages are sent and marked as such, waits for the next save of the
    /// entity, which makes it in passing: at least so long, and at most twice as long. Default 500 ms; zero: it does not wait.
    /// Entities that are rarely saved within that time are soon cleaned up at once. Until then other processes find the
    /// messages known; what a crash leaves is cleaned up by whoever loads the entity next, or by the sweeper.
    pub const fn clean_up_wait(mut self, wait: Duration) -> Self {
        self.clean_up_wait = wait;
        self
    }

    /// Takes a server on another machine, which the URL names, without being shown who it is: whoever is on the way can read
    /// and change everything, passwords included. TLS is then what the URL says, by default the driver's own: if it is
    /// offered, with any certificate. For a way that is trusted, as a network of one's own may be. Default: no; see
    /// [`open`](Self::open).
    pub const fn danger_unverified_tls(mut self, danger: bool) -> Self {
        self.danger_unverified_tls = danger;
        self
    }

    /// The same server for connections of the program's own, with the same TLS: `MySqlPool::connect_with`.
    ///
    /// # Errors
    /// `Misconfigured`: the URL is wrong, or its TLS is refused, as when it is [opened](Self::open).
    pub fn connect_options(&self) -> Result<MySqlConnectOptions, StoreError> {
        self.way(start::OPENING)
    }

    /// Opens the store and checks that server and schema are what the promises need. Must be called within a tokio runtime
    /// with its timer enabled; the store lives as long as that runtime.
    ///
    /// # TLS
    /// A server on another machine, which a URL names, has to show a certificate of a known authority for its host, as with
    /// `ssl-mode=VERIFY_IDENTITY`; `VERIFY_CA` is taken too. What else `ssl-mode` in the URL asks for is refused without
    /// [`danger_unverified_tls`](Self::danger_unverified_tls). An authority of one's own is named by `ssl-ca=FILE`. To
    /// `localhost`, a loopback address or a socket TLS is the driver's own. In options of the driver, and in a pool, nothing is
    /// looked at.
    ///
    /// # Errors
    /// [`StoreError`], one line that names the database, the cause and the remedy: `Misconfigured` for a server that confirms
    /// what it may lose (`innodb_flush_log_at_trx_commit`, or `sync_binlog` with a binary log), that is a replica, for a
    /// schema that is older, for tables of another storage engine than InnoDB, for a prefix that is none, for a URL without
    /// a database, for TLS that is refused or not built in; `Absent` where there is no schema; `Malformed` for that of a newer
    /// hapax; `Denied` for missing rights; `Unavailable` for a server that cannot be reached.
    pub async fn open(self) -> Result<MySql, StoreError> {
        start::open(self).await
    }
}

impl fmt::Debug for MySqlOptions {
    /// Without the place: the driver shows the password with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table_prefix, migrate, .. } = self;
        let mut shown = f.debug_struct("MySqlOptions");
        shown.field("table_prefix", table_prefix).field("migrate", migrate).finish_non_exhaustive()
    }
}

impl From<&MySqlPool> for MySqlOptions {
    /// The same server, database, account and TLS as the pool's; connections of the store's own, since it needs settings of its
    /// own on them. Hooks of the pool do not run on them.
    fn from(pool: &MySqlPool) -> Self {
        Self::with((*pool.connect_options()).clone())
    }
}

impl MySqlOptions {
    /// The server as the URL has it.
    pub(super) fn place(&self, opening: &'static str) -> Result<MySqlConnectOptions, StoreError> {
        let wrong = |why: String| StoreError::new(ErrorKind::Misconfigured, opening, why);
        let place = self.place.clone().map_err(|e| {
            wrong(format!("the URL of the database is wrong ({e}): write `mysql://USER:PASSWORD@HOST:PORT/DATABASE`"))
        })?;
        match place.get_database() {
            Some(_) => Ok(place),
            None => Err(wrong("no database is named: write `mysql://USER:PASSWORD@HOST:PORT/DATABASE`".to_owned())),
        }
    }

    /// The same, with the TLS that it is to be reached by.
    pub(super) fn way(&self, opening: &'static str) -> Result<MySqlConnectOptions, StoreError> {
        let place = self.place(opening)?;
        let Some(is_said) = self.tls_said else { return Ok(place) };
        let is_near = place.get_socket().is_some() || tls::is_near(place.get_host());
        let is_verified = matches!(place.get_ssl_mode(), MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
        match tls::decide(is_near, is_said.then_some(is_verified), self.danger_unverified_tls) {
            Tls::AsSaid => Ok(place),
            Tls::Verified => Ok(place.ssl_mode(MySqlSslMode::VerifyIdentity)),
            Tls::Refused => {
                let why = tls::refusal(place.get_host(), "`ssl-mode` in the URL", "ssl-mode=VERIFY_IDENTITY");
                Err(StoreError::new(ErrorKind::Misconfigured, opening, why))
            }
        }
    }
}
