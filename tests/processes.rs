//! Real processes and real kills: a worker sends itself SIGKILL before or after its n-th port call, for every n; then a
//! clean worker takes over; then the books are made from the file alone.
//!
//! Unlike a dropped future, a killed process takes its connections, its transactions and its queues in memory with it.
#![allow(clippy::unwrap_used)]

#[path = "process/tally.rs"]
mod tally;

use std::{
    collections::BTreeSet,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use hapax::{
    Message, MessageId, Sqlite, SqliteQueue,
    codec::FRAME_BYTES,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::Transport,
};
use hapax_tests::Scratch;
use serde::Deserialize;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tally::{ENDPOINT, Step};

const SIGKILL: i32 = 9;
/// A task that asks for more than this does not end.
const CALLS_MAX: u32 = 300;

/// What a crashed worker is to find, and what is to be left when all is done.
struct Scenario {
    task: &'static str,
    /// What a clean worker does after the crash.
    recovery: &'static str,
    steps: Vec<Step>,
    /// A clean worker handles everything first.
    handled_before: bool,
    apart: bool,
    /// Each message is sent twice.
    twice: bool,
    /// Calls that must have been crashed on both sides.
    calls: &'static [&'static str],
}

fn step(name: &str, notes: u8, last: bool) -> Step {
    Step { tally: "t".into(), step: name.into(), notes, last }
}

fn steps() -> Vec<Step> {
    vec![step("a", 2, false), step("b", 0, false), step("c", 1, false)]
}

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario {
        task: "work",
        recovery: "work",
        steps: steps(),
        handled_before: false,
        apart: false,
        twice: true,
        calls,
    };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_is_made_good_with_the_queue_in_a_file_of_its_own() {
    let calls = &["receive", "load", "save", "dispatch", "finish", "settle"];
    let scenario = Scenario {
        task: "work",
        recovery: "work",
        steps: steps(),
        handled_before: false,
        apart: true,
        twice: true,
        calls,
    };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_an_endpoint_that_is_stopping_is_made_good() {
    let calls = &["connect", "receive", "load", "save", "settle"];
    let scenario = Scenario {
        task: "stop",
        recovery: "work",
        steps: steps(),
        handled_before: false,
        apart: false,
        twice: true,
        calls,
    };
    kill_everywhere(&scenario).await;
}

#[tokio::test]
async fn a_kill_at_any_port_call_of_the_upkeep_is_made_good() {
    let mut steps = steps();
    steps.push(step("d", 0, true));
    let scenario = Scenario {
        task: "upkeep",
        recovery: "upkeep",
        steps,
        handled_before: true,
        apart: false,
        twice: true,
        calls: &["evict", "purge"],
    };
    kill_everywhere(&scenario).await;
}

/// A crash after the save leaves an entry; its message is taken away, so that the sweeper alone can finish it.
#[tokio::test]
async fn a_kill_at_any_port_call_of_the_sweeper_is_made_good() {
    let calls = &["pending", "load", "dispatch", "finish"];
    let scenario = Scenario {
        task: "sweep",
        recovery: "sweep",
        steps: steps(),
        handled_before: false,
        apart: false,
        twice: true,
        calls,
    };
    kill_everywhere(&scenario).await;
}

/// The control: were the books blind, this would pass too.
#[tokio::test]
async fn a_worker_that_acks_before_it_has_handled_is_found_out_by_the_books() {
    let scenario = Scenario {
        task: "ack-early",
        recovery: "work",
        steps: steps(),
        handled_before: false,
        apart: false,
        twice: false,
        calls: &[],
    };
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

/// Runs a worker to its end.
fn worker(folder: &Path, task: &str, point: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hapax-test-worker")).arg(folder).args([task, point]).output().unwrap()
}

/// Fills the queue; answers how many messages there are.
async fn feed(folder: &Path, scenario: &Scenario) -> usize {
    let store = Sqlite::open(folder.join("store.db")).await.unwrap();
    let queue = if scenario.apart {
        SqliteQueue::open(folder.join("queue.db")).await.unwrap()
    } else {
        SqliteQueue::on(&store).await.unwrap()
    };
    let endpoint: EndpointName = ENDPOINT.parse().unwrap();
    let connected = queue.connect(&endpoint, &[]).await.unwrap();
    let mut outgoing = Vec::new();
    for step in &scenario.steps {
        let id = MessageId::parse(&format!("step-{}", step.step)).unwrap();
        let body = serde_json::to_vec(step).unwrap();
        let envelope = Arc::new(Envelope::new(id, Step::TYPE.parse().unwrap(), body));
        let one = Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope };
        outgoing.extend(std::iter::repeat_n(one, if scenario.twice { 2 } else { 1 }));
    }
    for result in connected.dispatcher.dispatch(&outgoing).await {
        result.unwrap();
    }
    store.close().await;
    if scenario.handled_before {
        assert!(worker(folder, "work", "none").status.success());
    }
    if scenario.task == "sweep" {
        assert!(worker(folder, "leave", "none").status.success());
    }
    scenario.steps.len()
}

/// What a saga has written down.
#[derive(Debug, Deserialize)]
struct Handled {
    handled: Vec<String>,
}

/// The books, from the file alone: every step and every note handled once, nothing left in the outboxes, as many dedup
/// entries as messages, no dead letter, nothing left in the queue.
async fn check(folder: &Path, scenario: &Scenario, messages: usize) -> Result<(), String> {
    let mut file = open(&folder.join("store.db")).await;
    let steps: Vec<String> = scenario.steps.iter().map(|step| step.step.clone()).collect();
    let notes_of = |step: &Step| (0..step.notes).map(|number| format!("{}/{number}", step.step)).collect::<Vec<_>>();
    let notes: Vec<String> = scenario.steps.iter().flat_map(notes_of).collect();
    let upkeep = scenario.task == "upkeep";
    let tally = handled(&mut file, "tally").await;
    if upkeep {
        equal("tombstones", tally.is_some(), false)?; // Completed, and purged.
    } else {
        equal("steps", sorted(tally.unwrap_or_default()), sorted(steps))?;
    }
    equal("notes", sorted(handled(&mut file, "notes").await.unwrap_or_default()), sorted(notes.clone()))?;
    let dedup = if upkeep { 0 } else { messages + notes.len() };
    equal("dedup entries", count(&mut file, "hapax_dedup").await, dedup as i64)?;
    equal("pending", count(&mut file, "hapax_entity WHERE pending_since IS NOT NULL").await, 0)?;
    equal("dead letters", count(&mut file, "hapax_dead_letter").await, 0)?;
    file.close().await.unwrap();
    let queue = if scenario.apart { folder.join("queue.db") } else { folder.join("store.db") };
    let queue = SqliteQueue::open(queue).await.unwrap();
    equal("backlog", queue.backlog(&ENDPOINT.parse().unwrap()).await.unwrap(), 0)
}

async fn open(path: &PathBuf) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await.unwrap()
}

async fn handled(file: &mut SqliteConnection, saga: &str) -> Option<Vec<String>> {
    const STATE: &str =
        "SELECT e.state FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope WHERE s.saga = ?";
    let row = sqlx::query(STATE).bind(saga).fetch_optional(file).await.unwrap()?;
    let framed: Vec<u8> = row.get(0);
    let state: Handled = serde_json::from_slice(&framed[FRAME_BYTES..]).unwrap();
    Some(state.handled)
}

async fn count(file: &mut SqliteConnection, what: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {what}"));
    sqlx::query_scalar(sql).fetch_one(file).await.unwrap()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}
