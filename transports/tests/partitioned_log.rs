//! Logs with partitions: what a group commits, and what is given again.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "partitioned-log")]

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use hapax_core::{
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, PartitionKey, TypeName},
    ports::{Connected, Delivery, DispatchError, Dispatcher, ErrorKind, Mark, Settled, Settlement, Transport},
};
use hapax_transports::PartitionedLog;
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_secs(60);

fn one_partition() -> PartitionedLog {
    PartitionedLog::with_partitions("test", NonZeroUsize::MIN)
}

fn shop() -> EndpointName {
    EndpointName::parse("shop").unwrap()
}

fn added() -> TypeName {
    TypeName::parse("shop.added").unwrap()
}

fn envelope(body: &str) -> Envelope {
    Envelope::new(MessageId::random(), added(), body.as_bytes().to_vec())
}

async fn send_to(log: &PartitionedLog, destination: Destination, bodies: &[&str]) {
    for body in bodies {
        let outgoing = Outgoing { destination: destination.clone(), envelope: Arc::new(envelope(body)) };
        log.dispatch(&[outgoing]).await.pop().unwrap().unwrap();
    }
}

async fn send(log: &PartitionedLog, bodies: &[&str]) {
    send_to(log, Destination::Endpoint(shop()), bodies).await;
}

async fn connect(log: &PartitionedLog) -> Connected {
    log.connect(&shop(), &[]).await.unwrap()
}

async fn receive(ends: &Connected, max: usize) -> Vec<Delivery> {
    timeout(DELAY * 2, ends.receiver.receive(max)).await.expect("nothing came").unwrap()
}

async fn nothing_comes(ends: &Connected) {
    assert!(timeout(SOON, ends.receiver.receive(1)).await.is_err(), "something came");
}

fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| std::str::from_utf8(&delivery.envelope.body).unwrap()).collect()
}

async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, settlement).await.unwrap(), Settled::Done);
}

async fn ack(ends: &Connected, delivery: &Delivery) {
    settle(ends, delivery, Settlement::Ack).await;
}

async fn mark(ends: &Connected) -> Mark {
    ends.marks.as_ref().unwrap().end().await.unwrap()
}

