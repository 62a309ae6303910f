//! Controls: what makes a run worthless is seen.

#![allow(clippy::unwrap_used)]

use std::{path::Path, time::Duration};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    Scratch, anchor, candidate,
    cases::Case,
    options::Options,
    run::{Run, Shape},
};

#[derive(Clone, Copy)]
enum Who {
    Loop,
    Hapax,
}

const TIME: Duration = Duration::from_millis(100);
const ENTRIES: u64 = 2000;

fn shape(case: Case) -> Shape {
    case.shape(&Options { time: TIME, entries: ENTRIES, ..Options::default() })
}

/// A short run on a file that was prepared, and then changed by `spoil`.
fn run(test: &str, who: Who, shape: &Shape, spoil: &str) -> Run {
    let name = format!("hapax-bench-control-{test}-{}", std::process::id());
    let dir = Scratch::create(std::env::temp_dir().join(name)).unwrap();
    let path = dir.0.join("bench.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match who {
            Who::Loop => anchor::prepare(&path, shape).await.unwrap(),
            Who::Hapax => candidate::prepare(&path, shape).await.unwrap(),
        }
        execute(&path, spoil).await;
        match who {
            Who::Loop => anchor::sqlite(&path, shape).await.unwrap(),
            Who::Hapax => candidate::sqlite(&path, shape).await.unwrap(),
        }
    })
}

async fn execute(path: &Path, sql: &str) {
    let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Takes every copy of the first message out of the queue.
fn lose(table: &str) -> String {
    format!("DELETE FROM {table} WHERE message_id = (SELECT message_id FROM {table} ORDER BY id LIMIT 1)")
}

#[test]
fn a_run_from_a_queue_balances() {
    let shape = shape(Case::Queue);
    assert_eq!(run("loop-balances", Who::Loop, &shape, "").books.problem(), None);
    assert_eq!(run("hapax-balances", Who::Hapax, &shape, "").books.problem(), None);
}

#[test]
fn a_message_that_a_queue_loses_voids_the_run() {
    let shape = shape(Case::Queue);
    assert!(run("loop-loses", Who::Loop, &shape, &lose("message")).books.problem().is_some());
    assert!(run("hapax-loses", Who::Hapax, &shape, &lose("hapax_queue_message")).books.problem().is_some());
}

#[test]
fn entries_from_before_are_there_in_the_end_or_the_run_is_void() {
    let lose = "DELETE FROM hapax_dedup WHERE key = (SELECT min(key) FROM hapax_dedup)";
    for (case, name) in [(Case::C3Ordered, "ordered"), (Case::C3Random, "random")] {
        let shape = shape(case);
        assert_eq!(run(&format!("{name}-kept"), Who::Hapax, &shape, "").books.problem(), None, "{name}");
        assert!(run(&format!("{name}-lost"), Who::Hapax, &shape, lose).books.problem().is_some(), "{name}");
    }
}

#[test]
fn a_queue_that_runs_dry_ends_the_window() {
    let shape = Shape { queued: 500, time: Duration::from_secs(60), ..shape(Case::Queue) };
    for (who, name) in [(Who::Loop, "loop-dry"), (Who::Hapax, "hapax-dry")] {
        let run = run(name, who, &shape, "");
        assert!(run.sample.seconds < 10.0, "{run:?}");
        assert_eq!(run.books.problem(), None);
    }
}
