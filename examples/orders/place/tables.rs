//! Tables on a MariaDB or MySQL server, which has no schemas within a database: a prefix keeps runs apart.

use std::{fmt, str::FromStr};

use hapax::MySql;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor,
    mysql::{MySqlConnectOptions, MySqlDatabaseError},
};
use uuid::Uuid;

use super::{
    reached::{self, Meant, words},
    server::in_time,
};
use crate::{Refusal, say};

/// The tables of one run.
#[derive(Clone)]
pub(crate) struct Tables {
    url: String,
    prefix: String,
    /// The way to them is, so that the server need not show who it is.
    is_trusted: bool,
}

impl Tables {
    /// New ones in the database at `url`, which answers. None of them is there yet.
    pub(super) async fn new(url: &str, is_trusted: bool) -> Result<Self, Refusal> {
        let id = Uuid::new_v4().simple().to_string();
        let tables = Self::named(url, &format!("orders_{}_", &id[..12])).trusted(is_trusted);
        let options = tables.options()?;
        let connected = in_time(options.connect()).await;
        let _ = connected.map_err(|e| not_reached(&options, &e))?.close().await; // It has answered.
        Ok(tables)
    }

    /// Those with this prefix, which another process has made.
    pub(super) fn named(url: &str, prefix: &str) -> Self {
        Self { url: url.to_owned(), prefix: prefix.to_owned(), is_trusted: false }
    }

    /// Whether the way to them is trusted.
    pub(super) fn trusted(self, is_trusted: bool) -> Self {
        Self { is_trusted, ..self }
    }

    pub(crate) const fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How to look into them without hapax.
    pub(crate) fn options(&self) -> Result<MySqlConnectOptions, Refusal> {
        let options = MySqlConnectOptions::from_str(&self.url);
        // Without the URL, which may hold a password.
        let wrong = |why: &str| Refusal::new(format!("--store: {why}; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"));
        let options = options.map_err(|e| wrong(&e.to_string()))?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err(wrong("no database is named"));
        }
        // With the same TLS as hapax reaches them by.
        let options = MySql::options(&self.url).danger_unverified_tls(self.is_trusted).connect_options();
        Ok(options.map_err(|e| Refusal::of_store("--store", &e))?.disable_statement_logging())
    }

    /// Removes them.
    pub(super) async fn remove(&self) {
        let Ok(options) = self.options() else { return };
        let removed = async {
            let mut connection = in_time(options.connect()).await?;
            let list = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()";
            let all: Vec<String> = sqlx::query_scalar(list).fetch_all(&mut connection).await?;
            let own: Vec<String> = all.into_iter().filter(|table| table.starts_with(&self.prefix)).collect();
            if !own.is_empty() {
                connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {}", own.join(", "))))).await?;
            }
            connection.close().await
        };
        if let Err(e) = removed.await {
            say(format_args!("{self} are still there: {e}; drop them"));
        }
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.options().map_or_else(|_| "mysql".to_owned(), |options| place(&options));
        write!(f, "tables {}* at {at}", self.prefix)
    }
}

impl fmt::Debug for Tables {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tables").field(&self.prefix).finish()
    }
}

/// Host, port and database, without user and password.
fn place(options: &MySqlConnectOptions) -> String {
    format!("{}:{}/{}", options.get_host(), options.get_port(), options.get_database().unwrap_or_default())
}

fn not_reached(options: &MySqlConnectOptions, error: &sqlx::Error) -> Refusal {
    let (at, words) = (place(options), words(error));
    let number = error
        .as_database_error()
        .and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number);
    Refusal::new(match number {
        Some(1045 | 1698) => {
            format!(
                "{at}: the server does not let {} in: {words}; correct user and password in --store",
                options.get_username()
            )
        }
        Some(1044) => format!("{at}: {words}; GRANT ALL on that database, or name another user in --store"),
        Some(1049) => format!("{at}: {words}; create it (CREATE DATABASE) or name another one with --store"),
        Some(_) => format!("{at}: {words}; mend that, or name another server with --store"),
        None => {
            let or_else = ", or let `--store mysql:` start one";
            let meant = Meant { kind: "MariaDB", option: "--store", or_else, tls_if_any: "ssl-mode=preferred" };
            reached::why(&meant, &at, error)
        }
    })
}
