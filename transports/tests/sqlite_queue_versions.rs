//! A queue's file of a version that is to come: opened if it has only added something, else refused.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "sqlite")]

mod common;

use common::*;
use hapax_core::ports::ErrorKind;
use hapax_stores::{
    Sqlite,
    sql::sqlite::ride::{self, Schema},
};
use hapax_transports::{SqliteQueue, sql::sqlite::SqliteQueueOptions};

/// In which one that opens a file looks at it and begins to wait for the lock. Were it slower it would be refused as well, at
/// its first look.
const HEAD_START_MS: i64 = 50;

fn to_come() -> &'static Schema {
    let known = SqliteQueueOptions::known_schema();
    let version = known.latest() + 1;
    let sql = format!(
        "ALTER TABLE hapax_queue_message ADD COLUMN priority INTEGER NOT NULL DEFAULT 0; \
         UPDATE hapax_queue_meta SET value = {} WHERE name = 'usable_from'; \
         INSERT INTO hapax_queue_migration (version, name, applied_at) VALUES ({version}, 'to come', 0)",
        known.latest()
    );
    let mut migrations = known.migrations.to_vec();
    migrations.push((version, sql.leak()));
    Box::leak(Box::new(Schema { migrations: migrations.leak(), ..*known }))
}

#[tokio::test]
async fn a_queue_of_a_version_to_come_is_used_if_it_has_only_added_something() {
    let place = Place::new();
    let old = place.open().await;
    let shop_of_old = shop(&old).await;
    let new = SqliteQueue::options().schema(to_come()).open(place.file()).await.unwrap();
    send_bodies(&old, &["a"]).await; // Open before the step.
    send_bodies(&new, &["b"]).await;
    send_bodies(&place.open().await, &["c"]).await; // Opened after it.
    assert_eq!(bodies(&receive(&shop_of_old, 10).await), ["a", "b", "c"]);

    // In a store's file as well.
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    SqliteQueue::options().schema(to_come()).on(&store).await.unwrap();
    send_bodies(&SqliteQueue::on(&store).await.unwrap(), &["d"]).await;
}

#[tokio::test]
async fn a_queue_of_a_version_to_come_is_refused_if_it_does_not_say_that_it_may_be_used() {
    let place = Place::new();
    place.open().await.close().await;
    let refused = || async {
        let error = SqliteQueue::open(place.file()).await.expect_err("it was opened");
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{text}");
        assert!(
            text.contains("queue.db") && text.contains("schema 99") && text.contains("update this program"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    place.run("INSERT INTO hapax_queue_migration VALUES (99, 'to come', 0)").await;
    place.run("DELETE FROM hapax_queue_meta").await;
    refused().await;
    place.run("INSERT INTO hapax_queue_meta VALUES ('usable_from', 99)").await;
    refused().await;
    place.run("UPDATE hapax_queue_meta SET value = 1").await;
    place.open().await;
}

/// A program that begins to migrate an old file may find that a newer one has been quicker.
#[tokio::test]
async fn one_that_waits_to_migrate_while_a_newer_program_does_looks_again() {
    let place = Place::new();
    let store = Sqlite::open(place.file()).await.unwrap();
    let mut newer = place.beside().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut newer).await.unwrap();
    let file = place.file();
    let slow = tokio::spawn(async move { SqliteQueue::open(file).await });
    let begun = ride::now();
    while ride::now() < begun + HEAD_START_MS {
        tokio::task::yield_now().await;
    }
    let sql = format!(
        "{} INSERT INTO hapax_queue_migration VALUES (99, 'to come', 0); UPDATE hapax_queue_meta SET value = 99; COMMIT",
        SqliteQueue::schema_sql()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut newer).await.unwrap();
    let error = slow.await.unwrap().expect_err("it was opened");
    assert!(error.to_string().contains("schema 99"), "{error}");
    store.close().await;
}
