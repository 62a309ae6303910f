//! The queue, where its commits wait for the standby.

use std::sync::Arc;

use hapax::{
    PostgresQueue,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{DeadLetters, Dispatcher, ErrorKind, Transport},
};

use super::Place;

fn shop() -> EndpointName {
    "shop".parse().unwrap()
}

fn added() -> TypeName {
    "shop.added".parse().unwrap()
}

/// Queues of another process, each time, where order is kept.
async fn open(place: &Place) -> PostgresQueue {
    place.schema.open_queue(PostgresQueue::options().ordered_keys(true)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_queue_finds_done_already_is_on_the_standby_once_it_is_told() {
    let place = Place::new("queue").await;
    open(&place).await.connect(&shop(), &[]).await.unwrap();
    place.standbys("nobody").await;
    let (cut, queue) = (open(&place).await, open(&place).await);

    let letter = place.samples.letter();
    let (told, ()) = futures_util::join!(cut.add(&letter), place.cut("pg_terminate_backend", 1));
    assert_eq!(told.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    place.waits("a letter", queue.add(&letter)).await;

    let (shop, types) = (shop(), [added()]);
    let (told, ()) = futures_util::join!(cut.connect(&shop, &types), place.cut("pg_terminate_backend", 1));
    assert_eq!(told.err().unwrap().kind(), ErrorKind::UnknownOutcome);
    place.waits("a subscription", queue.connect(&shop, &types)).await;

    let (told, ()) = futures_util::join!(cut.unsubscribe(&shop, &types), place.cut("pg_terminate_backend", 1));
    assert_eq!(told.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    place.waits("the end of a subscription", queue.unsubscribe(&shop, &types)).await;
    place.standbys("").await;
}

/// It takes two statements; the server tells its commit as done, and warns beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_in_the_order_of_keys_whose_wait_for_the_standby_is_cancelled_gives_nothing() {
    let place = Place::new("order").await;
    let sender = open(&place).await;
    sender.connect(&shop(), &[]).await.unwrap();
    let key = Some(PartitionKey::parse("key").unwrap());
    let envelope = Envelope { partition_key: key, ..Envelope::new(MessageId::random(), added(), "body") };
    let outgoing = Outgoing { destination: Destination::Endpoint(shop()), envelope: Arc::new(envelope) };
    sender.dispatch(&[outgoing]).await.pop().unwrap().unwrap();
    place.standbys("nobody").await;
    let ends = open(&place).await.connect(&shop(), &[]).await.unwrap();
    let (given, ()) = futures_util::join!(ends.receiver.receive(1), place.cut("pg_cancel_backend", 1));
    assert_eq!(given.map(|given| given.len()).unwrap_err().kind(), ErrorKind::UnknownOutcome);
    place.standbys("").await;
}
