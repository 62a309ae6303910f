//! A schema on a PostgreSQL server, and what kind of server a store names.

use std::{fmt, str::FromStr, time::Duration};

use hapax::Postgres;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, postgres::PgConnectOptions};
use tokio::time::timeout;
use uuid::Uuid;

use super::reached::{self, Meant, words};
use crate::{Refusal, say};

pub(super) const SCHEMES: [&str; 4] = ["postgres:", "postgresql:", "mysql:", "mariadb:"];

fn rest(store: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| store.strip_prefix(scheme))
}

/// Whether `store` is on a server.
pub(crate) fn is_server(store: &str) -> bool {
    rest(store).is_some()
}

/// Whether `store` is on a MariaDB or MySQL server.
pub(super) fn is_mysql(store: &str) -> bool {
    store.starts_with(SCHEMES[2]) || store.starts_with(SCHEMES[3])
}

/// Whether `store` is on a PostgreSQL server that runs.
pub(crate) fn is_postgres(store: &str) -> bool {
    is_server(store) && !is_mysql(store) && !is_private(store)
}

/// Whether `store` is on a server that the run is to start.
pub(crate) fn is_private(store: &str) -> bool {
    rest(store).is_some_and(|rest| rest.trim_matches('/').is_empty())
}

/// What else than a URL was written behind the scheme of a server: a slip, for which a driver would find a meaning.
pub(crate) fn is_slip(store: &str) -> bool {
    rest(store).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

/// Waits no longer for a server: what listens there may be another program, that waits to be spoken to.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What `connecting` comes to in time.
pub(super) async fn in_time<C>(connecting: impl Future<Output = sqlx::Result<C>>) -> sqlx::Result<C> {
    let late = || Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    timeout(CONNECT_LIMIT, connecting).await.unwrap_or_else(|_| late())
}

/// A schema of one run.
#[derive(Clone)]
pub(crate) struct Schema {
    url: String,
    name: String,
    /// Through which hapax reaches the same database.
    pooler: Option<String>,
    /// The way to it is, so that it need not show who it is.
    is_trusted: bool,
}

impl Schema {
    /// A new one on the server at `url`.
    pub(super) async fn new(url: &str, is_trusted: bool) -> Result<Self, Refusal> {
        let id = Uuid::new_v4().simple().to_string();
        let schema = Self::named(url, &format!("orders_{}", &id[..12])).trusted(is_trusted);
        let options = schema.options()?;
        let at = place(&options);
        let connected = in_time(options.connect()).await;
        let mut connection = connected.map_err(|e| not_reached(&options, "--store", &at, &e))?;
        let sql = format!("CREATE SCHEMA {}", schema.name);
        let made = connection.execute(AssertSqlSafe(sql)).await.map(drop);
        let _ = connection.close().await; // What counts is the answer.
        made.map_err(|e| may_not(&options, &at, &e))?;
        Ok(schema)
    }

    /// The one of this name, which another process has made.
    pub(super) fn named(url: &str, name: &str) -> Self {
        Self { url: url.to_owned(), name: name.to_owned(), pooler: None, is_trusted: false }
    }

    /// Whether the way to it is trusted.
    pub(super) fn trusted(self, is_trusted: bool) -> Self {
        Self { is_trusted, ..self }
    }

    pub(crate) const fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Behind the connection pooler at `pooler`, if there is one.
    pub(super) fn behind(self, pooler: Option<&str>) -> Self {
        Self { pooler: pooler.map(str::to_owned), ..self }
    }

    /// The URL of the connection pooler before it.
    pub(crate) fn pooler(&self) -> Option<&str> {
        self.pooler.as_deref()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How to look into it without hapax.
    pub(crate) fn options(&self) -> Result<PgConnectOptions, Refusal> {
        let options = reach(&self.url, "--store", self.is_trusted)?;
        Ok(options.options([("search_path", self.name.as_str())]).disable_statement_logging())
    }

    /// Removes it with all that is in it.
    pub(super) async fn remove(&self) {
        let Ok(options) = self.options() else { return };
        let removed = async {
            let mut connection = in_time(options.connect()).await?;
            connection.execute("SET client_min_messages = warning").await?;
            connection.execute(AssertSqlSafe(format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name))).await?;
            connection.close().await
        };
        if let Err(e) = removed.await {
            say(format_args!("{self} is still there: {e}; DROP SCHEMA {} CASCADE removes it", self.name));
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.options().map_or_else(|_| "postgres".to_owned(), |options| place(&options));
        write!(f, "schema {} at {at}", self.name)?;
        let pooler = self.pooler.as_deref().and_then(|pooler| pooler.parse().ok());
        pooler.map_or(Ok(()), |pooler| write!(f, ", through the pooler at {}", place(&pooler)))
    }
}

impl fmt::Debug for Schema {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.name).finish()
    }
}