async fn has_passed(ends: &Connected, mark: &Mark) -> bool {
    ends.marks.as_ref().unwrap().passed(mark).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_gap_holds_the_commit_back_and_what_was_settled_behind_it_is_given_again_to_the_next() {
    let log = one_partition();
    let one = connect(&log).await;
    send(&log, &["a", "b", "c"]).await;
    let mark = mark(&one).await;
    assert_eq!(mark.places(), [3]);
    let given = receive(&one, 10).await;
    assert_eq!(bodies(&given), ["a", "b", "c"]);
    ack(&one, &given[0]).await;
    ack(&one, &given[2]).await;
    assert_eq!((log.backlog(&shop()), has_passed(&one, &mark).await), (2, false));
    drop(one);
    let other = connect(&log).await;
    let given = receive(&other, 10).await;
    assert_eq!(bodies(&given), ["b", "c"]);
    assert_eq!([given[0].attempts, given[1].attempts], [2, 2]);
    ack(&other, &given[0]).await;
    assert!(!has_passed(&other, &mark).await);
    ack(&other, &given[1]).await;
    assert_eq!((log.backlog(&shop()), has_passed(&other, &mark).await), (0, true));
    timeout(SOON, log.idle()).await.expect("nothing is left");
}

#[tokio::test(start_paused = true)]
async fn what_is_put_off_is_given_again_in_its_place_and_holds_up_what_was_not_given_yet() {
    let log = one_partition();
    let one = connect(&log).await;
    send(&log, &["a"]).await;
    let given = receive(&one, 1).await;
    let begun = Instant::now();
    settle(&one, &given[0], Settlement::Retry { delay: DELAY, counts: false }).await;
    send(&log, &["b"]).await;
    nothing_comes(&one).await;
    let again = receive(&one, 10).await;
    assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
    assert_eq!((bodies(&again), again[0].attempts), (vec!["a", "b"], 1));

    // The same where another goes on with it.
    settle(&one, &again[0], Settlement::Retry { delay: DELAY, counts: true }).await;
    drop(one);
    let (begun, other) = (Instant::now(), connect(&log).await);
    let again = receive(&other, 10).await;
    assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
    assert_eq!((bodies(&again), again[0].attempts), (vec!["a", "b"], 2));
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_read_by_one_receiver_until_it_has_settled_all_of_it() {
    let log = one_partition();
    let (one, other) = (connect(&log).await, connect(&log).await);
    send(&log, &["a", "b"]).await;
    let given = receive(&one, 1).await;
    nothing_comes(&other).await;
    let late = given[0].receipt.clone();
    assert_eq!(other.receiver.settle(&late, Settlement::Ack).await.unwrap(), Settled::LeaseLost);
    ack(&one, &given[0]).await;
    assert_eq!(one.receiver.settle(&late, Settlement::Ack).await.unwrap(), Settled::LeaseLost);
    assert_eq!(bodies(&receive(&other, 1).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_mark_counts_topics_and_what_is_subscribed_to_later_is_behind_it() {
    let log = PartitionedLog::with_partitions("topics", NonZeroUsize::new(2).unwrap());
    let topic = || Destination::Topic(added());
    send_to(&log, topic(), &["nobody subscribes"]).await;
    let one = log.connect(&shop(), &[added()]).await.unwrap();
    send_to(&log, topic(), &["published"]).await;
    let before = mark(&one).await;
    assert_eq!(before.places().len(), 4);
    let later = TypeName::parse("shop.later").unwrap();
    let two = log.connect(&shop(), &[later.clone(), added()]).await.unwrap();
    send_to(&log, Destination::Topic(later), &["later"]).await;
    assert_eq!(mark(&two).await.places().len(), 6);
    assert!(!has_passed(&two, &before).await);
    let given = receive(&one, 10).await;
    let published = given.iter().find(|delivery| &delivery.envelope.body[..] == b"published").unwrap();
    ack(&one, published).await;
    assert!(has_passed(&two, &before).await, "what was subscribed to later holds it back");
    assert_eq!(log.backlog(&shop()), 1);

    let foreign = one.marks.as_ref().unwrap().passed(&Mark::new([0; 7])).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Malformed);
    assert!(foreign.to_string().contains("ask the log that gave it"), "{foreign}");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_key_are_in_one_partition_and_others_are_spread() {
    let log = PartitionedLog::with_partitions("keys", NonZeroUsize::new(3).unwrap());
    let ends = connect(&log).await;
    for number in 0..9 {
        let partition_key = Some(PartitionKey::parse("k").unwrap());
        let keyed = Envelope { partition_key, ..envelope(&number.to_string()) };
        let outgoing = Outgoing { destination: Destination::Endpoint(shop()), envelope: Arc::new(keyed) };
        log.dispatch(&[outgoing]).await.pop().unwrap().unwrap();
    }
    let of_key = mark(&ends).await;
    assert_eq!(of_key.places().iter().filter(|end| **end > 0).count(), 1, "{of_key:?}");
    send(&log, &["1", "2", "3"]).await;
    let spread =
        mark(&ends).await.places().iter().zip(of_key.places()).map(|(now, then)| now - then).collect::<Vec<_>>();
    assert_eq!(spread, [1, 1, 1]);
}

#[tokio::test]
async fn a_log_holds_as_many_messages_as_it_was_told_and_those_that_all_have_read_are_gone() {
    let log = one_partition().messages_max(2);
    let ends = connect(&log).await;
    send(&log, &["a", "b"]).await;
    let one_more = || Outgoing { destination: Destination::Endpoint(shop()), envelope: Arc::new(envelope("c")) };
    let Err(DispatchError::Transient(full)) = log.dispatch(&[one_more()]).await.pop().unwrap() else {
        panic!("it was taken")
    };
    assert!(full.to_string().contains("holds 2 messages"), "{full}");
    let given = receive(&ends, 1).await;
    ack(&ends, &given[0]).await;
    log.dispatch(&[one_more()]).await.pop().unwrap().unwrap();
    assert_eq!(log.backlog(&shop()), 2);
}
