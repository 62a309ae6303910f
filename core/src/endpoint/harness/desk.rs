//! The world of a test under one lock: clock, ids, queue, letters. Time stands still until the test sets it, and nothing is drawn at random.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    deliver::Recoverability,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Backoff, Cause, Clock, Connected, DeadLetter, DeadLetters, Delays, Delivery, DispatchError, Dispatcher,
        ErrorKind, Granted, Page, Receipt, Receiver, Refused, Settled, Settlement, StoreError, Transport,
        TransportCapabilities, TransportError,
    },
    time::{Monotonic, Timestamp},
};

/// Where the time of a test begins: 2000-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp::from_millis(946_684_800_000);

/// All that a test puts in place of the world: time, waiting, and a transport in that time. Its queue is the endpoint's.
#[derive(Debug)]
pub(super) struct Desk {
    /// With the budgets of retries in place; their waits take no time.
    recoverability: Recoverability,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    time: Timestamp,
    endpoint: Option<EndpointName>,
    subscribed: HashSet<TypeName>,
    /// In the order in which they are given: by time, then as they came.
    queue: BTreeMap<(Timestamp, u64), Queued>,
    leased: HashMap<u64, Queued>,
    next: u64,
    ids: u128,
    came: Vec<Arc<Envelope>>,
    sent: Vec<Outgoing>,
    /// Of `sent`: under one id again it is a repeat.
    told: HashSet<(MessageId, Destination)>,
    refuse: usize,
    letters: Vec<DeadLetter>,
}

#[derive(Debug, Clone)]
struct Queued {
    envelope: Arc<Envelope>,
    attempts: u32,
}

impl State {
    fn put(&mut self, at: Timestamp, queued: Queued) {
        self.next += 1;
        self.queue.insert((at.max(self.time), self.next), queued);
    }

    fn arrive(&mut self, envelope: Arc<Envelope>) {
        let due = envelope.due.unwrap_or(self.time);
        self.came.push(envelope.clone());
        self.put(due, Queued { envelope, attempts: 0 });
    }

    fn send(&mut self, outgoing: &Outgoing) -> Result<(), DispatchError> {
        if self.refuse > 0 {
            self.refuse -= 1;
            let why = TransportError::new(ErrorKind::Unavailable, "dispatching", "refused, as the test wants it");
            return Err(DispatchError::Transient(why));
        }
        let own = match &outgoing.destination {
            Destination::Endpoint(endpoint) => Some(endpoint) == self.endpoint.as_ref(),
            Destination::Topic(topic) => self.subscribed.contains(topic),
        };
        if own {
            self.arrive(outgoing.envelope.clone());
        }
        if self.told.insert((outgoing.envelope.message_id.clone(), outgoing.destination.clone())) {
            self.sent.push(outgoing.clone());
        }
        Ok(())
    }
}

