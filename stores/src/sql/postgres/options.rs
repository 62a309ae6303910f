//! How the store is opened: each bound with its default and the reason for it. What is wrong with a URL is said without the password in it.

use std::{fmt, str::FromStr, time::Duration};

use hapax_core::ports::{ErrorKind, StoreError};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::{
    super::{
        clean_ups,
        connections::Connections,
        tls::{self, Tls},
        url,
    },
    Postgres, start,
};

/// How long a write is waited for, before its outcome counts as unknown; the server gives it up after as long. Default
/// 30 s: below the default deadline of a pass.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// How long a read is waited for. Default 30 s: as long as a write.
const READ_LIMIT: Duration = WRITE_LIMIT;
/// Writes that share a commit, and reads that share a statement, at most. Default 256: beyond it throughput gains little and
/// the first in the group waits for the last.
const GROUP_MAX: usize = 256;
/// Arrays longer than that gain nothing.
const GROUP_LIMIT: usize = 1024;
/// Writing connections. Default 2: while one waits for its commit, the other gathers the next group.
const WRITERS: usize = 2;
/// Reading connections. Default 1: it answers whole groups.
const READERS: usize = 1;
/// More connections than a server is asked for by one store.
const CONNECTIONS_LIMIT: usize = 64;

/// How a [`Postgres`] store is opened. From [`Postgres::options`] or [`Postgres::with`].
#[derive(Clone)]
#[must_use]
pub struct PostgresOptions {
    pub(super) place: Result<PgConnectOptions, String>,
    /// Whether the URL says how TLS is used; nothing is looked at where there is none.
    tls_said: Option<bool>,
    danger_unverified_tls: bool,
    pub(super) schema: String,
    pub(super) table_prefix: String,
    pub(super) migrate: bool,
    pub(super) pooler: bool,
    pub(super) writers: usize,
    pub(super) readers: usize,
    pub(super) group_max: usize,
    pub(super) write_limit: Duration,
    pub(super) read_limit: Duration,
    pub(super) clean_up_wait: Duration,
    pub(super) connections: Option<Connections>,
}

impl PostgresOptions {
    fn at(place: Result<PgConnectOptions, String>, tls_said: Option<bool>) -> Self {
        Self {
            place,
            tls_said,
            danger_unverified_tls: false,
            schema: "hapax".to_owned(),
            table_prefix: String::new(),
            migrate: false,
            pooler: false,
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
        if !url.is_empty() && !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Self::at(Err("it is not one of PostgreSQL".to_owned()), None);
        }
        if let Some(why) = tls::mistaken(url) {
            return Self::at(Err(why), None);
        }
        // The driver's error may show the URL, and with it the password.
        let place = PgConnectOptions::from_str(url).map_err(|e| match e {
            sqlx::Error::Configuration(e) => e.to_string(),
            _ => "it is not understood".to_owned(),
        });
        let place = place.map(|place| match tls::bracketed(place.get_host()) {
            Some(address) => place.host(&address),
            None => place,
        });
        Self::at(place, Some(tls::is_said(url, std::env::var("PGSSLMODE").ok().as_deref())))
    }

    pub(super) fn with(options: PgConnectOptions) -> Self {
        Self::at(Ok(options), None)
    }

