//! Tables and rows that somebody has removed by hand: who opens store or queue is told which, and what to do. Else every
//! statement would fail, or find nothing, again and again, and nobody would know why.
#![allow(clippy::unwrap_used)]

use hapax::{
    MySql, MySqlQueue, Postgres, PostgresQueue,
    ports::{ErrorKind, StoreError},
};
use hapax_tests::{MySqlTables, PostgresSchema};

const STORE_TABLES: [&str; 10] =
    ["floor", "scope", "entity", "generation", "dedup_0", "dedup_1", "dedup_2", "dedup_3", "dead_letter", "schedule"];
const LONG_TABLES: [&str; 6] = ["long_run", "long_key", "long_evidence", "long_memory", "dedup_4", "dedup_5"];
const QUEUE_TABLES: [&str; 5] = ["queue", "queue_subscription", "queue_message", "queue_given", "queue_dead_letter"];
const REMEDY: [&str; 2] = ["missing although the schema was applied", "restore it from a backup"];

/// One line that says all of `words`.
#[track_caller]
fn says<T>(opened: Result<T, StoreError>, words: &[&str]) {
    let error = opened.err().unwrap_or_else(|| panic!("{words:?}: it was opened"));
    let line = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(!line.contains('\n'), "{line}");
    for word in words.iter().chain(&REMEDY) {
        assert!(line.contains(word), "`{word}` is missing: {line}");
    }
}

#[tokio::test]
async fn a_postgres_table_that_was_dropped_is_named_when_store_or_queue_are_opened() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    for table in STORE_TABLES.into_iter().chain(LONG_TABLES).chain(["body"]).chain(QUEUE_TABLES) {
        drop(schema.open().await);
        drop(schema.open_queue(PostgresQueue::options()).await);
        let rename = |from: &str, to: &str| format!("ALTER TABLE {}.{from} RENAME TO {to}", schema.name());
        schema.run(&rename(table, "gone")).await.unwrap();
        let words = ["127.0.0.1", table];
        if QUEUE_TABLES.contains(&table) {
            let queue = || PostgresQueue::options().migrate(true);
            says(queue().open_database(schema.options()).await, &words);
            says(queue().on(&store).await, &words);
        } else {
            says(schema.options().open().await, &words);
            says(Postgres::migrate(schema.options()).await, &words);
        }
        schema.run(&rename("gone", table)).await.unwrap();
    }
}

#[tokio::test]
async fn a_mysql_table_that_was_dropped_is_named_when_store_or_queue_are_opened() {
    let tables = MySqlTables::new();
    let store = tables.open().await;
    for table in STORE_TABLES.into_iter().chain(LONG_TABLES).chain(QUEUE_TABLES).chain(["settled"]) {
        drop(tables.open().await);
        drop(tables.open_queue(MySqlQueue::options()).await);
        tables.run(&format!("RENAME TABLE hapax.{table} TO hapax.gone")).await.unwrap();
        let name = format!("{}{table}", tables.prefix());
        let words = ["127.0.0.1", &*name, "grants_sql"];
        if QUEUE_TABLES.contains(&table) {
            let queue = || MySqlQueue::options().migrate(true);
            says(queue().open_database(tables.options()).await, &words);
            says(queue().on(&store).await, &words);
        } else {
            says(tables.options().open().await, &words);
            says(MySql::migrate(tables.options()).await, &words);
        }
        tables.run(&format!("RENAME TABLE hapax.gone TO hapax.{table}")).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_that_is_gone_is_named_when_a_store_is_opened() {
    let schema = PostgresSchema::new();
    drop(schema.open().await);
    schema.run(&format!("DELETE FROM {}.floor", schema.name())).await.unwrap();
    says(schema.options().open().await, &["the row of `floor`", schema.name()]);
    schema
        .run(&format!("INSERT INTO {0}.floor (version) VALUES (0); DELETE FROM {0}.long_memory", schema.name()))
        .await
        .unwrap();
    says(schema.options().open().await, &["the row of `long_memory`", schema.name()]);

    let tables = MySqlTables::new();
    drop(tables.open().await);
    for table in ["long_memory", "settled", "floor"] {
        tables.run(&format!("DELETE FROM hapax.{table}")).await.unwrap();
        says(tables.options().open().await, &[&format!("the row of `{table}`"), tables.prefix()]);
    }
}

/// Found out with the next connection, so that it is told by a program that goes on, too.
#[tokio::test]
async fn a_postgres_table_that_is_dropped_under_a_store_is_named_by_it() {
    let schema = PostgresSchema::new();
    let store = schema.open().await;
    schema.run(&format!("DROP TABLE {}.dead_letter", schema.name())).await.unwrap();
    let endpoint = "shop".parse().unwrap();
    let page = hapax::ports::Page { message_id: None, limit: 1, skip: 0 };
    let list = async || hapax::ports::DeadLetters::list(&store, &endpoint, &page).await;
    assert_eq!(list().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    says(list().await, &["dead_letter"]);
}
