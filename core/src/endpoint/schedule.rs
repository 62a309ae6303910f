//! What is due later than the transport holds back waits in a schedule, and goes when its time has come.
//!
//! A message is with the schedule once `put` has confirmed it, and counts as sent from then on. Each process of the endpoint takes what
//! is due under a lease, gives it to the transport, and says that it is done. One that dies in between leaves a message that is
//! sent again under the same id once its lease has run out: what it goes to recognises it.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join;
use tokio::time::Instant;

use super::{Endpoint, EndpointBuilder};
use crate::{
    envelope::Outgoing,
    handler_error::chain,
    ids::EndpointName,
    metrics::{Event, Metrics},
    ports::{
        Clock, DeadLetter, DeadLetters, Delays, DispatchError, Dispatcher, Due, ErrorKind, Next, Receipt, Refused,
        Schedule, StoreError, Take, TransportCapabilities, TransportError,
    },
    sync::{Mutex, MutexGuard, Notify, sleep_until, timeout},
    time::Timestamp,
};

/// Messages that are taken at a time: enough to share a commit.
const TAKE_MAX: usize = 64;
/// Of so many bytes together, or one of more: what is held in memory for them.
const TAKE_BYTES_MAX: usize = 8 << 20;
/// Of these, as many are sent before it is said that they are done: a transport that is slow brings some of them to their end within the lease.
const SEND_MAX: usize = 16;
/// After this part of a lease nothing more is sent under it: by its end another process has the message.
const LEASE_SHARE: (u32, u32) = (3, 4);
/// How long they are given to no other process: as long as a pass may take, for it is a pass's second half. After a crash they are as late.
const LEASE: Duration = Duration::from_secs(60);
/// Longest rest between two looks: what another process has put, and died, is late by this at most.
const LOOK_LONGEST: Duration = Duration::from_secs(10);
/// Rest while what is due was tried in vain, or another process has it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// What is due for longer than this, and not sent, is told of in the endpoint's health: as long as a lease that was lost.
const OVERDUE_MAX: Duration = Duration::from_secs(120);
/// Of what a transport holds back, the part that is left to it: the rest is for clocks that differ, and for looks that are late.
const LEFT_TO_TRANSPORT: u32 = 2;

impl EndpointBuilder {
    /// Keeps what the endpoint sends and is due later than its transport holds messages back, until it is due. Without it, such a message
    /// is an error of the handler that sends it. In a transport that holds messages back for any time, nothing is put there.
    ///
    /// It may be the [`store`](Self::store) too. Several processes of the endpoint share it; other endpoints may.
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Self {
        self.schedule = Some(Arc::new(schedule));
        self
    }
}

/// Sends what is due soon, and what is not when it is.
#[derive(Debug)]
pub(super) struct Departures {
    endpoint: EndpointName,
    straight: Arc<dyn Dispatcher>,
    transport: &'static str,
    delays: Delays,
    schedule: Option<Arc<dyn Schedule>>,
    clock: Arc<dyn Clock>,
    board: Mutex<Board>,
    /// Something was put.
    put: Notify,
}

#[derive(Debug, Default)]
struct Board {
    /// When the first of what this process has put since it looked last is to be taken.
    soonest: Option<Instant>,
    overdue: Option<Duration>,
    failing: Option<String>,
}

