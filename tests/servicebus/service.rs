//! What is the service's own, with the transport as it is shipped, on a peer that behaves as the service documents itself. That the service is like
//! this nobody has seen.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    ServiceBus,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{DeadLetters, Delays, DispatchError, Dispatcher, ErrorKind, Page, Settled, Settlement, Transport},
    testing,
    time::Timestamp,
};
use tokio::sync::OnceCell;

use super::{endpoints::broker, peer::Peer, rig::*};

pub(crate) const MESSAGES: usize = 300;
/// Each costs what was held by then a lock.
const CUTS: usize = 3;
/// Long enough that a slow machine sees it wait.
const WAIT: Duration = Duration::from_secs(2);
const AGAIN: Settlement = Settlement::Retry { delay: Duration::ZERO, counts: true };

/// For the suites: each test has a peer of its own.
#[derive(Debug, Default)]
struct OnPeer(OnceCell<Peer>);

impl OnPeer {
    async fn queues(&self) -> Queues {
        self.0.get_or_init(Peer::start).await.queues(false).await
    }
}

#[async_trait]
impl testing::transport::Builder for OnPeer {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.queues().await)
    }
}

#[async_trait]
impl testing::dead_letters::Builder for OnPeer {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(self.queues().await)
    }
}

mod unordered {
    hapax_core::transport_suite!(super::OnPeer::default());
}

mod dead_letters {
    hapax_core::dead_letters_suite!(super::OnPeer::default());
}

async fn on_a_peer() -> (Peer, Queues, EndpointName) {
    let peer = Peer::start().await;
    let queue = peer.queues(false).await;
    (peer, queue, endpoint())
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What it did not claim the suites would leave out in silence.
#[tokio::test]
async fn a_namespace_locks_counts_and_holds_back() {
    let (_peer, queue, _) = on_a_peer().await;
    let capabilities = queue.capabilities();
    assert_eq!(capabilities.lease, Some(Duration::from_secs(3)), "two seconds less than the lock");
    assert!(capabilities.counts_deliveries);
    assert!(matches!(capabilities.delays, Delays::Any));
}

/// A request is for all of its locks or none of them: of which one is lost, who has it is told, and the other is renewed.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_renewed_together_and_one_that_is_lost_is_lost_alone() {
    let (peer, queue, here) = on_a_peer().await;
    let name = queue_of(&here);
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &["lost", "kept"].map(|body| to(&here, envelope(body)))).await;
    let held = [next(&ends).await, next(&ends).await];
    assert_eq!(held.each_ref().map(body), ["lost", "kept"]);
    let receipts = held.each_ref().map(|delivery| delivery.receipt.clone());
    ends.receiver.extend(&receipts).await.unwrap();
    assert_eq!(peer.seen(&name).renewed, 2);
    peer.lapse(&name);
    ends.receiver.extend(&receipts).await.unwrap();
    assert_eq!(peer.seen(&name).renewed, 3);
    let late = ends.receiver.settle(&held[0].receipt, Settlement::Ack).await.unwrap();
    assert_eq!(late, Settled::LeaseLost);
    settle(&ends, &held[1], Settlement::Ack).await;
    // It comes again, and the time before counts.
    let again = next(&ends).await;
    assert_eq!((body(&again), again.attempts), ("lost".to_owned(), 2));
    settle(&ends, &again, Settlement::Ack).await;
    until("the queue is empty", || peer.seen(&name).messages == 0).await;
}

/// What is given back comes at once; the lock of one that took no leave has to run out first.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_goes_gives_back_and_the_lock_of_one_that_dies_runs_out() {
    let (peer, queue, here) = on_a_peer().await;
    let name = queue_of(&here);
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("left"))]).await;
    assert_eq!(next(&ends).await.attempts, 1);
    drop(ends);
    until("it is given back", || peer.seen(&name).locked == 0).await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let held = next(&ends).await;
    assert_eq!(held.attempts, 1, "what is given back was not tried");
    peer.cut();
    let other = peer.queues(false).await.connect(&here, &[]).await.unwrap();
    assert_eq!(peer.seen(&name).locked, 1, "the service knows nothing of a death");
    let again = next(&other).await;
    assert_eq!(again.attempts, 2);
    let late = ends.receiver.settle(&held.receipt, Settlement::Ack).await;
    assert!(!matches!(late, Ok(Settled::Done)), "{late:?}");
    settle(&other, &again, Settlement::Ack).await;
    until("the queue is empty", || peer.seen(&name).messages == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_due_waits_in_the_service() {
    let (peer, queue, here) = on_a_peer().await;
    let ends = queue.connect(&here, &[]).await.unwrap();
    let due = Timestamp::now().after(WAIT);
    send(&queue, &[to(&here, Envelope { due: Some(due), ..envelope("later") }), to(&here, envelope("now"))]).await;
    let seen = peer.seen(&queue_of(&here));
    assert_eq!((seen.scheduled, seen.messages), (1, 1));
    for expected in ["now", "later"] {
        let delivery = next(&ends).await;
        assert_eq!((body(&delivery).as_str(), delivery.attempts), (expected, 1));
        settle(&ends, &delivery, Settlement::Ack).await;
    }
    assert!(Timestamp::now() >= due);
}

/// The service counts a copy anew, so the copy says how often its message was given before.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_tried_later_waits_in_the_service_with_its_count() {
    let (peer, queue, here) = on_a_peer().await;
    let name = queue_of(&here);
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("again"))]).await;
    let first = next(&ends).await;
    settle(&ends, &first, AGAIN).await;
    let mut delivery = next(&ends).await;
    assert_eq!(delivery.attempts, 2);
    for (counts, attempts) in [(true, 3), (false, 3), (true, 4)] {
        settle(&ends, &delivery, Settlement::Retry { delay: WAIT, counts }).await;
        assert_eq!(peer.seen(&name).scheduled, 1);
        delivery = next(&ends).await;
        assert_eq!((delivery.attempts, &delivery.envelope), (attempts, &first.envelope));
    }
    settle(&ends, &delivery, Settlement::Ack).await;
    until("the queue is empty", || peer.seen(&name).messages == 0).await;
}

