//! Order by partition key: sessions of the service, on a peer that behaves as the service documents itself.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    envelope::Envelope,
    ids::PartitionKey,
    ports::{Connected, Delivery, DispatchError, Dispatcher, ErrorKind, Settled, Settlement, Transport},
    testing,
};
use tokio::{sync::OnceCell, time::timeout};

use super::{
    endpoints::broker,
    peer::Peer,
    rig::*,
    service::{MESSAGES, Moved, until},
};

/// For the suite: each test has a peer of its own.
#[derive(Debug, Default)]
struct InOrder(OnceCell<Peer>);

#[async_trait]
impl testing::transport::Builder for InOrder {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.0.get_or_init(Peer::start).await.queues(true).await)
    }
}

mod ordered {
    hapax_core::transport_suite!(super::InOrder::default());
}

fn of(key: &str, body: &str) -> Envelope {
    Envelope { partition_key: Some(PartitionKey::parse(key).unwrap()), ..envelope(body) }
}

async fn nothing_comes(ends: &Connected) {
    let nothing = timeout(Duration::from_millis(700), ends.receiver.receive(10)).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let mut bodies: Vec<String> = deliveries.iter().map(body).collect();
    bodies.sort();
    bodies
}

#[tokio::test]
async fn a_namespace_with_sessions_keeps_order() {
    let queue = Peer::start().await.queues(true).await;
    assert!(queue.capabilities().ordered_keys);
}

/// Also what is tried again at once comes before what is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn of_each_key_one_message_is_given_at_a_time() {
    let (peer, here) = (Peer::start().await, endpoint());
    let queue = peer.queues(true).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let sent = [("a", "a 1"), ("a", "a 2"), ("b", "b 1"), ("b", "b 2")];
    send(&queue, &sent.map(|(key, body)| to(&here, of(key, body)))).await;
    let first = [next(&ends).await, next(&ends).await];
    assert_eq!(bodies(&first), ["a 1", "b 1"]);
    nothing_comes(&ends).await;
    // The lease of each is the lock of its session.
    let receipts = first.each_ref().map(|delivery| delivery.receipt.clone());
    ends.receiver.extend(&receipts).await.unwrap();
    assert_eq!(peer.seen(&queue_of(&here)).renewed, 2);
    let again = Settlement::Retry { delay: Duration::ZERO, counts: true };
    for (delivery, expected) in first.iter().zip(first.each_ref().map(body)) {
        settle(&ends, delivery, again.clone()).await;
        let tried = next(&ends).await;
        assert_eq!((body(&tried), tried.attempts), (expected, 2));
        settle(&ends, &tried, Settlement::Ack).await;
        let second = next(&ends).await;
        assert_eq!(body(&second), body(delivery).replace('1', "2"));
        settle(&ends, &second, Settlement::Ack).await;
    }
    until("the queue is empty", || peer.seen(&queue_of(&here)).messages == 0).await;
}

/// A session that is empty is left, and one that nobody has is had by whoever asks next: there are more of them than one process has at a time.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_empty_are_left_to_those_that_wait() {
    const KEYS: usize = 100;
    let (peer, here) = (Peer::start().await, endpoint());
    let queue = peer.queues(true).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let all: Vec<_> = (0..KEYS).map(|key| to(&here, of(&format!("key {key}"), "one of each"))).collect();
    send(&queue, &all).await;
    let mut keys = Vec::new();
    while keys.len() < KEYS {
        let delivery = next(&ends).await;
        settle(&ends, &delivery, Settlement::Ack).await;
        keys.push(delivery.envelope.partition_key.clone().unwrap().as_str().to_owned());
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), KEYS, "one has come twice");
}

/// What is said of a message under a session that another has by now changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_one_that_dies_goes_to_another_in_order() {
    let (peer, here) = (Peer::start().await, endpoint());
    let queue = peer.queues(true).await;
    let dead = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &["1", "2"].map(|body| to(&here, of("a", body)))).await;
    let held = next(&dead).await;
    assert_eq!(body(&held), "1");
    peer.cut();
    let ends = peer.queues(true).await.connect(&here, &[]).await.unwrap();
    for expected in [("1", 2), ("2", 1)] {
        let delivery = next(&ends).await;
        assert_eq!((body(&delivery).as_str(), delivery.attempts), expected);
        let late = dead.receiver.settle(&held.receipt, Settlement::Ack).await;
        assert!(!matches!(late, Ok(Settled::Done)), "{late:?}");
        settle(&ends, &delivery, Settlement::Ack).await;
    }
    until("the queue is empty", || peer.seen(&queue_of(&here)).messages == 0).await;
}

/// Whether queues have sessions cannot be asked, so it is told by who fails for it.
#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_order_where_nobody_else_does_is_told() {
    const REMEDY: &str = "has to have sessions";
    let peer = Peer::start().await;
    let (plain, ordered) = (peer.queues(false).await, peer.queues(true).await);
    let here = endpoint();
    plain.declare(&here, &[]).await;
    let ends = ordered.bus.connect(&here, &[]).await.unwrap();
    let refused = ends.receiver.receive(1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured, "{refused:?}");
    assert!(refused.to_string().contains(REMEDY), "{refused:?}");
    let there = endpoint();
    ordered.declare(&there, &[]).await;
    let refused = plain.dispatch(&[to(&there, envelope("in no session"))]).await.pop().unwrap();
    let Err(DispatchError::Transient(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains(REMEDY), "{error:?}");
    let refused = plain.bus.connect(&there, &[]).await.unwrap_err();
    assert!(format!("{refused:?}").contains(REMEDY), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_that_keep_order_handle_each_message_once_while_their_connections_to_the_service_end() {
    broker::each_is_handled_once(Moved(Peer::start().await), true, MESSAGES).await;
}
