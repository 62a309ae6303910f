//! Ports that ask the explorer: every await of the manager and of `deliver` ends here.

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Scope},
    metrics::{Event, Metrics},
    ports::{
        Backoff, Cause, Clock, DeadLetter, DeadLetters, DedupCapabilities, DedupStore, Delivery, DispatchError,
        Dispatcher, EntityStore, ErrorKind, Evicted, Finished, Granted, Ids, Keep, Known, Loaded, LongMemory, Moment,
        Page, Pending, Receipt, Receiver, Refused, Saved, Settled, Settlement, StoreCapabilities, StoreError,
        TransportError,
    },
    time::{Monotonic, Timestamp},
};

use super::{
    calls::{Failure, Op, Reply, Save},
    outside::Called,
    scenario::{Evicts, Scenario},
};

/// 2026-01-01: the time of every explored world, in which only the sweeper comes later.
const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Beyond any deadline.
const LATE: Monotonic = Monotonic(Duration::from_secs(1_000_000));

/// The calls of one task, in order, with the answers that there are.
#[derive(Debug, Default)]
pub(super) struct Line {
    calls: Vec<(Op, Option<Reply>)>,
    /// What was observed.
    pub(super) events: Vec<&'static str>,
    /// Which services outside were called, and under which keys.
    pub(super) outside: Vec<Called>,
}

/// A task's end of its line to the explorer. Cloning gives another handle. Where tasks share a manager they share its
/// wire, and a call goes to the line of the task that is running.
#[derive(Clone, Default)]
pub(super) struct Wire {
    current: Arc<Mutex<Arc<Mutex<Line>>>>,
    /// One store keeps entities and marks.
    pub(super) together: bool,
    /// Passes ask what was folded, too.
    pub(super) recalls: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub(super) fn new(together: bool) -> Self {
        Self { current: Arc::default(), together, recalls: false }
    }

    /// As the stores of `scenario` are.
    pub(super) fn of(scenario: &Scenario) -> Self {
        Self { recalls: scenario.evicts == Evicts::Folded, ..Self::new(scenario.together) }
    }

    /// Another of the same kind.
    pub(super) fn anew(&self) -> Self {
        Self { current: Arc::default(), ..*self }
    }

    /// The line of the task that is running.
    pub(super) fn line(&self) -> Arc<Mutex<Line>> {
        lock(&self.current).clone()
    }

    /// From here on the task with this line is running.
    pub(super) fn switch(&self, line: &Arc<Mutex<Line>>) {
        *lock(&self.current) = line.clone();
    }

    fn ask(&self, op: Op) -> impl Future<Output = Reply> + Send + use<> {
        let (wire, mut asked, mut op) = (self.clone(), None, Some(op));
        poll_fn(move |_| {
            if let Some(op) = op.take() {
                let line = wire.line();
                let number = lock(&line).calls.len();
                lock(&line).calls.push((op, None));
                asked = Some((line, number));
            }
            let reply = asked.as_ref().and_then(|(line, number)| lock(line).calls.get(*number)?.1.clone());
            reply.map_or(Poll::Pending, Poll::Ready)
        })
    }

    async fn ask_store(&self, op: Op, operation: &'static str) -> Result<Reply, StoreError> {
        match self.ask(op).await {
            Reply::Failed(failure) => Err(StoreError::new(kind_of(failure), operation, "as the explorer said")),
            reply => Ok(reply),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    /// Answers the call with `number`.
    pub(super) fn answer(&mut self, number: usize, reply: Reply) {
        self.calls[number].1 = Some(reply);
    }

    /// The calls that are not answered.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &Op)> {
        self.calls.iter().enumerate().filter(|(_, (_, reply))| reply.is_none()).map(|(number, (op, _))| (number, op))
    }
}

const fn kind_of(failure: Failure) -> ErrorKind {
    match failure {
        Failure::Refused => ErrorKind::Unavailable,
        Failure::Unknown => ErrorKind::UnknownOutcome,
        Failure::Never => ErrorKind::Denied,
        Failure::TooLarge => ErrorKind::TooLarge,
        Failure::Malformed => ErrorKind::Malformed,
    }
}

/// What no world of an explorer answers is a mistake of the explorer.
#[track_caller]
fn not(reply: &Reply) -> ! {
    unreachable!("the explorer gave {reply:?} to a call that cannot take it")
}

#[async_trait]
impl EntityStore for Wire {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "explored",
            entity_bytes_max: 1 << 20,
            together: self.together,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        match self.ask_store(Op::Load { key: key.clone(), ids: ids.to_vec() }, "loading an entity").await? {
            Reply::Loaded(stored, known) => Ok(Loaded { stored, known }),
            reply => not(&reply),
        }
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let (expected, entity, processed) = (expected.clone(), entity.clone(), processed.to_vec());
        match self.ask_store(Op::Save(Save { key: key.clone(), expected, entity, processed }), "saving").await? {
            Reply::Saved(saved) => Ok(saved),
            reply => not(&reply),
        }
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        if !self.together {
            return Ok(None);
        }
        let clean_up = clean_up.map(|(version, entity)| (version.clone(), entity.clone()));
        let op = Op::Finish { key: key.clone(), done: done.to_vec(), clean_up };
        match self.ask_store(op, "finishing").await? {
            Reply::Finished(finished) => Ok(finished),
            reply => not(&reply),
        }
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        match self.ask_store(Op::Version(key.clone()), "reading a version").await? {
            Reply::Version(version) => Ok(version),
            reply => not(&reply),
        }
    }

