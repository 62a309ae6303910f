//! Real processes and real kills: a worker sends itself SIGKILL before or after its n-th port call, for every n; then a
//! clean worker takes over; then the books are made from the file alone.
//!
//! Unlike a dropped future, a killed process takes its connections, its transactions and its queues in memory with it.
#![allow(clippy::unwrap_used)]

#[path = "process/books.rs"]
mod books;
#[path = "process/claimed.rs"]
mod claimed;
#[path = "process/crew.rs"]
mod crew;
#[path = "process/recurrences.rs"]
mod recurrences;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/strikes.rs"]
mod strikes;
#[path = "process/tally.rs"]
mod tally;

use std::{collections::BTreeSet, os::unix::process::ExitStatusExt};

use books::{SIGKILL, Scenario, Server, check, feed, name_tables, step, steps, worker};
use hapax::{
    Sqlite,
    deliver::Recoverability,
    ports::{DeadLetters, Page},
};
use hapax_tests::Scratch;
use stored::Stored;
use tally::Step;

/// A task that asks for more than this does not end.
const CALLS_MAX: u32 = 300;
/// Longer than it takes to handle a step on a busy machine: what is due by then is put into no schedule.
const DELAY_MS: u64 = 500;

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
async fn a_kill_at_any_call_of_the_schedule_is_made_good() {
    kill_the_departures(None).await;
}

#[tokio::test]
async fn a_kill_at_any_call_of_the_schedule_is_made_good_on_postgres() {
    kill_the_departures(Some(Server::Postgres)).await;
}

#[tokio::test]
async fn a_kill_at_any_call_of_the_schedule_is_made_good_on_mysql() {
    kill_the_departures(Some(Server::MySql)).await;
}

/// The transport holds nothing back: notes and timeouts wait in the schedule, and are taken and sent from there.
async fn kill_the_departures(server: Option<Server>) {
    let steps = steps().into_iter().map(|step| Step { delay_ms: DELAY_MS, ..step }).collect();
    let calls = &["put", "take", "dispatch", "done"];
    let scenario = Scenario { task: "depart", recovery: "depart", steps, server, calls, ..Scenario::work() };
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

/// Goal: a message that kills its process is poison in the end, and no other is, with the settings that a user gets. Method: processes
/// that die of it one after the other, among messages of other sagas which they hold beside it.
#[tokio::test]
async fn a_message_that_kills_its_process_is_set_aside_and_no_other() {
    const SIGABRT: i32 = 6;
    let scratch = Scratch::new("processes-strikes");
    let names: Vec<String> = (0..40).map(|n| if n == 20 { "bad".into() } else { format!("good-{n}") }).collect();
    strikes::send(scratch.folder(), &names).await;
    let mut killed = 0;
    loop {
        let process = worker(scratch.folder(), "strike", "none");
        if process.status.success() {
            break;
        }
        assert_eq!(process.status.signal(), Some(SIGABRT), "{process:?}");
        killed += 1;
        assert!(killed < 50, "it never ends");
    }
    assert_eq!(killed, Recoverability::default().poison_above);
    let store = Sqlite::open(scratch.folder().join("store.db")).await.unwrap();
    let letters = store.list(&strikes::STRUCK.parse().unwrap(), &Page::first(100)).await.unwrap();
    let told: Vec<_> = letters.iter().map(|letter| (letter.envelope.message_id.to_string(), &*letter.reason)).collect();
    assert!(matches!(&*told, [(id, reason)] if id == "bad" && reason.starts_with("poison")), "{told:?}");
    store.close().await;
    let mut handled = Stored::open(scratch.folder()).await.handled(strikes::STRUCK).await.concat();
    handled.sort();
    let mut good: Vec<String> = names.into_iter().filter(|name| name != "bad").collect();
    good.sort();
    assert_eq!(handled, good);
}

async fn kill_everywhere(scenario: &Scenario) {
    // The calls of a whole endpoint come in any order; each is counted by its name then.
    let is_whole = ["stop", "depart"].contains(&scenario.task);
    let counted = if is_whole { scenario.calls } else { &["any"] };
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
    if scenario.task == "depart" {
        let mut stored = Stored::open(folder).await;
        stored.end_leases().await;
        stored.close().await;
    }
    let recovered = worker(folder, scenario.recovery, "none");
    assert!(recovered.status.success(), "{}: {recovered:?}", context());
    check(folder, scenario, messages).await.unwrap_or_else(|why| panic!("{}: {why}", context()));
    killed.then_some(said)
}
