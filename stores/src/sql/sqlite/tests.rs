//! Tests from within, in memory or on a file of their own: what SQLite makes of each text, and what is told of a read that goes wrong, which
//! no port lets a test bring about.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{Arc, Mutex, RwLock, atomic::AtomicBool},
    time::Duration,
};

use hapax_core::{
    ids::{EntityKey, Scope},
    ports::{EntityStore, ErrorKind},
};
use sqlx::{Connection, Executor, Row, SqliteConnection};
use tokio::sync::mpsc;

use super::super::{frames::STORED, warnings::Warnings};
use super::{Shared, Sqlite, generations::Keeper, migrate, statements};

mod generations;
mod golden;
mod long;

async fn migrated() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    migrate::migrate(&mut connection, &migrate::STORE).await.unwrap();
    connection
}

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let mut connection = migrated().await;
    for sql in statements::all().into_iter().flat_map(|sql| sql.split("; ")).filter(|sql| !sql.is_empty()) {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"));
        if let Err(e) = connection.fetch_all(explain).await {
            panic!("{sql}: {e}");
        }
    }
}

#[tokio::test]
async fn no_statement_goes_through_all_entities_or_all_dedup_entries_or_the_whole_schedule() {
    let mut connection = migrated().await;
    for analysed in [false, true] {
        if analysed {
            // Statistics of an empty file must not change a plan.
            connection.execute("ANALYZE").await.unwrap();
        }
        for sql in statements::all().into_iter().flat_map(|sql| sql.split("; ")).filter(|sql| !sql.is_empty()) {
            if matches!(sql, "BEGIN IMMEDIATE" | "COMMIT") {
                continue;
            }
            let plan = connection.fetch_all(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).await.unwrap();
            for step in plan {
                let step: String = step.get(3);
                for table in [
                    "hapax_entity",
                    "hapax_dedup",
                    "hapax_schedule",
                    "hapax_long_run",
                    "hapax_long_key",
                    "e",
                    "d",
                    "s",
                    "l",
                    "b",
                    "k",
                ] {
                    assert!(step != format!("SCAN {table}"), "{step}: {sql}");
                }
            }
        }
    }
}

#[tokio::test]
async fn entities_that_cannot_be_read_are_warned_of_when_the_store_is_opened() {
    let folder = generations::Folder::new();
    let file = folder.file();
    Sqlite::migrate(&file).await.unwrap();
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    connection.execute("INSERT INTO hapax_scope (endpoint, saga) VALUES ('shop', 'order')").await.unwrap();
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for (state, outbox, why) in STORED {
        let row = format!(
            "DELETE FROM hapax_entity; \
             INSERT INTO hapax_entity (scope, key, version, token, completed, changed_at, outbox, state) \
             VALUES ((SELECT id FROM hapax_scope), 'one', 1, 1, 0, 0, X'{outbox}', X'{state}')"
        );
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(row))).await.unwrap();
        warnings.take();
        Sqlite::options(&file).open().await.unwrap().close().await;
        let told = warnings.take();
        assert_eq!(told.len(), why.map_or(0, |_| 1), "{told:?}");
        for word in why.into_iter().flat_map(|why| [why, "store.db", "hapax_entity"]) {
            assert!(told[0].contains(word), "`{word}` is missing: {told:?}");
        }
    }
}

#[tokio::test]
async fn a_read_that_takes_too_long_is_unavailable_and_no_unknown_outcome() {
    let key: hapax_core::ids::SagaKey = "a".parse().unwrap();
    let scope = Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: "order".parse().unwrap() });
    for idle in [false, true] {
        // Nobody takes what is asked for.
        let (writes, _written) = mpsc::channel(1);
        let (reads, _read) = mpsc::channel(1);
        let file: Arc<str> = "store.db".into();
        let (_keeper, generations) = Keeper::new(1, &reads, &writes, file.clone());
        let store = Sqlite::new(Shared {
            file,
            writes,
            idle: Arc::new(AtomicBool::new(idle)),
            commits: Arc::default(),
            reads,
            generations,
            write_limit: Duration::from_secs(10),
            read_limit: Duration::from_millis(10),
            scopes: RwLock::default(),
            tasks: Mutex::default(),
            keeper: None,
        });
        store.0.scopes.write().unwrap().insert(scope.clone(), 1);
        // The second finds the queue full.
        for _ in 0..2 {
            let error = EntityStore::load(&store, &EntityKey::new(scope.clone(), key.clone()), &[]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("store.db: the read has taken longer than its limit"), "{error}");
        }
    }
}