impl Departures {
    pub(super) fn new(
        endpoint: &EndpointName,
        straight: Arc<dyn Dispatcher>,
        transport: &TransportCapabilities,
        schedule: Option<Arc<dyn Schedule>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            endpoint: endpoint.clone(),
            straight,
            transport: transport.name,
            delays: transport.delays,
            schedule,
            clock,
            board: Mutex::default(),
            put: Notify::new(),
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why what is due is not sent, for the endpoint's health: a warning, since all else goes on.
    pub(super) fn trouble(&self) -> Option<String> {
        let board = self.board();
        if let Some(why) = &board.failing {
            return Some(format!("the schedule cannot be reached: {why}"));
        }
        let overdue = board.overdue.filter(|overdue| *overdue > OVERDUE_MAX)?;
        Some(format!("a message of the schedule has been due for {overdue:?} and is not sent"))
    }

    /// How long before its due time a message is left to the transport.
    fn within(&self) -> Duration {
        match self.delays {
            Delays::Never => Duration::ZERO,
            Delays::UpTo(longest) => longest / LEFT_TO_TRANSPORT,
            Delays::Any => Duration::MAX,
        }
    }

    /// Whether it has to wait elsewhere than in the transport.
    fn waits(&self, outgoing: &Outgoing, from: Timestamp) -> bool {
        outgoing.envelope.due.is_some_and(|due| !self.delays.hold(due.since(from)))
    }

    /// What is said where there is no schedule.
    fn remedy(&self) -> String {
        let holds = match self.delays {
            Delays::UpTo(longest) => format!("{} holds messages back for {longest:?} at most", self.transport),
            _ => format!("{} does not hold messages back", self.transport),
        };
        format!("it is due later, and {holds}: add .schedule(..) to endpoint {}", self.endpoint)
    }

    async fn put(&self, later: &[Outgoing], now: Timestamp) -> Vec<Result<(), DispatchError>> {
        let Some(schedule) = &self.schedule else {
            // It was saved when the endpoint was put together otherwise, or enqueued. When its time has come it can be sent.
            return later.iter().map(|_| Err(self.unsent(ErrorKind::Misconfigured, self.remedy()))).collect();
        };
        if later.is_empty() {
            return Vec::new();
        }
        match schedule.put(&self.endpoint, later).await {
            Ok(()) => {
                self.expect(later, now);
                later.iter().map(|_| Ok(())).collect()
            }
            Err(e) if e.kind() == ErrorKind::TooLarge && later.len() == 1 => {
                let why = TransportError::new(ErrorKind::TooLarge, "putting a message into the schedule", chain(&e));
                vec![Err(DispatchError::Permanent(why))]
            }
            // One of them is to blame, and not the others.
            Err(e) if e.kind() == ErrorKind::TooLarge => {
                let mut results = Vec::with_capacity(later.len());
                for alone in later {
                    results.extend(Box::pin(self.put(std::slice::from_ref(alone), now)).await);
                }
                results
            }
            Err(e) => later.iter().map(|_| Err(self.unsent(e.kind(), chain(&e)))).collect(),
        }
    }

    /// Never for good: what the schedule does not take today it may take tomorrow.
    fn unsent(&self, kind: ErrorKind, why: String) -> DispatchError {
        DispatchError::Transient(TransportError::new(kind, "putting a message into the schedule", why))
    }

    /// Lets whoever waits for the next due time know of an earlier one.
    fn expect(&self, later: &[Outgoing], now: Timestamp) {
        let Some(due) = later.iter().filter_map(|outgoing| outgoing.envelope.due).min() else { return };
        let soonest = Instant::now() + due.since(now).saturating_sub(self.within());
        let mut board = self.board();
        board.soonest = Some(board.soonest.map_or(soonest, |known| known.min(soonest)));
        drop(board);
        self.put.notify_one();
    }

    /// Never ends, if there is a schedule.
    async fn depart(&self, letters: &dyn DeadLetters, metrics: &dyn Metrics) {
        let Some(schedule) = &self.schedule else { return };
        loop {
            // Before it is looked: what is put from here on is seen, or expected.
            self.board().soonest = None;
            // A transport that does not answer must not be taken for one that has nothing to do.
            let looked = timeout(LEASE, self.look(schedule.as_ref(), letters, metrics)).await;
            let failing = match looked {
                Ok(Ok(rest)) => {
                    self.board().failing = None;
                    self.rest(rest).await;
                    continue;
                }
                Ok(Err(error)) => chain(&error),
                Err(_) => format!("sending what is due has taken longer than {LEASE:?}"),
            };
            tracing::warn!(endpoint = %self.endpoint, why = failing, "a look into the schedule failed; there will be another");
            self.board().failing = Some(failing);
            let rest = LOOK_AGAIN;
            self.rest(rest).await;
        }
    }

    /// Sends what is due. Answers for how long there is nothing more to do.
    async fn look(
        &self,
        schedule: &dyn Schedule,
        letters: &dyn DeadLetters,
        metrics: &dyn Metrics,
    ) -> Result<Duration, StoreError> {
        let take = Take { within: self.within(), max: TAKE_MAX, bytes_max: TAKE_BYTES_MAX, lease: LEASE };
        let begun = Instant::now();
        let taken = schedule.take_due(&self.endpoint, take).await?;
        for some in taken.chunks(SEND_MAX) {
            // Whoever was stopped for long has lost them (S39). They come again.
            if begun.elapsed() > LEASE * LEASE_SHARE.0 / LEASE_SHARE.1 {
                break;
            }
            let sent = self.send(some, letters).await;
            if !sent.is_empty() {
                schedule.done(&self.endpoint, &sent).await?;
            }
        }
        let next = schedule.next(&self.endpoint).await?;
        let overdue = match next {
            Some(Next::Overdue(overdue)) => Some(overdue),
            Some(Next::In(_)) | None => None,
        };
        self.board().overdue = overdue;
        metrics.observe(Event::Overdue(&self.endpoint, overdue));
        let wait = match next {
            Some(Next::In(wait)) => wait.saturating_sub(self.within()),
            Some(Next::Overdue(_)) => Duration::ZERO,
            None => LOOK_LONGEST,
        };
        // Whatever became of what was taken, nobody is given it for now, and what is due behind it may be for others: a destination
        // that takes nothing is tried now and then, and costs nothing meanwhile.
        Ok(if wait.is_zero() && taken.is_empty() { LOOK_AGAIN } else { wait.min(LOOK_LONGEST) })
    }

    /// The receipts of what need not be sent again. The rest comes again when its lease has run out.
    async fn send(&self, taken: &[Due], letters: &dyn DeadLetters) -> Vec<Receipt> {
        if taken.is_empty() {
            return Vec::new();
        }
        let (now, _) = self.clock.now().await;
        let outgoing: Vec<Outgoing> = taken.iter().map(|due| due.outgoing.clone()).collect();
        let mut results = self.straight.dispatch(&outgoing).await.into_iter();
        let mut sent = Vec::with_capacity(taken.len());
        for due in taken {
            let gone = match results.next() {
                Some(Ok(())) => true,
                Some(Err(DispatchError::Permanent(e))) => self.set_aside(&due.outgoing, chain(&e), now, letters).await,
                Some(Err(e @ DispatchError::Transient(_))) => self.stays(&due.outgoing, &chain(&e)),
                None => self.stays(&due.outgoing, "the dispatcher gave no result for it"),
            };
            if gone {
                sent.push(due.receipt.clone());
            }
        }
        sent
    }

    fn stays(&self, outgoing: &Outgoing, why: &str) -> bool {
        let message_id = &outgoing.envelope.message_id;
        tracing::warn!(endpoint = %self.endpoint, %message_id, why, "a message that is due cannot be sent yet");
        false
    }

    /// Sets aside what can never be sent, confirmed, so that it counts as sent (S67).
    async fn set_aside(&self, outgoing: &Outgoing, reason: String, now: Timestamp, letters: &dyn DeadLetters) -> bool {
        let letter = DeadLetter {
            envelope: outgoing.envelope.clone(),
            endpoint: self.endpoint.clone(),
            saga: None,
            destination: Some(outgoing.destination.clone()),
            reason,
            attempts: 1,
            time: now,
        };
        match letters.add(&letter).await {
            Ok(()) => true,
            Err(e) => self.stays(outgoing, &chain(&e)),
        }
    }

    /// For so long, or until something is due that was put meanwhile.
    async fn rest(&self, rest: Duration) {
        let end = Instant::now() + rest;
        loop {
            let at = self.board().soonest.map_or(end, |soonest| soonest.min(end));
            tokio::select! {
                biased;
                () = sleep_until(at) => return,
                () = self.put.notified() => {}
            }
        }
    }
}

#[async_trait]
impl Dispatcher for Departures {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        // From when the handler has sent it, so that every try is judged alike.
        let from = outgoing.envelope.occurred_at.unwrap_or_else(Timestamp::now);
        if self.waits(outgoing, from) {
            let Some(schedule) = &self.schedule else { return Err(Refused(self.remedy())) };
            let (capabilities, bytes) = (schedule.schedule_capabilities(), outgoing.envelope.size());
            if bytes > capabilities.message_bytes_max {
                let (name, bytes_max) = (capabilities.name, capabilities.message_bytes_max);
                return Err(Refused(format!("it has {bytes} bytes, and the schedule in {name} takes {bytes_max}")));
            }
        }
        self.straight.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        if outgoing.iter().all(|outgoing| outgoing.envelope.due.is_none()) {
            return self.straight.dispatch(outgoing).await;
        }
        let (now, _) = self.clock.now().await;
        let waits: Vec<bool> = outgoing.iter().map(|outgoing| self.waits(outgoing, now)).collect();
        let of = |later: bool| -> Vec<Outgoing> {
            let all = outgoing.iter().zip(&waits).filter(|(_, waits)| **waits == later);
            all.map(|(outgoing, _)| outgoing.clone()).collect()
        };
        let (soon, later) = (of(false), of(true));
        let straight = async { if soon.is_empty() { Vec::new() } else { self.straight.dispatch(&soon).await } };
        let (sent, put) = join(straight, self.put(&later, now)).await;
        let (mut sent, mut put) = (sent.into_iter(), put.into_iter());
        let result = |waits: bool| {
            let result = if waits { put.next() } else { sent.next() };
            result.unwrap_or_else(|| Err(self.unsent(ErrorKind::UnknownOutcome, "no result was given for it".into())))
        };
        waits.into_iter().map(result).collect()
    }
}

impl Endpoint {
    /// Sends what becomes due in the schedule; never ends, if there is one.
    pub(super) async fn send_due(&self) {
        if let Some(departures) = &self.departures {
            departures.depart(self.letters.as_ref(), self.deliver.metrics.as_ref()).await;
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/schedule.rs"]
mod interleaved;