    /// Whether missing tables are added, in a schema that is created if it is not there. Default: no, and a database whose
    /// schema is older is an error.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// The schema that the tables are in. Default `hapax`. Lower-case ASCII letters, digits and `_`, at most 30.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// What the tables' names begin with, to share a schema with others. Default nothing. As [`schema`](Self::schema).
    pub fn table_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.table_prefix = prefix.into();
        self
    }

    /// Whether a connection pooler (pgbouncer) that may give each transaction another session stands before the server.
    /// Nothing is kept prepared then, settings are made anew in each transaction (`synchronous_commit = on` among them, since
    /// another client may have set less in that session), and each statement takes five round trips
    /// instead of one: connect to the server itself where you can. Default: no, and a pooler that refuses or swallows the
    /// settings of a session, as pgbouncer 1.18 does in every mode, is refused at the start. What cannot be detected is a
    /// pooler that passes them on and shares the session nevertheless: statements that it loses are an error that names
    /// this setting. No promise rests on a session.
    pub const fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
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

    /// How long to wait for a write before its outcome counts as unknown. Default 30 s. The server ends a statement that has
    /// run for as long, or for a second if that is longer.
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
    /// messages known; what a crash leaves is cleaned up by whoever loads the entity next, or by the sweeper. Behind a
    /// [`pooler`](Self::pooler) none waits.
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

    /// The same server for connections of the program's own, with the same TLS: `PgPool::connect_with`.
    ///
    /// # Errors
    /// `Misconfigured`: the URL is wrong, or its TLS is refused, as when it is [opened](Self::open).
    pub fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        self.way(start::OPENING)
    }

    /// Opens the store and checks that server and schema are what the promises need. Must be called within a tokio runtime
    /// with its timer enabled; the store lives as long as that runtime.
    ///
    /// # TLS
    /// A server on another machine, which a URL names, has to show a certificate of a known authority for its host, as with
    /// `sslmode=verify-full`; `verify-ca` is taken too. What else `sslmode` in the URL, or PGSSLMODE, asks for is refused
    /// without [`danger_unverified_tls`](Self::danger_unverified_tls). An authority of one's own is named by
    /// `sslrootcert=FILE`. To `localhost`, a loopback address or a socket TLS is the driver's own. In options of the driver,
    /// and in a pool, nothing is looked at.
    ///
    /// # Errors
    /// [`StoreError`], one line that names the database, the cause and the remedy: `Misconfigured` for a server that
    /// confirms what it may lose (`fsync` or `synchronous_commit` off), that is a standby, that keeps text in another
    /// encoding than UTF8, for an older schema, for names that are none, for TLS that is refused or not built in; `Absent` where
    /// there is no schema; `Malformed` for that of a newer hapax; `Denied` for missing rights; `Unavailable` for a server that
    /// cannot be reached.
    pub async fn open(self) -> Result<Postgres, StoreError> {
        start::open(self).await
    }
}

impl fmt::Debug for PostgresOptions {
    /// Without the place: the driver shows the password with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, table_prefix, migrate, pooler, .. } = self;
        let mut shown = f.debug_struct("PostgresOptions");
        shown.field("schema", schema).field("table_prefix", table_prefix).field("migrate", migrate);
        shown.field("pooler", pooler).finish_non_exhaustive()
    }
}

impl From<&PgPool> for PostgresOptions {
    /// The same server, database, role and TLS as the pool's; connections of the store's own, since it needs settings of its
    /// own on them. Hooks of the pool do not run on them.
    fn from(pool: &PgPool) -> Self {
        Self::with((*pool.connect_options()).clone())
    }
}

impl PostgresOptions {
    /// The server as the URL has it.
    pub(super) fn place(&self, opening: &'static str) -> Result<PgConnectOptions, StoreError> {
        self.place.clone().map_err(|e| {
            let why =
                format!("the URL of the database is wrong ({e}): write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`");
            StoreError::new(ErrorKind::Misconfigured, opening, why)
        })
    }

    /// The same, with the TLS that it is to be reached by.
    pub(super) fn way(&self, opening: &'static str) -> Result<PgConnectOptions, StoreError> {
        let place = self.place(opening)?;
        let Some(is_said) = self.tls_said else { return Ok(place) };
        let is_near =
            place.get_socket().is_some() || place.get_host().starts_with('/') || tls::is_near(place.get_host());
        let is_verified = matches!(place.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
        match tls::decide(is_near, is_said.then_some(is_verified), self.danger_unverified_tls) {
            Tls::AsSaid => Ok(place),
            Tls::Verified => Ok(place.ssl_mode(PgSslMode::VerifyFull)),
            Tls::Refused => {
                let parameter = "`sslmode` in the URL (or the variable PGSSLMODE)";
                let why = tls::refusal(place.get_host(), parameter, "sslmode=verify-full");
                Err(StoreError::new(ErrorKind::Misconfigured, opening, why))
            }
        }
    }
}
