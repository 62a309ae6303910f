//! One endpoint's end of a hub: what it takes, for how long, and how that ends.

use std::{collections::hash_map::Entry, fmt, sync::Arc};

use async_trait::async_trait;
use hapax_core::{
    ids::EndpointName,
    ports::{DeadLetter, Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{Hub, State, queue::Held};

/// Most messages that are given together. A receiver asks again at once; and what is handled in small groups stays in the processor's cache: a
/// thousand at a time cost a sixth more.
const GIVEN_AT_ONCE: usize = 32;

/// One endpoint's end of a hub.
pub(super) struct EndpointQueue {
    pub(super) hub: Arc<Hub>,
    pub(super) endpoint: EndpointName,
    pub(super) arrived: Arc<Notify>,
}

impl EndpointQueue {
    /// Takes what can be given now, or says when to look again.
    fn take(&self, max: usize) -> Result<Vec<Delivery>, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.hub.state();
        let State { queues, next, .. } = &mut *state;
        let queue = queues.entry(self.endpoint.clone()).or_default();
        queue.refresh(now);
        if queue.ready.is_empty() {
            return Err(queue.next_turn());
        }
        let expires = now + self.hub.lease;
        let max = max.min(GIVEN_AT_ONCE);
        let mut deliveries = Vec::with_capacity(queue.ready.len().min(max));
        while deliveries.len() < max
            && let Some(mut queued) = queue.ready.pop_front()
        {
            *next += 1;
            queued.deliveries += 1;
            deliveries.push(Delivery {
                envelope: queued.envelope.clone(),
                receipt: Receipt::number(*next),
                attempts: queued.deliveries,
            });
            queue.lease(*next, queued, expires);
        }
        if !queue.ready.is_empty() {
            queue.arrived.notify_one(); // For another receiver of this queue.
        }
        Ok(deliveries)
    }

    fn ack_is_lost(&self, state: &mut State, settlement: &Settlement) -> bool {
        let lost = self.hub.faults.lost_acks;
        matches!(settlement, Settlement::Ack) && lost > 0.0 && state.random.f64() < lost
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        loop {
            let arrived = self.arrived.notified(); // Before the look, so that nothing told to all in between is missed.
            match self.take(max.max(1)) {
                Ok(deliveries) => return Ok(deliveries),
                Err(None) => arrived.await,
                // Whether something arrived or the time came, the next look tells.
                Err(Some(turn)) => drop(timeout_at(turn, arrived).await),
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let expires = Instant::now() + self.hub.lease;
        let mut state = self.hub.state();
        let Some(queue) = state.queues.get_mut(&self.endpoint) else { return Ok(()) };
        queue.refresh(Instant::now());
        for receipt in receipts.iter().filter_map(Receipt::as_number) {
            queue.extend(receipt, expires);
        }
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let now = Instant::now();
        let mut state = self.hub.state();
        if self.ack_is_lost(&mut state, &settlement) {
            let why = "the ack was lost, as asked for";
            return Err(TransportError::new(ErrorKind::UnknownOutcome, "settling", why));
        }
        let State { queues, messages, next, dead_letters, .. } = &mut *state;
        let Some(queue) = queues.get_mut(&self.endpoint) else { return Ok(Settled::LeaseLost) };
        let lease = receipt.as_number().map(|receipt| queue.leased.entry(receipt));
        let Some(Entry::Occupied(lease)) = lease else { return Ok(Settled::LeaseLost) };
        if lease.get().1 <= now {
            return Ok(Settled::LeaseLost);
        }
        if matches!(settlement, Settlement::DeadLetter { .. }) {
            let full = |why| TransportError::new(ErrorKind::Unavailable, "settling", why);
            dead_letters.room(&self.hub.name).map_err(full)?; // Or the message would be lost.
        }
        let (queued, _) = lease.remove();
        queue.forget_settled();
        match settlement {
            Settlement::Ack => *messages -= 1,
            Settlement::Retry { delay, counts } => {
                let mut queued = queued;
                queued.deliveries -= u32::from(!counts);
                *next += 1;
                queue.hold(Held { until: now + delay, number: *next, queued });
            }
            Settlement::DeadLetter { reason } => {
                *messages -= 1;
                dead_letters.add(DeadLetter {
                    envelope: queued.envelope,
                    endpoint: self.endpoint.clone(),
                    saga: None,
                    destination: None,
                    reason,
                    attempts: queued.deliveries,
                    time: Timestamp::now(),
                });
            }
        }
        if *messages == 0 {
            self.hub.settled.notify_waiters();
        }
        Ok(Settled::Done)
    }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("hub", &self.hub.name).field("endpoint", &self.endpoint).finish()
    }
}
