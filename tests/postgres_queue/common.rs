//! Short ways to send and receive, and a way into the tables beside the queue.
#![allow(dead_code, clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use hapax::{
    Postgres, PostgresQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Delivery, Dispatcher, Settled, Settlement, Transport},
    transports::postgres_queue::PostgresQueueOptions,
};
use hapax_tests::PostgresSchema;
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};
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

pub(crate) async fn send(queue: &PostgresQueue, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

/// Sends `bodies` to the endpoint `shop`.
pub(crate) async fn send_bodies(queue: &PostgresQueue, bodies: &[&str]) {
    let outgoing: Vec<_> = bodies.iter().map(|body| to("shop", envelope(body))).collect();
    send(queue, &outgoing).await;
}

pub(crate) async fn shop(queue: &PostgresQueue) -> Connected {
    queue.connect(&endpoint("shop"), &[]).await.unwrap()
}

pub(crate) async fn receive(ends: &Connected, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(PATIENCE, ends.receiver.receive(max)).await.expect("nothing came").unwrap()
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    receive(ends, 1).await.pop().unwrap()
}

/// What is available now: nothing, if a message sent only to tell so is the first that comes.
pub(crate) async fn expect_nothing(queue: &PostgresQueue, ends: &Connected) {
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

/// Queues whose connections have a name, so that the server can be told to end them.
pub(crate) async fn open_named(schema: &PostgresSchema, name: &str, options: PostgresQueueOptions) -> PostgresQueue {
    let place: PgConnectOptions = schema.url().parse().unwrap();
    let database = Postgres::with(place.application_name(name)).schema(schema.name());
    options.migrate(true).open_database(database).await.unwrap()
}

pub(crate) async fn ordered(schema: &PostgresSchema) -> PostgresQueue {
    schema.open_queue(PostgresQueue::options().ordered_keys(true)).await
}

/// A connection beside the queue's own, as another program would have it, with the schema as its own.
pub(crate) async fn beside(schema: &PostgresSchema) -> PgConnection {
    let mut connection = PgConnection::connect(schema.url()).await.unwrap();
    run(&mut connection, &format!("SET search_path = {}", schema.name())).await;
    connection
}

pub(crate) async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

pub(crate) async fn number(connection: &mut PgConnection, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(connection).await.unwrap()
}

/// Lets an hour pass for what is leased or put off.
pub(crate) async fn an_hour_passes(schema: &PostgresSchema) {
    let sql = "UPDATE queue_message SET due_at = due_at - 3600000, leased_until = leased_until - 3600000";
    run(&mut beside(schema).await, sql).await;
}

/// Asks the server until `sql` counts something.
pub(crate) async fn wait_for(connection: &mut PgConnection, sql: &str) {
    let deadline = Instant::now() + PATIENCE;
    while number(connection, sql).await == 0 {
        assert!(Instant::now() < deadline, "it never comes to this: {sql}");
        tokio::task::yield_now().await;
    }
}

/// Waits until a connection of this name waits for a lock, and ends it.
pub(crate) async fn cut_while_it_waits(connection: &mut PgConnection, name: &str) {
    let waits = format!("application_name = '{name}' AND wait_event_type = 'Lock'");
    wait_for(connection, &format!("SELECT count(*) FROM pg_stat_activity WHERE {waits}")).await;
    let end = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {waits}");
    assert_eq!(number(connection, &end).await, 1);
    let gone = format!("SELECT (count(*) = 0)::int::bigint FROM pg_stat_activity WHERE {waits}");
    wait_for(connection, &gone).await;
}
