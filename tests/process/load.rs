//! Messages for workers that go on, and the books of them, from the files alone.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{path::Path, sync::Arc};

use hapax::{
    Message, MessageId, Sqlite, SqliteQueue,
    codec::FRAME_BYTES,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, Transport},
};
use serde::Deserialize;
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    crew::until,
    tally::{ENDPOINT, Step},
};

/// Sagas that the steps are spread over.
const TALLIES: usize = 5;
/// Notes of each step.
const NOTES: u8 = 2;

/// What was sent to the workers on a folder.
pub(crate) struct Load {
    queue: SqliteQueue,
    endpoint: EndpointName,
    dispatcher: Arc<dyn Dispatcher>,
    sent: Vec<Step>,
}

impl Load {
    /// For the files in `folder`. With the queue in a file of its own if `apart`.
    pub(crate) async fn new(folder: &Path, apart: bool) -> Self {
        let queue = if apart {
            SqliteQueue::open(folder.join("queue.db")).await.unwrap()
        } else {
            SqliteQueue::on(&Sqlite::open(folder.join("store.db")).await.unwrap()).await.unwrap()
        };
        let endpoint: EndpointName = ENDPOINT.parse().unwrap();
        let dispatcher = queue.connect(&endpoint, &[]).await.unwrap().dispatcher;
        Self { queue, endpoint, dispatcher, sent: Vec::new() }
    }

    /// Sends `count` more steps, each of them twice.
    pub(crate) async fn send(&mut self, count: usize, delay_ms: u64) {
        for result in self.try_send(count, delay_ms).await {
            result.unwrap();
        }
    }

    /// Sends `count` more steps, each of them twice, if there is room for them. They count as sent.
    pub(crate) async fn try_send(&mut self, count: usize, delay_ms: u64) -> Vec<Result<(), DispatchError>> {
        let first = self.sent.len();
        self.sent.extend((first..first + count).map(|number| Step {
            tally: format!("t{}", number % TALLIES),
            step: number.to_string(),
            notes: NOTES,
            last: false,
            delay_ms,
        }));
        self.send_again(first).await
    }

    /// Sends all steps from number `first` on once more, each of them twice.
    pub(crate) async fn send_again(&self, first: usize) -> Vec<Result<(), DispatchError>> {
        let outgoing = self.sent[first..].iter().flat_map(|step| {
            let id = MessageId::parse(&format!("step-{}", step.step)).unwrap();
            let body = serde_json::to_vec(step).unwrap();
            let envelope = Arc::new(Envelope::new(id, Step::TYPE.parse().unwrap(), body));
            let one = Outgoing { destination: Destination::Endpoint(self.endpoint.clone()), envelope };
            [one.clone(), one]
        });
        self.dispatcher.dispatch(&outgoing.collect::<Vec<_>>()).await
    }

    /// Messages that wait, those that are not due included.
    pub(crate) async fn backlog(&self) -> u64 {
        self.queue.backlog(&self.endpoint).await.unwrap()
    }

    /// Waits until no more than `left` messages wait.
    pub(crate) async fn shrinks_to(&self, left: u64) {
        until(&format!("only {left} messages are left"), async || self.backlog().await <= left).await;
    }

    /// Waits until all is done: no message waits, and nothing waits to be sent.
    pub(crate) async fn is_done(&self, folder: &Path) {
        self.shrinks_to(0).await;
        let mut file = open(folder).await;
        let pending = "hapax_entity WHERE pending_since IS NOT NULL";
        until("the outboxes are empty", async || count(&mut file, pending).await == 0).await;
        self.shrinks_to(0).await;
    }

    /// The books: every step, note and timeout handled once, as many dedup entries, nothing left, no dead letter.
    pub(crate) async fn books(&self, folder: &Path) -> Result<(), String> {
        let mut file = open(folder).await;
        let mut steps: Vec<String> = self.sent.iter().map(|step| step.step.clone()).collect();
        steps.extend(self.sent.iter().filter(|step| step.delay_ms > 0).map(Step::ring));
        let notes: Vec<String> = self.sent.iter().flat_map(Step::notes).collect();
        let messages = steps.len() + notes.len();
        same("steps", handled(&mut file, "tally").await, steps)?;
        same("notes", handled(&mut file, "notes").await, notes)?;
        equal("dedup entries", count(&mut file, "hapax_dedup").await, messages)?;
        equal("outboxes", count(&mut file, "hapax_entity WHERE pending_since IS NOT NULL").await, 0)?;
        equal("dead letters", count(&mut file, "hapax_dead_letter").await, 0)?;
        let left = usize::try_from(self.backlog().await).unwrap_or(usize::MAX);
        equal("messages left", left, 0)
    }
}

pub(crate) async fn open(folder: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(folder.join("store.db"))).await.unwrap()
}

pub(crate) async fn count(file: &mut SqliteConnection, what: &str) -> usize {
    usize::try_from(number(file, &format!("SELECT count(*) FROM {what}")).await).unwrap()
}

pub(crate) async fn number(file: &mut SqliteConnection, sql: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(file).await.unwrap()
}

/// What all sagas of a name have written down.
async fn handled(file: &mut SqliteConnection, saga: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct State {
        handled: Vec<String>,
    }
    const STATES: &str =
        "SELECT e.state FROM hapax_entity AS e JOIN hapax_scope AS s ON s.id = e.scope WHERE s.saga = ?";
    let rows = sqlx::query(STATES).bind(saga).fetch_all(file).await.unwrap();
    let state = |row| -> State { serde_json::from_slice(&Row::get::<Vec<u8>, _>(row, 0)[FRAME_BYTES..]).unwrap() };
    rows.iter().flat_map(|row| state(row).handled).collect()
}

fn equal(what: &str, found: usize, expected: usize) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found} instead of {expected}")) }
}

/// The same names, each as often.
fn same(what: &str, mut found: Vec<String>, mut expected: Vec<String>) -> Result<(), String> {
    found.sort();
    expected.sort();
    if found == expected {
        return Ok(());
    }
    let lost: Vec<_> = expected.iter().filter(|name| !found.contains(name)).collect();
    let twice: Vec<_> = found.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
    Err(format!("{what}: {} instead of {}, lost {lost:?}, twice {twice:?}", found.len(), expected.len()))
}