    async fn pending(
        &self,
        _: &Arc<Scope>,
        _: Duration,
        _: Option<&EntityKey>,
        _: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        Ok(Vec::new()) // The explorer itself says what is swept.
    }

    async fn purge(&self, _: &Arc<Scope>, _: Duration, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl DedupStore for Wire {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "explored",
            keeps: None,
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: usize::MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        match self.ask_store(Op::Contains(keys.to_vec()), "asking the dedup store").await? {
            Reply::Known(known) => Ok(known),
            reply => not(&reply),
        }
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.ask_store(Op::Insert(entries.to_vec()), "inserting dedup entries").await.map(drop)
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        Some(self)
    }
}

#[async_trait]
impl LongMemory for Wire {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        match self.ask_store(Op::Recall(keys.to_vec()), "asking what was folded").await? {
            Reply::Known(known) => Ok(known),
            reply => not(&reply),
        }
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        Ok(Moment(0))
    }

    /// The explorer itself says what is evicted.
    async fn evict_keeping(&self, _: &Keep<'_>) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }

    async fn withdraw(&self, _: &EndpointName) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Dispatcher for Wire {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let failed = |failure| {
            let error = TransportError::new(kind_of(failure), "dispatching", "as the explorer said");
            match failure {
                Failure::Never => DispatchError::Permanent(error),
                _ => DispatchError::Transient(error),
            }
        };
        match self.ask(Op::Dispatch(outgoing.to_vec())).await {
            Reply::Dispatched(results) => results.into_iter().map(|result| result.map_err(failed)).collect(),
            reply => not(&reply),
        }
    }
}

#[async_trait]
impl DeadLetters for Wire {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.ask_store(Op::SetAside(Box::new(letter.clone())), "setting a message aside").await.map(drop)
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    /// A person's doing, and no part of what is explored.
    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl Receiver for Wire {
    async fn receive(&self, _: usize) -> Result<Vec<Delivery>, TransportError> {
        Ok(Vec::new()) // The explorer itself says what is delivered.
    }

    async fn extend(&self, _: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let place = receipt.as_number().and_then(|place| place.try_into().ok()).unwrap_or(u8::MAX);
        match self.ask(Op::Settle(place, settlement)).await {
            Reply::Settled(settled) => Ok(settled),
            Reply::Failed(failure) => Err(TransportError::new(kind_of(failure), "settling", "as the explorer said")),
            reply => not(&reply),
        }
    }
}

#[async_trait]
impl Clock for Wire {
    async fn now(&self) -> (Timestamp, Monotonic) {
        match self.ask(Op::Now).await {
            Reply::Now => (NOW, Monotonic::default()),
            Reply::Later => (NOW.after(Duration::from_secs(3600)), Monotonic::default()),
            reply => not(&reply),
        }
    }

    async fn monotonic(&self) -> Monotonic {
        match self.ask(Op::Monotonic).await {
            Reply::InTime(true) => Monotonic::default(),
            Reply::InTime(false) => LATE,
            reply => not(&reply),
        }
    }
}

#[async_trait]
impl Ids for Wire {
    async fn attempt(&self) -> AttemptId {
        match self.ask(Op::Attempt).await {
            Reply::Attempt(attempt) => attempt,
            reply => not(&reply),
        }
    }

    fn numbers(&self) -> bool {
        false // Numbers that are drawn are of no attempt at all, and would make worlds without end.
    }

    async fn number(&self, _: &mut [Outgoing]) {}
}

#[async_trait]
impl Backoff for Wire {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        match self.ask(Op::Pause { cause, tries }).await {
            Reply::Granted(granted) => granted,
            reply => not(&reply),
        }
    }
}

/// What a pass tells when what it has handled is saved.
pub(super) const SAVED: &str = "saved";

impl Metrics for Wire {
    fn observe(&self, event: Event<'_>) {
        lock(&self.line()).events.push(match event {
            Event::Handled(_) => "handled",
            Event::Saved(_) => SAVED,
            Event::Duplicate(_) => "dedup hit",
            Event::Dropped(..) => "dropped by a rule",
            Event::DeadLettered(_) => "dead-lettered",
            Event::LeftToSweeper(_) => "left to the sweeper",
            Event::Retried(_, Cause::Conflict) => "conflict",
            Event::Retried(..) => "tried again",
            Event::OutgoingDeadLettered(_) => "outgoing dead-lettered",
            Event::Swept(..) => "swept",
            Event::RetentionBreached(_) => "retention breached",
            _ => return,
        });
    }
}
