//! A queue as unkind as a queue may be, and a sink. Each ack and each message that leaves is judged at once.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use hapax_core::{
    Message,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId},
    ports::{
        Delivery, DispatchError, Dispatcher, ErrorKind, Receipt, Receiver, Refused, Settled, Settlement, TransportError,
    },
};

use crate::{
    Seen, World, invariants,
    ledger::{Unroutable, Unsendable},
};

/// A queue that gives its messages in any order and forgets leases whenever the run says so.
#[derive(Clone)]
pub struct Queue {
    world: World,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Copy>,
    given: BTreeMap<u64, Copy>,
    dead: Vec<MessageId>,
}

#[derive(Clone)]
struct Copy {
    envelope: Arc<Envelope>,
    deliveries: u32,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self { world, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a copy of a message.
    pub fn put(&self, envelope: Arc<Envelope>) {
        self.state().waiting.push_back(Copy { envelope, deliveries: 0 });
    }

    /// Whether nothing waits and nothing is under a lease.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.given.is_empty()
    }

    /// Whether there is something to give.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Gives up to `max` messages, drawn at random.
    #[must_use]
    pub fn take(&self, max: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < max {
            let index = self.world.below(self.state().waiting.len());
            let Some(mut copy) = self.state().waiting.remove(index) else { break };
            copy.deliveries += 1;
            let number = self.world.number();
            let (envelope, attempts) = (copy.envelope.clone(), copy.deliveries);
            self.state().given.insert(number, copy);
            deliveries.push(Delivery { envelope, receipt: Receipt::number(number), attempts });
        }
        deliveries
    }

    /// Lets the lease of `receipt` run out: the message waits again, whatever its holder does.
    pub fn expire(&self, receipt: &Receipt) {
        let mut state = self.state();
        let copy = receipt.as_number().and_then(|number| state.given.remove(&number));
        state.waiting.extend(copy);
    }

    /// What was settled as a dead letter.
    #[must_use]
    pub fn dead_lettered(&self) -> Vec<MessageId> {
        self.state().dead.clone()
    }

    /// The receipts of everything under a lease.
    #[must_use]
    pub fn leased(&self) -> Vec<Receipt> {
        self.state().given.keys().map(|number| Receipt::number(*number)).collect()
    }
}

#[async_trait]
impl Receiver for Queue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        loop {
            let deliveries = self.take(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            crate::yield_once().await;
        }
    }

    async fn extend(&self, _receipts: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let copy = receipt.as_number().and_then(|number| self.state().given.remove(&number));
        let Some(copy) = copy else {
            self.world.count(Seen::LeaseLost);
            return Ok(Settled::LeaseLost);
        };
        match settlement {
            Settlement::Ack => {
                self.world.ghost(|ghost| invariants::ack_implies_done(ghost, &copy.envelope.message_id));
            }
            // Here letters have a place of their own, and are never in both.
            Settlement::DeadLetter { reason } => {
                let id = copy.envelope.message_id.clone();
                self.world.ghost(|_| Err::<(), _>(format!("{id} was dead-lettered at the broker: {reason}")));
                self.state().dead.push(id);
            }
            Settlement::Retry { counts, .. } => {
                let deliveries = copy.deliveries - u32::from(!counts);
                self.state().waiting.push_back(Copy { deliveries, ..copy });
            }
        }
        Ok(Settled::Done)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Queue")
            .field("waiting", &state.waiting.len())
            .field("given", &state.given.len())
            .finish_non_exhaustive()
    }
}

/// Takes every message, writes it down, and puts it into the queue of its endpoint if there is one.
#[derive(Debug, Clone)]
pub struct Sink {
    world: World,
    queues: BTreeMap<EndpointName, Queue>,
}

impl Sink {
    /// A sink before `queues`.
    #[must_use]
    pub fn new(world: World, queues: impl IntoIterator<Item = (EndpointName, Queue)>) -> Self {
        Self { world, queues: queues.into_iter().collect() }
    }
}

#[async_trait]
impl Dispatcher for Sink {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        if outgoing.envelope.message_type.as_str() == Unroutable::TYPE {
            return Err(Refused("there is no route to it".into()));
        }
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let one = |outgoing: &Outgoing| {
            if outgoing.envelope.message_type.as_str() == Unsendable::TYPE {
                let error = TransportError::new(ErrorKind::TooLarge, "dispatching", "it can never be sent");
                return Err(DispatchError::Permanent(error));
            }
            let again = self.world.ghost(|ghost| {
                let again = ghost.sent_now(outgoing);
                invariants::no_ghost_output(ghost)?;
                invariants::output_stable(ghost)?;
                Ok(again)
            });
            if again == Some(true) {
                self.world.count(Seen::SentAgain);
            }
            if let Destination::Endpoint(endpoint) = &outgoing.destination
                && let Some(queue) = self.queues.get(endpoint)
            {
                queue.put(outgoing.envelope.clone());
            }
            Ok(())
        };
        outgoing.iter().map(one).collect()
    }
}
