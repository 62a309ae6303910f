//! The queue: messages are sent, given and settled, nothing is handled; beside a hand-written table with the same batches.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join, join_all, try_join_all};
use hapax::{
    Message,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{Dispatcher, Receiver, Settled, Settlement, Transport},
};
use uuid::Uuid;

use super::{Address, Cost, Place};
use crate::{
    AnyError,
    candidate::endpoint::{ENDPOINT, outgoing},
    measure::{Sample, Window},
    run::Shape,
    workload::{Deposit, Workload},
};

/// Who sends and who receives at the same time; each has a connection of its own in the hand-written loop.
const SENDERS: usize = 2;
const RECEIVERS: usize = 2;
/// So many may wait: senders rest beyond it.
const WAITING_MAX: u64 = 20_000;
const REST: Duration = Duration::from_millis(1);

/// Where queues are run: hapax's, and a table by hand.
pub(crate) trait Queues: Sized {
    type Queue: Transport + Dispatcher;
    type HandQueue: HandQueue;

    /// hapax's queue, which makes its tables.
    async fn open_queue(at: &Address) -> Result<Self::Queue, AnyError>;

    /// How many messages are left in it.
    async fn close_queue(queue: &Self::Queue) -> Result<u64, AnyError>;

    /// Makes the table of the hand-written queue.
    async fn prepare_queue(&self) -> Result<(), AnyError>;

    /// A connection of the hand-written queue.
    async fn hand_queue(&self) -> Result<Self::HandQueue, AnyError>;

    /// Messages in the hand-written queue.
    async fn left_by_hand(&self) -> Result<u64, AnyError>;
}

/// One connection to a hand-written queue: a table, `SKIP LOCKED`, and a lease, as long as hapax's, that is checked when it
/// ends.
pub(crate) trait HandQueue: Sized {
    /// What was taken together.
    type Lease;

    /// Ids and bodies.
    async fn send(&mut self, ids: &[&[u8]], bodies: &[&[u8]]) -> Result<(), AnyError>;

    /// Takes at most `max` messages and looks at all of each; `None`: there is none.
    async fn take(&mut self, max: usize) -> Result<Option<(Vec<[u8; 16]>, Self::Lease)>, AnyError>;

    /// How many of them were still held, and are gone.
    async fn settle(&mut self, lease: Self::Lease) -> Result<u64, AnyError>;
}

/// Counts of one run, and the ids that were given: each must have been given once.
#[derive(Debug, Default)]
struct Traffic {
    sent: AtomicU64,
    settled: AtomicU64,
    over: AtomicBool,
    given: Mutex<HashSet<[u8; 16]>>,
    again: AtomicU64,
}

impl Traffic {
    fn is_full(&self) -> bool {
        self.sent.load(Ordering::Relaxed) > self.settled.load(Ordering::Relaxed) + WAITING_MAX
    }

    /// Nothing more will be sent.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_done(&self) -> bool {
        self.is_over() && self.settled.load(Ordering::Relaxed) >= self.sent.load(Ordering::Relaxed)
    }

    fn give(&self, ids: impl Iterator<Item = [u8; 16]>) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let again = ids.filter(|id| !given.insert(*id)).count();
        self.again.fetch_add(again as u64, Ordering::Relaxed);
    }

    /// Opens the window after the warm-up, and closes it when the time is over.
    async fn window(&self, shape: &Shape) -> Sample {
        tokio::time::sleep(shape.warm_up()).await;
        let before = self.settled.load(Ordering::Relaxed);
        let window = Window::open();
        tokio::time::sleep(shape.time).await;
        let sample = window.close(self.settled.load(Ordering::Relaxed) - before);
        self.over.store(true, Ordering::Relaxed);
        sample
    }

    /// The sample with the server's share of the cost, if each message was given once and settled.
    fn audited(&self, mut sample: Sample, before: Cost, after: Cost, left: u64) -> Result<Sample, AnyError> {
        let (sent, settled) = (self.sent.load(Ordering::Relaxed), self.settled.load(Ordering::Relaxed));
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let again = self.again.load(Ordering::Relaxed);
        if sent != settled || sent != given || again > 0 || left != 0 {
            let found = format!("{given} given, {again} of them again, {settled} settled, {left} left");
            return Err(format!("the books do not add up: {sent} sent, {found}").into());
        }
        let share = sample.deliveries as f64 / settled as f64;
        Cost::add_to(&mut sample, before, after, share);
        Ok(sample)
    }
}

fn workload(shape: &Shape, sender: usize) -> Workload {
    const SEED_STEP: u64 = 1_000_003;
    Workload::new(shape.entities, shape.seed + (sender as u64 + 1) * SEED_STEP)
}

