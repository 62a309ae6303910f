//! What a store keeps, read without the store.
#![allow(dead_code)] // Each test program uses a part of it.

use std::path::Path;

use hapax::codec::FRAME_BYTES;
use serde::Deserialize;
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions,
};

/// What is in the store of a folder.
pub(crate) enum Stored {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    /// With the prefix of its tables.
    MySql(MySqlConnection, String),
}

/// What a saga has written down.
#[derive(Debug, Deserialize)]
struct Handled {
    handled: Vec<String>,
}

/// Tells workers in `folder` to keep their store on the server at `url`, in `tables`: a schema or a prefix.
pub(crate) fn name_server(folder: &Path, url: &str, tables: &str) {
    std::fs::write(folder.join("server"), format!("{url}\n{tables}")).unwrap();
}

/// The server that workers in `folder` keep their store on: its URL, and a schema or a prefix there.
pub(crate) fn server_of(folder: &Path) -> Option<(String, String)> {
    let named = std::fs::read_to_string(folder.join("server")).ok()?;
    let (url, schema) = named.split_once('\n')?;
    Some((url.to_owned(), schema.to_owned()))
}

impl Stored {
    pub(crate) async fn open(folder: &Path) -> Self {
        if let Some((url, schema)) = server_of(folder) {
            if url.starts_with("mysql") {
                return Self::MySql(MySqlConnection::connect(&url).await.unwrap(), schema);
            }
            let mut server = PgConnection::connect(&url).await.unwrap();
            let sql = AssertSqlSafe(format!("SET search_path = {schema}"));
            server.execute(sqlx::raw_sql(sql)).await.unwrap();
            return Self::Postgres(server);
        }
        let file = SqliteConnectOptions::new().filename(folder.join("store.db"));
        Self::Sqlite(SqliteConnection::connect_with(&file).await.unwrap())
    }

    /// What each saga of a name has written down.
    pub(crate) async fn handled(&mut self, saga: &str) -> Vec<Vec<String>> {
        let states: Vec<(Vec<u8>,)> = match self {
            Self::Sqlite(file) => {
                let sql =
                    "SELECT e.state FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope WHERE s.saga = ?";
                sqlx::query_as(sql).bind(saga).fetch_all(file).await.unwrap()
            }
            Self::Postgres(server) => {
                let sql = "SELECT e.state FROM entity AS e JOIN scope AS s ON s.id = e.scope WHERE s.saga = $1";
                sqlx::query_as(sql).bind(saga).fetch_all(server).await.unwrap()
            }
            Self::MySql(server, prefix) => {
                let sql = format!(
                    "SELECT e.state FROM {prefix}entity AS e JOIN {prefix}scope AS s ON s.id = e.scope WHERE s.saga = ?"
                );
                sqlx::query_as(AssertSqlSafe(sql)).bind(saga).fetch_all(server).await.unwrap()
            }
        };
        let handled = |framed: Vec<u8>| serde_json::from_slice::<Handled>(&framed[FRAME_BYTES..]).unwrap().handled;
        states.into_iter().map(|(framed,)| handled(framed)).collect()
    }

    /// How many rows there are of a table, and a condition if need be.
    pub(crate) async fn count(&mut self, what: &str) -> i64 {
        match self {
            Self::Sqlite(file) => {
                let sql = AssertSqlSafe(format!("SELECT count(*) FROM hapax_{what}"));
                sqlx::query_scalar(sql).fetch_one(file).await.unwrap()
            }
            Self::Postgres(server) => {
                let sql = AssertSqlSafe(format!("SELECT count(*) FROM {}", in_slots(what, "")));
                sqlx::query_scalar(sql).fetch_one(server).await.unwrap()
            }
            Self::MySql(server, prefix) => {
                let sql = AssertSqlSafe(format!("SELECT count(*) FROM {}", in_slots(what, prefix)));
                sqlx::query_scalar(sql).fetch_one(server).await.unwrap()
            }
        }
    }

    /// Lets whoever had been given a message of the schedule have lost it: in place of the minute that a lease has.
    pub(crate) async fn end_leases(&mut self) {
        let end = |table: &str| AssertSqlSafe(format!("UPDATE {table} SET leased_until = 0"));
        match self {
            Self::Sqlite(file) => drop(file.execute(end("hapax_schedule")).await.unwrap()),
            Self::Postgres(server) => drop(server.execute(end("schedule")).await.unwrap()),
            Self::MySql(server, prefix) => drop(server.execute(end(&format!("{prefix}schedule"))).await.unwrap()),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(file) => file.close().await.unwrap(),
            Self::Postgres(server) => server.close().await.unwrap(),
            Self::MySql(server, _) => server.close().await.unwrap(),
        }
    }
}

/// A server's dedup entries are in four tables.
fn in_slots(what: &str, prefix: &str) -> String {
    if what != "dedup" {
        return format!("{prefix}{what}");
    }
    let tables: Vec<String> = (0..4).map(|slot| format!("SELECT attempt FROM {prefix}dedup_{slot}")).collect();
    format!("({}) AS d", tables.join(" UNION ALL "))
}