/// How the server at `url`, which `option` gave, is reached: with the same TLS as hapax reaches it by.
pub(super) fn reach(url: &str, option: &str, is_trusted: bool) -> Result<PgConnectOptions, Refusal> {
    // Without the URL, which may hold a password.
    let wrong = |e| Refusal::new(format!("{option}: {e}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE"));
    PgConnectOptions::from_str(url).map_err(wrong)?;
    let options = Postgres::options(url).danger_unverified_tls(is_trusted).connect_options();
    options.map_err(|e| Refusal::of_store(option, &e))
}

/// Host, port and database, without user and password.
pub(super) fn place(options: &PgConnectOptions) -> String {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |path| path.display().to_string());
    format!("{host}:{}/{}", options.get_port(), database(options))
}

fn database(options: &PgConnectOptions) -> &str {
    options.get_database().unwrap_or_else(|| options.get_username())
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|e| Some(e.code()?.into_owned())).unwrap_or_default()
}

/// What is behind the URL that `option` gave.
pub(super) fn not_reached(options: &PgConnectOptions, option: &'static str, at: &str, error: &sqlx::Error) -> Refusal {
    let (words, database) = (words(error), database(options));
    Refusal::new(match code(error).as_str() {
        "28P01" | "28000" => format!(
            "{at}: the server does not let {} in: {words}; correct user and password in {option}, or set PGPASSWORD",
            options.get_username()
        ),
        "3D000" => {
            format!("{at}: {words}; create it (`CREATE DATABASE {database}`) or name another one with {option}")
        }
        "" => {
            let kind = if option == "--pooler" { "pgbouncer" } else { "PostgreSQL" };
            let or_else = if option == "--pooler" { "" } else { ", or let `--store postgres:` start one" };
            reached::why(&Meant { kind, option, or_else, tls_if_any: "sslmode=prefer" }, at, error)
        }
        _ => format!("{at}: {words}; mend that, or name another server with {option}"),
    })
}

fn may_not(options: &PgConnectOptions, at: &str, error: &sqlx::Error) -> Refusal {
    let (user, database, words) = (options.get_username(), database(options), words(error));
    Refusal::new(match code(error).as_str() {
        "42501" => format!(
            "{at}: {user} may not make a schema for the run: {words}; `GRANT CREATE ON DATABASE {database} TO {user}`, \
             or name another user in --store"
        ),
        _ => {
            format!("{at}: no schema can be made for the run: {words}; mend that, or name another server with --store")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_host_asks_for_a_server_of_the_runs_own() {
        for store in ["postgres:", "postgres://", "postgresql://"] {
            assert!(is_server(store) && is_private(store), "{store}");
        }
        for store in ["postgres://shop@db.example:5432/shop", "postgres:///shop", "postgresql://db"] {
            assert!(is_server(store) && !is_private(store), "{store}");
        }
        assert!(!is_server("postgres.db") && !is_server("sqlite:postgres"));
    }

    #[test]
    fn no_password_is_shown() {
        let schema = Schema::named("postgres://shop:secret@db.example:5433/goods", "orders_1");
        assert_eq!(schema.to_string(), "schema orders_1 at db.example:5433/goods");
        assert!(!format!("{schema:?}").contains("secret"));
    }
}
