//! Queues inside one process: no service, real leases, and faults on request.
//!
//! What an endpoint sees is what a broker does: leases that run out, deliveries that are counted, delays, retries, dead
//! letters. With [`Faults`], seeded, also what a broker does on a bad day: copies, reordering, acks that get lost. Nothing
//! survives the process.

mod letters;
mod queue;
mod receiver;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    Sender,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, DeadLetter, DeadLetters, Delays, DispatchError, Dispatcher, ErrorKind, Page, Refused, StoreError,
        Transport, TransportCapabilities, TransportError,
    },
    time::Timestamp,
};
use letters::Letters;
use queue::{Held, Queue, Queued};
use receiver::EndpointQueue;
use tokio::{sync::Notify, time::Instant};

/// How long a lease lasts unless told otherwise: 30 s, long enough for any handler, and extended while one runs.
pub const LEASE: Duration = Duration::from_secs(30);
/// Largest message, in bytes as [`Envelope::size`] counts: what RabbitMQ takes since 4.0 unless configured, and more than any other
/// broker here does.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Most messages in all queues of a hub, those that are not due included, unless [told otherwise](InProcess::messages_max): half a
/// gigabyte of usual ones. Beyond it, sending fails for now.
pub const MESSAGES_MAX: usize = 1_000_000;
/// Most dead letters of a hub: more than a person reads, and little memory. Beyond it none is taken, and what was to become
/// one stays a message; a store keeps more.
pub const DEAD_LETTERS_MAX: usize = 10_000;
/// No copy of a message comes later than this and the longest hold of [`Faults`]; the queues are gone with the process
/// anyway.
const REDELIVERY_MAX: Duration = Duration::from_secs(3600);

/// A hub of queues, one for each endpoint. Cloning gives another handle to the same hub.
#[derive(Clone)]
pub struct InProcess(Arc<Hub>);

struct Hub {
    name: String,
    lease: Duration,
    faults: Faults,
    state: Mutex<State>,
    /// Something was settled: for [`InProcess::idle`].
    settled: Notify,
}

/// What goes wrong on purpose. Each is a probability from 0 to 1, drawn from the seed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// Seed of all that follows.
    pub seed: u64,
    /// A message is queued twice; the copy comes later, at a random moment within `delay_max`.
    pub duplicates: f64,
    /// A message is held back for a random time within `delay_max`, so that later ones overtake it.
    pub reorder: f64,
    /// Longest hold. Default none: a copy comes at once, and nothing is overtaken.
    pub delay_max: Duration,
    /// An ack gets lost: settling fails, and the message comes again when its lease has run out.
    pub lost_acks: f64,
}

impl Faults {
    const fn is_none(&self) -> bool {
        self.duplicates <= 0.0 && self.reorder <= 0.0 && self.lost_acks <= 0.0
    }
}

#[derive(Default)]
struct State {
    /// There are few, and each message asks several times: comparing some costs less than hashing one.
    queues: BTreeMap<EndpointName, Queue>,
    subscribers: BTreeMap<TypeName, BTreeSet<EndpointName>>,
    dead_letters: Letters,
    random: fastrand::Rng,
    /// Messages in all queues, leased ones included.
    messages: usize,
    messages_max: usize,
    /// Number of the next receipt and of the next held-back message.
    next: u64,
}