impl Desk {
    pub(super) fn new(recoverability: Recoverability) -> Self {
        let state = State {
            time: BEGIN,
            endpoint: None,
            subscribed: HashSet::new(),
            queue: BTreeMap::new(),
            leased: HashMap::new(),
            next: 0,
            ids: 0,
            came: Vec::new(),
            sent: Vec::new(),
            told: HashSet::new(),
            refuse: 0,
            letters: Vec::new(),
        };
        Self { recoverability, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn time(&self) -> Timestamp {
        self.state().time
    }

    pub(super) fn set_time(&self, time: Timestamp) {
        self.state().time = time;
    }

    /// The ids of a test are the same in every run.
    pub(super) fn next_id(&self) -> MessageId {
        let mut state = self.state();
        state.ids += 1;
        Uuid::from_u128(state.ids).into()
    }

    pub(super) fn put(&self, envelope: Arc<Envelope>) {
        self.state().arrive(envelope);
    }

    pub(super) fn put_all_again(&self) {
        let mut state = self.state();
        let time = state.time;
        for envelope in state.came.clone() {
            state.put(envelope.due.unwrap_or(time), Queued { envelope, attempts: 0 });
        }
    }

    pub(super) fn refuse(&self, count: usize) {
        self.state().refuse = count;
    }

    pub(super) fn sent(&self) -> Vec<Outgoing> {
        self.state().sent.clone()
    }

    pub(super) fn waiting(&self) -> Vec<(Timestamp, Arc<Envelope>)> {
        self.state().queue.iter().map(|((due, _), queued)| (*due, queued.envelope.clone())).collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.state().queue.first_key_value().map(|((due, _), _)| *due)
    }

    /// What is due, at most `max`.
    pub(super) fn take(&self, max: usize) -> Vec<Delivery> {
        let mut state = self.state();
        let (time, mut deliveries) = (state.time, Vec::new());
        while deliveries.len() < max
            && let Some(first) = state.queue.first_entry()
            && first.key().0 <= time
        {
            let ((_, number), mut queued) = first.remove_entry();
            queued.attempts += 1;
            let (envelope, attempts) = (queued.envelope.clone(), queued.attempts);
            deliveries.push(Delivery { envelope, receipt: Receipt::number(number), attempts });
            state.leased.insert(number, queued);
        }
        deliveries
    }
}

#[async_trait]
impl Clock for Desk {
    async fn now(&self) -> (Timestamp, Monotonic) {
        (self.time(), self.monotonic().await)
    }

    async fn monotonic(&self) -> Monotonic {
        Monotonic(self.time().since(BEGIN))
    }
}

#[async_trait]
impl Backoff for Desk {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        if tries > self.recoverability.budget(cause).max { Granted::Stop } else { Granted::Try }
    }
}

/// The queue of the endpoint.
#[async_trait]
impl Receiver for Desk {
    /// The test gives what there is itself.
    async fn receive(&self, _max: usize) -> Result<Vec<Delivery>, TransportError> {
        std::future::pending().await
    }

    async fn extend(&self, _receipts: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let mut state = self.state();
        let Some(queued) = receipt.as_number().and_then(|number| state.leased.remove(&number)) else {
            return Ok(Settled::LeaseLost);
        };
        if let Settlement::Retry { delay, counts } = settlement {
            let (at, attempts) = (state.time.after(delay), queued.attempts - u32::from(!counts));
            state.put(at, Queued { attempts, ..queued });
        }
        Ok(Settled::Done)
    }
}

#[async_trait]
impl Dispatcher for Desk {
    fn check(&self, _outgoing: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut state = self.state();
        outgoing.iter().map(|outgoing| state.send(outgoing)).collect()
    }
}

/// The place for letters of an endpoint that has no other.
#[async_trait]
impl DeadLetters for Desk {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let mut state = self.state();
        if !state.letters.iter().any(|kept| kept.is_same(letter)) {
            state.letters.push(letter.clone());
        }
        Ok(())
    }

    async fn list(&self, _endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let state = self.state();
        let wanted = state.letters.iter().filter(|letter| page.wants(letter));
        Ok(wanted.skip(page.skip).take(page.limit).cloned().collect())
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let mut state = self.state();
        let before = state.letters.len();
        state.letters.retain(|kept| !letters.iter().any(|letter| letter.is_same(kept)));
        Ok(before - state.letters.len())
    }
}

/// A [`Desk`] that others hold too.
#[derive(Debug)]
pub(super) struct AtDesk(pub(super) Arc<Desk>);

#[async_trait]
impl Transport for AtDesk {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            name: "test",
            lease: None,
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys: true,
            message_bytes_max: usize::MAX,
            durable: false,
            redelivery_max: Duration::ZERO,
            offsets: false,
            marks: false,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let Self(desk) = self;
        let mut state = desk.state();
        state.endpoint = Some(endpoint.clone());
        state.subscribed.extend(types.iter().cloned());
        drop(state);
        Ok(Connected {
            receiver: desk.clone(),
            dispatcher: desk.clone(),
            dead_letters: Some(desk.clone()),
            marks: None,
        })
    }
}
