//! Short ways to send and receive.
#![allow(dead_code, clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use hapax::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Delivery, Dispatcher, Settled, Settlement, Transport},
    time::Timestamp,
};
use tokio::time::Instant;

use super::rig::*;

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

pub(crate) async fn send(queue: &Queue, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

/// Sends `bodies` to the endpoint `shop`.
pub(crate) async fn send_bodies(queue: &Queue, bodies: &[&str]) {
    let outgoing: Vec<_> = bodies.iter().map(|body| to("shop", envelope(body))).collect();
    send(queue, &outgoing).await;
}

pub(crate) async fn shop(queue: &Queue) -> Connected {
    queue.connect(&endpoint("shop"), &[]).await.unwrap()
}

pub(crate) async fn receive(ends: &Connected, max: usize) -> Vec<Delivery> {
    tokio::time::timeout(PATIENCE, ends.receiver.receive(max)).await.expect("nothing came").unwrap()
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    receive(ends, 1).await.pop().unwrap()
}

/// What is available now: nothing, if a message sent only to tell so is the first that comes.
pub(crate) async fn expect_nothing(queue: &Queue, ends: &Connected) {
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

pub(crate) async fn open(tables: &Tables) -> Queue {
    tables.open_queue(options()).await
}

pub(crate) async fn ordered(tables: &Tables) -> Queue {
    tables.open_queue(options().ordered_keys(true)).await
}

/// Lets an hour pass for what is leased or put off.
pub(crate) async fn an_hour_passes(tables: &Tables) {
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

/// Whatever `there` sends comes `here`, where nobody looks for it.
pub(crate) async fn comes_without_a_look(here: &Queue, there: &Queue) {
    let ends = here.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    let soon = || Timestamp::now().after(Duration::from_millis(300));
    for round in 0..4 {
        for outgoing in [
            to("shop", envelope("sent")),
            published("published"),
            to("shop", Envelope { due: Some(soon()), ..envelope("due") }),
        ] {
            let (delivery, ()) = tokio::join!(next(&ends), async {
                // Only when the receiver has looked and found nothing.
                for _ in 0..3 {
                    here.backlog(&endpoint("shop")).await.unwrap();
                }
                send(there, std::slice::from_ref(&outgoing)).await;
            });
            assert_eq!(delivery.envelope, outgoing.envelope, "round {round}");
            assert!(outgoing.envelope.due.is_none_or(|due| Timestamp::now().after(Duration::from_millis(20)) >= due));
            ack(&ends, &delivery).await;
        }
    }
}

/// What `there` sends comes `here`, where nobody is told of it.
pub(crate) async fn comes_by_a_look(here: &Queue, there: &Queue) {
    let ends = shop(here).await;
    for round in 0..5 {
        let (delivery, ()) = tokio::join!(next(&ends), send_bodies(there, &["a"]));
        assert_eq!(body(&delivery), "a", "round {round}");
        ack(&ends, &delivery).await;
    }
}

/// All that a queue does with its tables, so that whatever right it lacks is missed.
pub(crate) async fn does_everything(queue: &Queue) {
    let ends = queue.connect(&endpoint("shop"), &[message_type()]).await.unwrap();
    send(queue, &[keyed("k", "a"), keyed("k", "b"), keyed("j", "c"), published("d")]).await;
    let settlements = [Settlement::Ack, dead("no"), retry(Duration::ZERO), Settlement::Ack, Settlement::Ack];
    for settlement in settlements {
        let delivery = next(&ends).await;
        ends.receiver.extend(std::slice::from_ref(&delivery.receipt)).await.unwrap();
        assert_eq!(settle(&ends, &delivery, settlement).await, Settled::Done);
    }
    queue.purge(Duration::ZERO, 10).await.unwrap();
    queue.unsubscribe(&endpoint("shop"), &[message_type()]).await.unwrap();
    queue.abandon(&endpoint("shop"), 10).await.unwrap();
    queue.close().await;
}
