//! Tests from within, without waiting: what SQLite makes of each text, how often is looked, and whether a clock that is set back is noticed.
#![allow(clippy::unwrap_used)]

use sqlx::{Connection, Executor, Row, SqliteConnection};

use super::statements;

mod golden;

async fn migrated() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statements::SCHEMA.sql()))).await.unwrap();
    connection
}

fn each_statement() -> Vec<String> {
    let all = statements::all();
    all.iter().flat_map(|sql| sql.split("; ")).filter(|sql| !sql.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_statement_can_be_prepared_and_says_how_many_it_is() {
    let mut connection = migrated().await;
    for sql in each_statement() {
        if let Err(e) = connection.fetch_all(sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"))).await {
            panic!("{sql}: {e}");
        }
    }
    for kind in &statements::FAMILY {
        assert_eq!(kind.sql.split("; ").count(), kind.statements, "{}", kind.sql);
    }
}

#[tokio::test]
async fn no_statement_goes_through_all_messages() {
    let mut connection = migrated().await;
    for analysed in [false, true] {
        if analysed {
            // Statistics of an empty file must not change a plan.
            connection.execute("ANALYZE").await.unwrap();
        }
        for sql in each_statement() {
            if matches!(sql.as_str(), "BEGIN IMMEDIATE" | "COMMIT" | statements::MESSAGES) {
                continue;
            }
            let plan = connection.fetch_all(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).await.unwrap();
            for step in plan {
                let step: String = step.get(3);
                for table in ["hapax_queue_message", "hapax_queue_dead_letter", "m", "n", "e", "h"] {
                    assert!(
                        step != format!("SCAN {table}") && !step.starts_with(&format!("SCAN {table} ")),
                        "{step}: {sql}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn looks_are_frequent_while_something_comes_and_rare_when_nothing_does() {
    use std::time::Duration;
    let (busy, idle) = (Duration::from_millis(3), Duration::from_millis(240));
    let signals = super::signals::Signals::new(busy, idle, 0);
    signals.came();
    assert_eq!(signals.interval(), busy);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(signals.interval() > busy && signals.interval() < idle);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(signals.interval(), idle);
    signals.came();
    assert_eq!(signals.interval(), busy);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_is_noticed_and_one_that_runs_is_not() {
    use std::time::Duration;
    let busy = Duration::from_millis(3);
    let signals = super::signals::Signals::new(busy, busy, 1_000_000);
    for (seconds, now, set_back) in [
        (1, 1_001_000, false),
        (1, 1_001_500, false),
        (1, 9_000_000, false),
        (1, 2_000_000, true),
        (1, 2_001_000, false),
    ] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(signals.was_set_back(now), set_back, "at {now}");
    }
}
