//! A file of its own for each test, and short ways to send and receive.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Delivery, Dispatcher, Settled, Settlement, Transport},
};
use hapax_transports::SqliteQueue;
use sqlx::{Connection, SqliteConnection};

/// What has to come comes long before this, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than any test: what comes in spite of it was signalled.
pub const NEVER: Duration = Duration::from_secs(3600);

/// A directory that is removed with the guard, so that the file, its log and its index go together.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("hapax-queue-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    pub fn directory(&self) -> &PathBuf {
        &self.0
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("queue.db")
    }

    /// Another process, as far as the file can tell.
    pub async fn open(&self) -> SqliteQueue {
        SqliteQueue::open(self.file()).await.unwrap()
    }

    pub async fn open_ordered(&self) -> SqliteQueue {
        SqliteQueue::options().ordered_keys(true).open(self.file()).await.unwrap()
    }

    /// A connection beside the queue's own, as another program would have it.
    pub async fn beside(&self) -> SqliteConnection {
        SqliteConnection::connect(&format!("sqlite://{}?mode=rwc", self.file().display())).await.unwrap()
    }

    /// Runs SQL beside the queue.
    pub async fn run(&self, sql: &str) {
        let mut connection = self.beside().await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// One number, asked for beside the queue.
    pub async fn number(&self, sql: &str) -> i64 {
        let mut connection = self.beside().await;
        let number = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }

    /// Lets an hour pass for what is leased or put off.
    pub async fn an_hour_passes(&self) {
        self.run("UPDATE hapax_queue_message SET available_at = available_at - 3600000").await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn endpoint(name: &str) -> EndpointName {
    EndpointName::parse(name).unwrap()
}

pub fn message_type() -> TypeName {
    TypeName::parse("shop.added").unwrap()
}

pub fn envelope(body: &str) -> Envelope {
    Envelope::new(MessageId::random(), message_type(), body.as_bytes().to_vec())
}

pub fn to(name: &str, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint(name)), envelope: Arc::new(envelope) }
}

pub fn published(body: &str) -> Outgoing {
    Outgoing { destination: Destination::Topic(message_type()), envelope: Arc::new(envelope(body)) }
}

/// A message of a partition key.
pub fn keyed(key: &str, body: &str) -> Outgoing {
    to("shop", Envelope { partition_key: Some(PartitionKey::parse(key).unwrap()), ..envelope(body) })
}

pub async fn send(queue: &SqliteQueue, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

/// Sends `bodies` to the endpoint `shop`.
pub async fn send_bodies(queue: &SqliteQueue, bodies: &[&str]) {
    let outgoing: Vec<_> = bodies.iter().map(|body| to("shop", envelope(body))).collect();
    send(queue, &outgoing).await;
}

pub async fn shop(queue: &SqliteQueue) -> Connected {
    queue.connect(&endpoint("shop"), &[]).await.unwrap()
}

pub async fn receive(ends: &Connected, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(PATIENCE, ends.receiver.receive(max)).await.expect("nothing came").unwrap()
}

pub async fn next(ends: &Connected) -> Delivery {
    receive(ends, 1).await.pop().unwrap()
}

/// What is available now: nothing, if a message sent only to tell so is the first that comes.
pub async fn expect_nothing(queue: &SqliteQueue, ends: &Connected) {
    send_bodies(queue, &["the end"]).await;
    let delivery = next(ends).await;
    assert_eq!(body(&delivery), "the end", "something is given that must not be");
    ack(ends, &delivery).await;
}

pub fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(body).collect()
}

pub async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) -> Settled {
    ends.receiver.settle(&delivery.receipt, settlement).await.unwrap()
}

pub async fn ack(ends: &Connected, delivery: &Delivery) {
    assert_eq!(settle(ends, delivery, Settlement::Ack).await, Settled::Done);
}

pub const fn retry(delay: Duration) -> Settlement {
    Settlement::Retry { delay, counts: true }
}

pub fn dead(reason: &str) -> Settlement {
    Settlement::DeadLetter { reason: reason.to_owned() }
}