/// hapax's queue: as many calls as there are connections by hand, with batches of the same size.
pub(super) async fn hapax<P: Place>(place: &P, shape: &Shape) -> Result<Sample, AnyError> {
    let queue = P::open_queue(place.address()).await?;
    let (endpoint, message_type) = (EndpointName::parse(ENDPOINT)?, TypeName::parse(Deposit::TYPE)?);
    let receiver = queue.connect(&endpoint, std::slice::from_ref(&message_type)).await?.receiver;
    let traffic = Traffic::default();
    let before = place.cost().await?;
    let send = |sender| {
        let (queue, traffic, endpoint, message_type) = (&queue, &traffic, &endpoint, &message_type);
        let mut workload = workload(shape, sender);
        async move {
            while !traffic.is_over() {
                if traffic.is_full() {
                    tokio::time::sleep(REST).await;
                    continue;
                }
                let message = |_| outgoing(endpoint, message_type, workload.fresh_for(0));
                let batch: Vec<Outgoing> = (0..shape.batch).map(message).collect();
                for sent in queue.dispatch(&batch).await {
                    sent?;
                }
                traffic.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            Ok::<_, AnyError>(())
        }
    };
    let receive = |_| receive(&receiver, &traffic, shape.batch);
    let work = join(try_join_all((0..SENDERS).map(send)), try_join_all((0..RECEIVERS).map(receive)));
    let (sample, (sent, received)) = join(traffic.window(shape), work).await;
    sent?;
    received?;
    let after = place.cost().await?;
    traffic.audited(sample, before, after, P::close_queue(&queue).await?)
}

async fn receive(receiver: &Arc<dyn Receiver>, traffic: &Traffic, max: usize) -> Result<(), AnyError> {
    /// Who waits when all is over is not to wait for ever.
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    while !traffic.is_done() {
        let Ok(deliveries) = tokio::time::timeout(LOOK_AGAIN, receiver.receive(max)).await else { continue };
        let deliveries = deliveries?;
        let ids = deliveries
            .iter()
            .map(|delivery| Uuid::parse_str(&delivery.envelope.message_id.to_string()).map(Uuid::into_bytes));
        traffic.give(ids.collect::<Result<Vec<_>, _>>()?.into_iter());
        let settle = |delivery| async move { receiver.settle(delivery, Settlement::Ack).await };
        for settled in join_all(deliveries.iter().map(|delivery| settle(&delivery.receipt))).await {
            if settled? != Settled::Done {
                return Err("a lease was lost".into());
            }
            traffic.settled.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The same by hand.
pub(super) async fn by_hand<P: Place>(place: &P, shape: &Shape) -> Result<Sample, AnyError> {
    place.prepare_queue().await?;
    let traffic = Traffic::default();
    let before = place.cost().await?;
    let senders = (0..SENDERS).map(|sender| send_by_hand(place, shape, &traffic, sender));
    let receivers = (0..RECEIVERS).map(|_| receive_by_hand(place, shape, &traffic));
    let work = join(try_join_all(senders), try_join_all(receivers));
    let (sample, (sent, received)) = join(traffic.window(shape), work).await;
    sent?;
    received?;
    let after = place.cost().await?;
    traffic.audited(sample, before, after, place.left_by_hand().await?)
}

async fn send_by_hand<P: Place>(place: &P, shape: &Shape, traffic: &Traffic, sender: usize) -> Result<(), AnyError> {
    let mut queue = place.hand_queue().await?;
    let mut workload = workload(shape, sender);
    while !traffic.is_over() {
        if traffic.is_full() {
            tokio::time::sleep(REST).await;
            continue;
        }
        let batch: Vec<_> = (0..shape.batch).map(|_| workload.fresh_for(0)).collect();
        let ids: Vec<&[u8]> = batch.iter().map(|message| &message.id[..]).collect();
        let bodies: Vec<&[u8]> = batch.iter().map(|message| &message.body[..]).collect();
        queue.send(&ids, &bodies).await?;
        traffic.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn receive_by_hand<P: Place>(place: &P, shape: &Shape, traffic: &Traffic) -> Result<(), AnyError> {
    let mut queue = place.hand_queue().await?;
    while !traffic.is_done() {
        let Some((ids, lease)) = queue.take(shape.batch).await? else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let count = ids.len() as u64;
        traffic.give(ids.into_iter());
        let settled = queue.settle(lease).await?;
        if settled != count {
            return Err("a lease was lost by hand".into());
        }
        traffic.settled.fetch_add(settled, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_given_again_or_left_voids_the_run() {
        let cost = Cost { cpu_seconds: 0.0, flushes: 0 };
        let traffic = || {
            let traffic = Traffic { sent: 2.into(), settled: 2.into(), ..Traffic::default() };
            traffic.give([[1; 16], [2; 16]].into_iter());
            traffic
        };
        let audited = |traffic: &Traffic, left| traffic.audited(Sample::default(), cost, cost, left);
        assert!(audited(&traffic(), 0).is_ok());
        assert!(audited(&traffic(), 1).is_err());
        let again = traffic();
        again.give([[1; 16]].into_iter());
        assert!(audited(&again, 0).is_err());
    }
}
