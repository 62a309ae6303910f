//! Lanes: the messages of one entity are handled one after the other, in one process never at the same time; different
//! entities go in parallel.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture, stream::FuturesUnordered};
use smallvec::SmallVec;
use tracing::Instrument;

use super::{Endpoint, flow::Held};
use crate::{
    handler_error::HandlerError,
    ids::EntityKey,
    manager::{Incoming, Passes},
    metrics::{Ending, Event},
    ports::{DeadLetter, Delivery, Receipt, Receiver, Settlement},
    time::Timestamp,
    trace,
};

/// A header that names the only saga which takes a message: the one that could not handle it, when a dead letter is retried.
pub(super) const RETRY_SAGA: &str = "retry-saga";

pub(super) struct Lanes<'e> {
    endpoint: &'e Endpoint,
    lanes: HashMap<EntityKey, Lane>,
    /// One future for each lane that is at work, and for each message that no lane takes.
    pub(super) running: FuturesUnordered<BoxFuture<'e, Ended>>,
    held: Held,
}

struct Lane {
    manager: usize,
    /// Leases of what is being handled.
    running: SmallVec<[Receipt; 1]>,
    /// Its bytes.
    running_bytes: usize,
    /// What came since.
    waiting: Vec<Incoming>,
}

/// What a future of `running` did.
pub(super) enum Ended {
    /// The messages of a lane.
    Lane(EntityKey),
    /// A message that no lane takes.
    Refused,
}

impl<'e> Lanes<'e> {
    pub(super) fn new(endpoint: &'e Endpoint) -> Self {
        Self { endpoint, lanes: HashMap::new(), running: FuturesUnordered::new(), held: Held::default() }
    }

    /// Messages that are not settled yet, counted once for each saga.
    pub(super) const fn held(&self) -> Held {
        self.held
    }

    /// Puts deliveries into their lanes, then sets the idle lanes to work: so that what came together is handled
    /// together.
    pub(super) fn take(&mut self, deliveries: Vec<Delivery>) {
        let Endpoint { name, deliver, .. } = self.endpoint;
        deliver.metrics.observe(Event::Received(name, deliveries.len()));
        let mut idle = Vec::new();
        for delivery in deliveries {
            self.route(&delivery, &mut idle);
        }
        for key in idle {
            self.begin(key);
        }
    }

    fn route(&mut self, delivery: &Delivery, idle: &mut Vec<EntityKey>) {
        let endpoint = self.endpoint;
        let Some(takers) = endpoint.takers.get(&delivery.envelope.message_type) else {
            let why = format!("endpoint {} has no handler for {}", endpoint.name, delivery.envelope.message_type);
            self.refuse(delivery, None, HandlerError::permanent(why));
            return;
        };
        let mut takers = takers.as_slice();
        if let Some(saga) = delivery.envelope.headers.value(RETRY_SAGA) {
            let only = takers.iter().position(|index| endpoint.managers[*index].scope().saga.as_str() == saga);
            let Some(only) = only else {
                let why =
                    format!("endpoint {} has no saga {saga} for {}", endpoint.name, delivery.envelope.message_type);
                self.refuse(delivery, None, HandlerError::permanent(why));
                return;
            };
            takers = &takers[only..=only];
        }
        endpoint.receiver.share(&delivery.receipt, takers.len());
        for &index in takers {
            let manager = &endpoint.managers[index];
            match manager.route(&delivery.envelope, delivery.receipt.clone(), delivery.attempts) {
                Ok((key, incoming)) => self.enqueue(index, key, incoming, idle),
                Err(error) => self.refuse(delivery, Some(manager), error),
            }
        }
    }

    fn enqueue(&mut self, manager: usize, key: EntityKey, incoming: Incoming, idle: &mut Vec<EntityKey>) {
        self.held.messages += 1;
        self.held.bytes += incoming.bytes;
        match self.lanes.entry(key) {
            Entry::Occupied(lane) => lane.into_mut().waiting.push(incoming),
            Entry::Vacant(lane) => {
                idle.push(lane.key().clone());
                lane.insert(Lane { manager, running: SmallVec::new(), running_bytes: 0, waiting: vec![incoming] });
            }
        }
    }

