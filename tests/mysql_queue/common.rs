//! Short ways to send and receive, and a way into the tables beside the queue.
#![allow(dead_code, clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use hapax::{
    MySql, MySqlQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Delivery, Dispatcher, Settled, Settlement, Transport},
    stores::mysql::MySqlOptions,
    transports::mysql_queue::MySqlQueueOptions,
};
use hapax_tests::MySqlTables;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, postgres::MySqlConnectOptions};
use tokio::time::Instant;

/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any test: what comes in spite of it was signalled.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

pub(crate) fn endpoint(name: &str) -> EndpointName {
    EndpointName::parse(name).unwrap()
}

pub(crate) fn message_type() -> TypeName {
    TypeName::parse("shop.added").unwrap()
}

pub(crate) fn envelope(body: &str) -> Envelope {
    Envelope::new(MessageId::random(), message_type(), body.as_bytes().to_vec())
}

pub(crate) fn to(name: &str, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint(name)), envelope: Arc::new(envelope) }
}

pub(crate) fn published(body: &str) -> Outgoing {
    Outgoing { destination: Destination::Topic(message_type()), envelope: Arc::new(envelope(body)) }
}

/// A message of a partition key.
pub(crate) fn keyed(key: &str, body: &str) -> Outgoing {
    to("shop", Envelope { partition_key: Some(PartitionKey::parse(key).unwrap()), ..envelope(body) })
}

pub(crate) async fn send(queue: &MySqlQueue, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

/// Sends `bodies` to the endpoint `shop`.
pub(crate) async fn send_bodies(queue: &MySqlQueue, bodies: &[&str]) {
    let outgoing: Vec<_> = bodies.iter().map(|body| to("shop", envelope(body))).collect();
    send(queue, &outgoing).await;
}

pub(crate) async fn shop(queue: &MySqlQueue) -> Connected {
    queue.connect(&endpoint("shop"), &[]).await.unwrap()
}

pub(crate) async fn receive(ends: &Connected, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(PATIENCE, ends.receiver.receive(max)).await.expect("nothing came").unwrap()
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    receive(ends, 1).await.pop().unwrap()
}

/// What is available now: nothing, if a message sent only to tell so is the first that comes.
pub(crate) async fn expect_nothing(queue: &MySqlQueue, ends: &Connected) {
    send_bodies(queue, &["the end"]).await;
    let delivery = next(ends).await;
    assert_eq!(body(&delivery), "the end", "something is given that must not be");
    ack(ends, &delivery).await;
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub(crate) fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(body).collect()
}

pub(crate) async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) -> Settled {
    ends.receiver.settle(&delivery.receipt, settlement).await.unwrap()
}

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    assert_eq!(settle(ends, delivery, Settlement::Ack).await, Settled::Done);
}

pub(crate) const fn retry(delay: Duration) -> Settlement {
    Settlement::Retry { delay, counts: true }
}

pub(crate) fn dead(reason: &str) -> Settlement {
    Settlement::DeadLetter { reason: reason.to_owned() }
}

/// Queues that are opened by an account of their own, so that the server can be told to end their connections.
pub(crate) async fn open_named(tables: &MySqlTables, name: &str, options: MySqlQueueOptions) -> MySqlQueue {
    let create = format!("CREATE OR REPLACE USER {name}; GRANT ALL ON *.* TO {name}");
    run(&mut beside(tables).await, &create).await;
    options.migrate(true).open_database(by(tables, name)).await.unwrap()
}

/// How an account reaches the tables.
pub(crate) fn by(tables: &MySqlTables, account: &str) -> MySqlOptions {
    let place: MySqlConnectOptions = tables.url().parse().unwrap();
    MySql::with(place.username(account)).table_prefix(tables.prefix())
}

/// What is only there for one test goes with it.
pub(crate) async fn forget(tables: &MySqlTables, name: &str) {
    run(&mut beside(tables).await, &format!("DROP USER {name}")).await;
}

pub(crate) async fn ordered(tables: &MySqlTables) -> MySqlQueue {
    tables.open_queue(MySqlQueue::options().ordered_keys(true)).await
}

/// A connection beside the queue's own, as another program would have it. `hapax.` stands for the tables' prefix.
pub(crate) struct Beside {
    pub(crate) connection: MySqlConnection,
    prefix: String,
}

pub(crate) async fn beside(tables: &MySqlTables) -> Beside {
    Beside { connection: tables.connection().await, prefix: tables.prefix().to_owned() }
}

pub(crate) async fn run(beside: &mut Beside, sql: &str) {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.prefix));
    sqlx::raw_sql(sql).execute(&mut beside.connection).await.unwrap();
}

pub(crate) async fn number(beside: &mut Beside, sql: &str) -> i64 {
    let sql = AssertSqlSafe(sql.replace("hapax.", &beside.prefix));
    sqlx::query_scalar(sql).fetch_one(&mut beside.connection).await.unwrap()
}

/// Lets an hour pass for what is leased or put off.
pub(crate) async fn an_hour_passes(tables: &MySqlTables) {
    let sql = "UPDATE hapax.queue_message SET due_at = due_at - 3600000, leased_until = leased_until - 3600000";
    run(&mut beside(tables).await, sql).await;
}

/// Asks the server until `sql` counts something.
pub(crate) async fn wait_for(connection: &mut Beside, sql: &str) {
    let deadline = Instant::now() + PATIENCE;
    while number(connection, sql).await == 0 {
        assert!(Instant::now() < deadline, "it never comes to this: {sql}");
        tokio::task::yield_now().await;
    }
}

/// Connections of this name that are held up. What InnoDB tells of its locks it remembers for as long as somebody asks.
pub(crate) fn waits(name: &str) -> String {
    format!(
        "FROM information_schema.processlist AS p WHERE p.user = '{name}' AND p.command <> 'Sleep' AND p.time_ms > 200"
    )
}

/// Waits until a connection of this name waits for a lock, and ends it.
pub(crate) async fn cut_while_it_waits(connection: &mut Beside, name: &str) {
    let waits = waits(name);
    wait_for(connection, &format!("SELECT COUNT(*) {waits}")).await;
    let id = number(connection, &format!("SELECT p.id {waits} LIMIT 1")).await;
    run(connection, &format!("KILL {id}")).await;
    let gone = format!("SELECT COUNT(*) = 0 FROM information_schema.processlist WHERE id = {id}");
    wait_for(connection, &gone).await;
}