/// To look at a letter takes it and gives it back, which counts for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_is_in_the_sub_queue_with_its_reason_and_its_count() {
    let (peer, queue, here) = on_a_peer().await;
    let name = queue_of(&here);
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("bad"))]).await;
    settle(&ends, &next(&ends).await, AGAIN).await;
    settle(&ends, &next(&ends).await, Settlement::DeadLetter { reason: "it is of no use".into() }).await;
    let told = |property| peer.told_of_set_aside(&name, property);
    until("it is in the sub-queue", || told("DeadLetterReason").len() == 1).await;
    for property in ["DeadLetterReason", "DeadLetterErrorDescription"] {
        assert_eq!(told(property), [Some("it is of no use".to_owned())]);
    }
    let letters = queue.list(&here, &Page::first(10)).await.unwrap();
    let found: Vec<_> = letters.iter().map(|letter| (letter.reason.as_str(), letter.attempts)).collect();
    assert_eq!(found, [("it is of no use", 2)]);
    assert_eq!(queue.list(&here, &Page::first(10)).await.unwrap(), letters);
    assert_eq!(queue.discard(&letters).await.unwrap(), 1);
    until("it is gone", || told("DeadLetterReason").is_empty()).await;
    assert_eq!(peer.seen(&name).messages, 0);
}

/// A queue that was made otherwise than it was said.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_service_sets_aside_by_itself_is_among_the_letters_with_its_reason() {
    let (peer, queue, here) = on_a_peer().await;
    peer.run(&queue.bus.az_commands(&here, &[]).replace("--max-delivery-count 2000", "--max-delivery-count 3"));
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &[to(&here, envelope("bad"))]).await;
    for attempts in 1..=3 {
        let delivery = next(&ends).await;
        assert_eq!(delivery.attempts, attempts);
        settle(&ends, &delivery, AGAIN).await;
    }
    let told = || peer.told_of_set_aside(&queue_of(&here), "DeadLetterReason");
    until("it is in the sub-queue", || told() == [Some("MaxDeliveryCountExceeded".to_owned())]).await;
    let letters = queue.list(&here, &Page::first(10)).await.unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].reason.starts_with("MaxDeliveryCountExceeded: it was given 3 times"), "{letters:?}");
    assert_eq!(letters[0].attempts, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_forwarded_to_its_subscribers_alone() {
    let (peer, queue, here) = on_a_peer().await;
    let topic = TypeName::parse(unique("shop.added")).unwrap();
    let (ends, other) = (queue.connect(&here, std::slice::from_ref(&topic)).await.unwrap(), endpoint());
    queue.declare(&other, &[]).await;
    let event = Outgoing { destination: Destination::Topic(topic), envelope: Arc::new(envelope("event")) };
    send(&queue, &[event]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "event");
    settle(&ends, &delivery, Settlement::Ack).await;
    assert_eq!(peer.seen(&queue_of(&other)).messages, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_with_what_makes_it_and_is_tried_again() {
    let (_peer, queue, here) = on_a_peer().await;
    let error = queue.bus.connect(&here, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("az servicebus queue create"), "{error:?}");
    let early = [to(&here, envelope("early"))];
    let failed = queue.dispatch(&early).await.pop().unwrap();
    assert!(matches!(failed, Err(DispatchError::Transient(_))), "{failed:?}");
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(&queue, &early).await;
    settle(&ends, &next(&ends).await, Settlement::Ack).await;
}

#[tokio::test]
async fn a_wrong_key_is_not_let_in() {
    let peer = Peer::start().await;
    let stranger = peer.connection_string().replace("let me in", "secret");
    let error = ServiceBus::open(&stranger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_set_aside_by_the_service_s_own_count_and_holds_up_nothing() {
    let (peer, queue, here) = on_a_peer().await;
    let name = queue_of(&here);
    queue.declare(&here, &[]).await;
    // Those that die with it do not say so.
    peer.hears_no_release(&name);
    broker::poison_is_set_aside(queue, here, async || peer.seen(&name).messages == 0).await;
}

/// Connections that are cut again and again are to endpoints what a service is that moves a namespace.
pub(crate) struct Moved(pub(crate) Peer);

impl broker::Server for Moved {
    type Queue = Queues;

    async fn open(&self, ordered: bool) -> Queues {
        self.0.queues(ordered).await
    }

    async fn is_killed(&mut self) {
        for _ in 0..CUTS {
            self.0.cut();
            // What connects anew has taken something by the next one.
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_connections_to_the_service_end() {
    broker::each_is_handled_once(Moved(Peer::start().await), false, MESSAGES).await;
}