impl InProcess {
    /// A hub without faults; `name` is for messages.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_faults(name, LEASE, Faults::default())
    }

    /// A hub with `faults`, whose leases last `lease`.
    #[must_use]
    pub fn with_faults(name: impl Into<String>, lease: Duration, faults: Faults) -> Self {
        let random = fastrand::Rng::with_seed(faults.seed);
        let state = State { random, messages_max: MESSAGES_MAX, ..State::default() };
        Self(Arc::new(Hub { name: name.into(), lease, faults, state: Mutex::new(state), settled: Notify::new() }))
    }

    /// Most messages in all queues of the hub, for all its handles from now on. Default [`MESSAGES_MAX`]. Timeouts and what else is
    /// not due counts: where a million of them may wait at a time, more than that has to be allowed.
    #[must_use]
    pub fn messages_max(self, messages: usize) -> Self {
        self.0.state().messages_max = messages;
        self
    }

    /// Sends messages from outside any handler.
    ///
    /// What is sent to a name under which no endpoint has connected yet waits until one does; the first such message is
    /// logged as a warning. What is published while nobody subscribes goes nowhere.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }

    /// Waits until every queue is empty and everything given is settled; also for messages that are not due yet.
    ///
    /// So it waits for ever when something was sent to an endpoint that nobody runs, a mistyped one for example: that is
    /// logged as a warning when it is sent.
    pub async fn idle(&self) {
        loop {
            let settled = self.0.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable(); // Before the look, so that nothing settled in between is missed.
            if self.0.state().messages == 0 {
                return;
            }
            settled.await;
        }
    }

    /// How many messages wait for `endpoint` or are being handled there.
    #[must_use]
    pub fn backlog(&self, endpoint: &EndpointName) -> usize {
        let state = self.0.state();
        state.queues.get(endpoint).map_or(0, |queue| queue.ready.len() + queue.held.len() + queue.leased.len())
    }
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, state: &mut State, outgoing: &Outgoing) -> Result<(), DispatchError> {
        let subscribers: Vec<EndpointName>;
        let endpoints = match &outgoing.destination {
            Destination::Endpoint(endpoint) => std::slice::from_ref(endpoint),
            Destination::Topic(topic) => {
                subscribers = state.subscribers.get(topic).into_iter().flatten().cloned().collect();
                &subscribers
            }
        };
        if state.messages + endpoints.len() > state.messages_max {
            let most = state.messages_max;
            let why = format!("hub {} holds {most} messages; let its endpoints catch up, or allow more", self.name);
            return Err(DispatchError::Transient(TransportError::new(ErrorKind::Unavailable, "dispatching", why)));
        }
        for endpoint in endpoints {
            self.queue_one(state, endpoint, &outgoing.envelope);
        }
        Ok(())
    }

    fn queue_one(&self, state: &mut State, endpoint: &EndpointName, envelope: &Arc<Envelope>) {
        // The clock is looked at for what is held back alone: most messages go at once.
        let due = envelope.due.map(|due| Instant::now() + due.since(Timestamp::now()));
        let State { random, queues, messages, next, .. } = state;
        let mut hit = |probability: f64| probability > 0.0 && random.f64() < probability;
        let (held, copied) = (hit(self.faults.reorder), hit(self.faults.duplicates));
        let mut hold = || Instant::now() + self.faults.delay_max.mul_f64(random.f64());
        let first = if held { Some(hold()) } else { None };
        let copy = if copied { Some(hold()) } else { None };
        let queue = match queues.get_mut(endpoint) {
            Some(queue) => queue,
            None => {
                // Once for each name, since the queue stays. A queue nobody empties holds a message, so they are bounded.
                tracing::info!(hub = self.name, %endpoint, "no endpoint of this name has connected yet; its messages wait for it");
                queues.entry(endpoint.clone()).or_default()
            }
        };
        let mut put = |until: Option<Instant>| {
            let queued = Queued { envelope: envelope.clone(), deliveries: 0 };
            *messages += 1;
            match until.max(due) {
                None => queue.ready.push_back(queued),
                Some(until) => {
                    *next += 1;
                    queue.hold(Held { until, number: *next, queued });
                }
            }
        };
        put(first);
        if copy.is_some() {
            put(copy);
        }
        if !queue.ready.is_empty() {
            queue.arrived.notify_one();
        }
    }
}

#[async_trait]
impl Transport for InProcess {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            name: "in-process",
            lease: Some(self.0.lease),
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys: self.0.faults.is_none(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            durable: false,
            redelivery_max: REDELIVERY_MAX.saturating_add(self.0.faults.delay_max),
            offsets: false,
            marks: false,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let mut state = self.0.state();
        for message_type in types {
            state.subscribers.entry(message_type.clone()).or_default().insert(endpoint.clone());
        }
        let arrived = state.queues.entry(endpoint.clone()).or_default().arrived.clone();
        drop(state);
        let hub = Arc::new(self.clone());
        let receiver = Arc::new(EndpointQueue { hub: self.0.clone(), endpoint: endpoint.clone(), arrived });
        Ok(Connected { receiver, dispatcher: hub.clone(), dead_letters: Some(hub), marks: None })
    }
}

#[async_trait]
impl Dispatcher for InProcess {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let bytes = outgoing.envelope.size();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(Refused(format!("it has {bytes} bytes, more than the {MESSAGE_BYTES_MAX} allowed")));
        }
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut state = self.0.state();
        outgoing.iter().map(|outgoing| self.0.queue(&mut state, outgoing)).collect()
    }
}

#[async_trait]
impl DeadLetters for InProcess {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let mut state = self.0.state();
        if !state.dead_letters.has(letter) {
            let full = |why| StoreError::new(ErrorKind::Unavailable, "adding a dead letter", why);
            state.dead_letters.room(&self.0.name).map_err(full)?;
            state.dead_letters.add(letter.clone());
        }
        Ok(())
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.0.state().dead_letters.list(endpoint, page))
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let kept = &mut self.0.state().dead_letters;
        Ok(letters.iter().filter(|letter| kept.discard(letter)).count())
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("name", &self.0.name).field("messages", &self.0.state().messages).finish()
    }
}
