//! Workers that are run as processes, what they are given, and the books of what they have left.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use hapax::{
    Message, MessageId, Sqlite, SqliteQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::Transport,
};
use hapax_tests::{MySqlTables, PostgresSchema};

use crate::{
    stored::{Stored, name_server},
    tally::{ENDPOINT, Step},
};

pub(crate) const SIGKILL: i32 = 9;
/// What a crashed worker is to find, and what is to be left when all is done.
pub(crate) struct Scenario {
    pub(crate) task: &'static str,
    /// What a clean worker does after the crash.
    pub(crate) recovery: &'static str,
    pub(crate) steps: Vec<Step>,
    /// A clean worker handles everything first.
    pub(crate) handled_before: bool,
    pub(crate) apart: bool,
    /// The store is on the tests' server of this kind; the queue has a file of its own.
    pub(crate) server: Option<Server>,
    /// Each message is sent twice.
    pub(crate) twice: bool,
    /// Calls that must have been crashed on both sides.
    pub(crate) calls: &'static [&'static str],
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Postgres,
    MySql,
}

/// Tables of one run on a server, which go with it.
pub(crate) enum Tables {
    Postgres(PostgresSchema),
    MySql(MySqlTables),
}

impl Server {
    pub(crate) fn tables(self) -> Tables {
        match self {
            Self::Postgres => Tables::Postgres(PostgresSchema::new()),
            Self::MySql => Tables::MySql(MySqlTables::new()),
        }
    }
}

impl Scenario {
    /// The usual one: three steps, each sent twice, in the store's own file, handled by a worker.
    pub(crate) fn work() -> Self {
        let (task, recovery) = ("work", "work");
        Self {
            task,
            recovery,
            steps: steps(),
            handled_before: false,
            apart: false,
            twice: true,
            server: None,
            calls: &[],
        }
    }
}

pub(crate) fn step(name: &str, notes: u8, last: bool) -> Step {
    Step { tally: "t".into(), step: name.into(), notes, last, delay_ms: 0 }
}

pub(crate) fn steps() -> Vec<Step> {
    vec![step("a", 2, false), step("b", 0, false), step("c", 1, false)]
}

/// Runs a worker to its end.
pub(crate) fn worker(folder: &Path, task: &str, point: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hapax-test-worker")).arg(folder).args([task, point]).output().unwrap()
}

/// Fills the queue; answers how many messages there are.
pub(crate) async fn feed(folder: &Path, scenario: &Scenario) -> usize {
    let store =
        if scenario.server.is_some() { None } else { Some(Sqlite::open(folder.join("store.db")).await.unwrap()) };
    let queue = match &store {
        Some(store) if !scenario.apart => SqliteQueue::on(store).await.unwrap(),
        _ => SqliteQueue::open(folder.join("queue.db")).await.unwrap(),
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
    if let Some(store) = store {
        store.close().await;
    }
    if scenario.handled_before {
        let worked = worker(folder, "work", "none");
        assert!(worked.status.success(), "{worked:?}");
    }
    if scenario.task == "sweep" {
        let left = worker(folder, "leave", "none");
        assert!(left.status.success(), "{left:?}");
    }
    scenario.steps.len()
}

/// Tells workers in `folder` to keep their store in `tables`.
pub(crate) fn name_tables(folder: &Path, tables: &Tables) {
    match tables {
        Tables::Postgres(schema) => name_server(folder, schema.url(), schema.name()),
        Tables::MySql(tables) => name_server(folder, tables.url(), tables.prefix()),
    }
}

/// The books, from what is stored alone: every step and every note handled once, nothing left in the outboxes, as many dedup
/// entries as messages, no dead letter, nothing left in the queue.
pub(crate) async fn check(folder: &Path, scenario: &Scenario, messages: usize) -> Result<(), String> {
    let mut stored = Stored::open(folder).await;
    let rings: Vec<String> = scenario.steps.iter().filter(|step| step.delay_ms > 0).map(Step::ring).collect();
    let dedup = messages + rings.len();
    let steps: Vec<String> = scenario.steps.iter().map(|step| step.step.clone()).chain(rings).collect();
    let notes: Vec<String> = scenario.steps.iter().flat_map(Step::notes).collect();
    let upkeep = scenario.task == "upkeep";
    let tally = stored.handled("tally").await;
    if upkeep {
        equal("tombstones", tally.len(), 0)?; // Completed, and purged.
    } else {
        equal("steps", sorted(tally.concat()), sorted(steps))?;
    }
    equal("notes", sorted(stored.handled("notes").await.concat()), sorted(notes.clone()))?;
    let dedup = if upkeep { 0 } else { dedup + notes.len() };
    equal("dedup entries", stored.count("dedup").await, dedup as i64)?;
    equal("pending", stored.count("entity WHERE pending_since IS NOT NULL").await, 0)?;
    equal("dead letters", stored.count("dead_letter").await, 0)?;
    stored.close().await;
    let queue =
        if scenario.apart || scenario.server.is_some() { folder.join("queue.db") } else { folder.join("store.db") };
    let queue = SqliteQueue::open(queue).await.unwrap();
    equal("backlog", queue.backlog(&ENDPOINT.parse().unwrap()).await.unwrap(), 0)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}
