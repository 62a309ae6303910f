//! Messages for workers that go on, and the books of them, from what is stored alone.
#![allow(dead_code)] // Each test program uses a part of it.

use std::{path::Path, sync::Arc};

use hapax::{
    Message, MessageId, MySql, MySqlQueue, PostgresQueue, Sqlite, SqliteQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    ports::{DispatchError, Dispatcher, StoreError, Transport},
};
use hapax_tests::{MySqlTables, PostgresSchema};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    crew::until,
    stored::Stored,
    tally::{ENDPOINT, Step},
};

/// Sagas that the steps are spread over.
const TALLIES: usize = 5;
/// Entities in whose outboxes something waits.
const PENDING: &str = "entity WHERE pending_since IS NOT NULL";
/// Notes of each step.
const NOTES: u8 = 2;

/// Where they are sent to.
enum Queue {
    Sqlite(SqliteQueue),
    Postgres(PostgresQueue),
    MySql(MySqlQueue),
}

impl Queue {
    async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(queue) => queue.backlog(endpoint).await,
            Self::Postgres(queue) => queue.backlog(endpoint).await,
            Self::MySql(queue) => queue.backlog(endpoint).await,
        }
    }
}

/// What was sent to the workers on a folder.
pub(crate) struct Load {
    queue: Queue,
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
        Self { queue: Queue::Sqlite(queue), endpoint, dispatcher, sent: Vec::new() }
    }

    /// For workers whose store and queue are in `schema`.
    pub(crate) async fn on(schema: &PostgresSchema) -> Self {
        let queue = schema.open_queue(PostgresQueue::options()).await;
        let endpoint: EndpointName = ENDPOINT.parse().unwrap();
        let dispatcher = queue.connect(&endpoint, &[]).await.unwrap().dispatcher;
        Self { queue: Queue::Postgres(queue), endpoint, dispatcher, sent: Vec::new() }
    }

    /// For workers whose store and queue are in `tables`.
    pub(crate) async fn on_mysql(tables: &MySqlTables) -> Self {
        let database = MySql::options(tables.url()).table_prefix(tables.prefix());
        let queue = MySqlQueue::options().migrate(true).open_database(database).await.unwrap();
        let endpoint: EndpointName = ENDPOINT.parse().unwrap();
        let dispatcher = queue.connect(&endpoint, &[]).await.unwrap().dispatcher;
        Self { queue: Queue::MySql(queue), endpoint, dispatcher, sent: Vec::new() }
    }

    /// Sends `count` more steps, each of them twice, until all of them are taken: a server may be away, and what was not
    /// confirmed may have been taken.
    pub(crate) async fn send_stubbornly(&mut self, count: usize) {
        let first = self.sent.len();
        let mut results = self.try_send(count, 0).await;
        until("all is sent", async || {
            let sent = results.iter().all(Result::is_ok);
            if !sent {
                results = self.send_again(first).await;
            }
            sent
        })
        .await;
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

    /// Waits until no more than `left` messages wait. A server may be away meanwhile.
    pub(crate) async fn shrinks_to(&self, left: u64) {
        let enough = async || self.queue.backlog(&self.endpoint).await.is_ok_and(|backlog| backlog <= left);
        until(&format!("only {left} messages are left"), enough).await;
    }

    /// Waits until all is done: no message waits, and nothing waits to be sent.
    pub(crate) async fn is_done(&self, folder: &Path) {
        self.shrinks_to(0).await;
        let mut stored = Stored::open(folder).await;
        until("the outboxes are empty", async || stored.count(PENDING).await == 0).await;
        self.shrinks_to(0).await;
    }

    /// The books: every step, note and timeout handled once, as many dedup entries, nothing left, no dead letter.
    pub(crate) async fn books(&self, folder: &Path) -> Result<(), String> {
        let mut stored = Stored::open(folder).await;
        let mut steps: Vec<String> = self.sent.iter().map(|step| step.step.clone()).collect();
        steps.extend(self.sent.iter().filter(|step| step.delay_ms > 0).map(Step::ring));
        let notes: Vec<String> = self.sent.iter().flat_map(Step::notes).collect();
        let messages = steps.len() + notes.len();
        same("steps", stored.handled("tally").await.concat(), steps)?;
        same("notes", stored.handled("notes").await.concat(), notes)?;
        equal("dedup entries", stored.count("dedup").await, messages as i64)?;
        equal("outboxes", stored.count(PENDING).await, 0)?;
        equal("dead letters", stored.count("dead_letter").await, 0)?;
        equal("messages left", i64::try_from(self.backlog().await).unwrap_or(i64::MAX), 0)
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

fn equal(what: &str, found: i64, expected: i64) -> Result<(), String> {
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
