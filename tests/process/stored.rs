//! What a store keeps, read without the store.
#![allow(dead_code)] // Each test program uses a part of it.

use std::path::Path;

use hapax::codec::FRAME_BYTES;
use hapax_tests::PostgresSchema;
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions};

/// What is in the store of a folder.
pub(crate) enum Stored {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// What a saga has written down.
#[derive(Debug, Deserialize)]
struct Handled {
    handled: Vec<String>,
}

/// Tells workers in `folder` to keep their store in `schema`.
pub(crate) fn name_server(folder: &Path, schema: &PostgresSchema) {
    std::fs::write(folder.join("server"), format!("{}\n{}", schema.url(), schema.name())).unwrap();
}

/// The server that workers in `folder` keep their store on: its URL, and a schema there.
pub(crate) fn server_of(folder: &Path) -> Option<(String, String)> {
    let named = std::fs::read_to_string(folder.join("server")).ok()?;
    let (url, schema) = named.split_once('\n')?;
    Some((url.to_owned(), schema.to_owned()))
}

impl Stored {
    pub(crate) async fn open(folder: &Path) -> Self {
        if let Some((url, schema)) = server_of(folder) {
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
                // Dedup entries are in four tables.
                let what = if what == "dedup" {
                    let tables: Vec<String> = (0..4).map(|slot| format!("SELECT key FROM dedup_{slot}")).collect();
                    format!("({}) AS d", tables.join(" UNION ALL "))
                } else {
                    what.to_owned()
                };
                let sql = AssertSqlSafe(format!("SELECT count(*) FROM {what}"));
                sqlx::query_scalar(sql).fetch_one(server).await.unwrap()
            }
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(file) => file.close().await.unwrap(),
            Self::Postgres(server) => server.close().await.unwrap(),
        }
    }
}