    /// Hands what waits in a lane to `deliver`.
    fn begin(&mut self, key: EntityKey) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let mut messages = std::mem::take(&mut lane.waiting);
        lane.running = messages.iter().map(|message| message.receipt.clone()).collect();
        lane.running_bytes = bytes_of(&messages);
        let (deliver, manager) = (&self.endpoint.deliver, &self.endpoint.managers[lane.manager]);
        let span = self.endpoint.spans.begin(&key, &mut messages);
        #[cfg(feature = "testing")]
        if let Some(drops) = &self.endpoint.drops {
            let delivering = async move {
                let _ = drops.run(deliver.deliver(manager.as_ref(), &key, messages)).await;
                Ended::Lane(key)
            };
            self.running.push(delivering.instrument(span).boxed());
            return;
        }
        let delivering = async move {
            deliver.deliver(manager.as_ref(), &key, messages).await;
            Ended::Lane(key)
        };
        self.running.push(delivering.instrument(span).boxed());
    }

    /// A lane has come to its end: what came since begins, or the lane is closed.
    pub(super) fn ended(&mut self, ended: Ended) {
        let Ended::Lane(key) = ended else {
            self.held.messages -= 1;
            return;
        };
        let Entry::Occupied(mut lane) = self.lanes.entry(key) else { return };
        let ended = lane.get().running.len();
        self.held.messages -= ended;
        self.held.bytes -= std::mem::take(&mut lane.get_mut().running_bytes);
        self.endpoint.handled.fetch_add(ended as u64, Ordering::Relaxed);
        lane.get_mut().running.clear();
        if lane.get().waiting.is_empty() {
            lane.remove();
        } else {
            let key = lane.key().clone();
            self.begin(key);
        }
    }

    /// Sets aside a message that no saga can take; one that another version of the program may take is given back.
    fn refuse(&mut self, delivery: &Delivery, manager: Option<&Arc<dyn Passes>>, error: HandlerError) {
        self.held.messages += 1;
        let endpoint = self.endpoint;
        let given_up =
            error.is_permanent() || delivery.attempts >= endpoint.deliver.recoverability.rule(&error).0.deliveries_max;
        let mut letter = DeadLetter {
            envelope: delivery.envelope.clone(),
            endpoint: endpoint.name.clone(),
            saga: manager.map(|manager| manager.scope().saga.clone()),
            destination: None,
            reason: error.chain(),
            attempts: delivery.attempts,
            time: Timestamp::MAX,
        };
        let receipt = delivery.receipt.clone();
        let span = endpoint.spans.process(&endpoint.name, None, &delivery.envelope, delivery.attempts);
        let refused = span.clone();
        let refusing = async move {
            letter.time = endpoint.deliver.clock.now().await.0;
            let kept = match &endpoint.deliver.dead_letters {
                Some(dead_letters) if given_up => dead_letters.add(&letter).await.is_ok(),
                _ => false,
            };
            const REST: Duration = Duration::from_secs(5);
            let settlement = if kept { Settlement::Ack } else { Settlement::Retry { delay: REST, counts: !given_up } };
            tracing::warn!(message_id = %letter.envelope.message_id, reason = letter.reason, kept, "message refused");
            let ending = if kept { Ending::DeadLettered } else { Ending::Retried };
            trace::ended(&refused, ending);
            endpoint.deliver.metrics.observe(Event::Refused(&endpoint.name, &letter.envelope, ending));
            if let Err(error) = endpoint.receiver.settle(&receipt, settlement).await {
                tracing::debug!(%error, "settling a refused message failed");
            }
            Ended::Refused
        };
        self.running.push(refusing.instrument(span).boxed());
    }

    /// The leases of all that is held.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let lanes = self.lanes.values();
        lanes
            .flat_map(|lane| lane.running.iter().chain(lane.waiting.iter().map(|message| &message.receipt)))
            .cloned()
            .collect()
    }

    /// Takes out what has not begun.
    pub(super) fn take_waiting(&mut self) -> Vec<Receipt> {
        let lanes = self.lanes.values_mut();
        let waiting: Vec<_> = lanes.flat_map(|lane| std::mem::take(&mut lane.waiting)).collect();
        self.held.messages -= waiting.len();
        self.held.bytes -= bytes_of(&waiting);
        waiting.into_iter().map(|message| message.receipt).collect()
    }
}

fn bytes_of(messages: &[Incoming]) -> usize {
    messages.iter().map(|message| message.bytes).sum()
}
