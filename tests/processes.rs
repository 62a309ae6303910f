//! Real processes and real kills: a worker sends itself SIGKILL before or after its n-th port call, for every n; then a
//! clean worker takes over; then the books are made from the file alone.
//!
//! Unlike a dropped future, a killed process takes its connections, its transactions and its queues in memory with it.
#![allow(clippy::unwrap_used)]

#[path = "process/books.rs"]
mod books;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use std::{collections::BTreeSet, os::unix::process::ExitStatusExt};

use books::{SIGKILL, Scenario, Server, check, feed, name_tables, step, steps, worker};
use hapax_tests::Scratch;

/// A task that asks for more than this does not end.
const CALLS_MAX: u32 = 300;

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario { calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good_with_the_queue_in_a_file_of_its_own() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario { apart: true, calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good_on_postgres() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario { server: Some(Server::Postgres), calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good_on_mysql() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario { server: Some(Server::MySql), calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_sweeper_is_made_good_on_postgres() {
    let calls = &["pending", "load", "dispatch", "finish"];
    let scenario =
        Scenario { task: "sweep", recovery: "sweep", server: Some(Server::Postgres), calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_sweeper_is_made_good_on_mysql() {
    let calls = &["pending", "load", "dispatch", "finish"];
    let scenario =
        Scenario { task: "sweep", recovery: "sweep", server: Some(Server::MySql), calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_an_endpoint_that_is_stopping_is_made_good() {
    let calls = &["connect", "receive", "load", "save", "settle"];
    let scenario = Scenario { task: "stop", calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_upkeep_is_made_good() {
    kill_the_upkeep(None).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_upkeep_is_made_good_on_postgres() {
    kill_the_upkeep(Some(Server::Postgres)).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_upkeep_is_made_good_on_mysql() {
    kill_the_upkeep(Some(Server::MySql)).await;
}

async fn kill_the_upkeep(server: Option<Server>) {
    let mut steps = steps();
    steps.push(step("d", 0, true));
    let scenario = Scenario {
        task: "upkeep",
        recovery: "upkeep",
        handled_before: true,
        calls: &["evict", "purge"],
        steps,
        server,
        ..Scenario::work()
    };
    kill_everywhere(&scenario).await;
}

/// A crash after the save leaves an entry; its message is taken away, so that the sweeper alone can finish it.
#[tokio::test]
async fn a_kill_at_any_port_call_of_the_sweeper_is_made_good() {
    let calls = &["pending", "load", "dispatch", "finish"];
    let scenario = Scenario { task: "sweep", recovery: "sweep", calls, ..Scenario::work() };
    kill_everywhere(&scenario).await;
}

/// The control: were the books blind, this would pass too.
#[tokio::test]
async fn a_worker_that_acks_before_it_has_handled_is_found_out_by_the_books() {
    let scenario = Scenario { task: "ack-early", twice: false, calls: &[], ..Scenario::work() };
    let scratch = Scratch::new("processes-ack-early");
    let messages = feed(scratch.folder(), &scenario).await;
    let crashed = worker(scratch.folder(), scenario.task, "load-0-before");
    assert_eq!(crashed.status.signal(), Some(SIGKILL));
    assert!(worker(scratch.folder(), scenario.recovery, "none").status.success());
    let why = check(scratch.folder(), &scenario, messages).await.unwrap_err();
    assert!(why.starts_with("steps: [\"b\", \"c\"]"), "{why}");
}

async fn kill_everywhere(scenario: &Scenario) {
    // The calls of a whole endpoint come in any order; each is counted by its name then.
    let counted = if scenario.task == "stop" { scenario.calls } else { &["any"] };
    let mut points = BTreeSet::new();
    for name in counted {
        for number in 0..CALLS_MAX {
            let mut killed = false;
            for side in ["before", "after"] {
                let point = format!("{name}-{number}-{side}");
                if let Some(said) = kill(scenario, &point).await {
                    points.insert(said);
                    killed = true;
                }
            }
            if !killed {
                break;
            }
        }
    }
    println!("{}: {} kinds of points: {points:?}", scenario.task, points.len());
    for call in scenario.calls {
        for side in ["Before", "After"] {
            assert!(points.contains(&format!("{side} {call}")), "no kill {side} {call}, only {points:?}");
        }
    }
}

/// A worker that is to die at `point`, then a clean one, then the books. Answers where it was killed, if it was.
async fn kill(scenario: &Scenario, point: &str) -> Option<String> {
    let scratch = Scratch::new(&format!("processes-{}-{point}", scenario.task));
    let folder = scratch.folder();
    let tables = scenario.server.map(Server::tables);
    if let Some(tables) = &tables {
        name_tables(folder, tables);
    }
    let messages = feed(folder, scenario).await;
    let crashed = worker(folder, scenario.task, point);
    let said = String::from_utf8_lossy(&crashed.stdout).trim().to_owned();
    let killed = crashed.status.signal() == Some(SIGKILL);
    let context = || format!("{} {point} {said}", scenario.task);
    assert!(killed || crashed.status.success(), "{}: {crashed:?}", context());
    let recovered = worker(folder, scenario.recovery, "none");
    assert!(recovered.status.success(), "{}: {recovered:?}", context());
    check(folder, scenario, messages).await.unwrap_or_else(|why| panic!("{}: {why}", context()));
    killed.then_some(said)
}
