//! The shell around the heart: receives, keeps one entity's messages in one lane, bounds what is in flight, stops in
//! order, sweeps and evicts.
//!
//! Everything here may be late, run twice or be dropped at any moment. The promise rests on the manager and `deliver`, and
//! on two parts of this shell, which no model explores: a message for several sagas is acknowledged when all of them are
//! done with it (`joint`), and one that no saga takes when its letter is confirmed (`Lanes::refuse`).
//! All passes are polled in the task that runs the endpoint; a handler that computes for long belongs on a blocking thread.

mod audit;
mod bodies;
mod builder;
mod circuit;
mod error;
mod evicting;
mod flow;
mod handle;
#[cfg(feature = "testing")]
pub(crate) mod harness;
mod history;
mod joint;
mod lanes;
mod maintenance;
mod nothing;
pub mod office;
mod outage;
mod outlets;
#[cfg(feature = "cron")]
mod recurring;
mod schedule;
mod sequences;
mod stopping;
mod suspects;
mod system;
mod warned;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use audit::Auditor;
pub use audit::{Audit, AuditCount, AuditReport, StoreAudit};
pub(crate) use builder::check_timers;
pub use builder::{EndpointBuilder, Settings};
use circuit::Circuit;
pub use error::{Error, ErrorKind};
pub use evicting::Eviction;
use evicting::Evidence;
pub use flow::Rate;
use flow::{Held, Room};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, FusedFuture},
    stream,
};
pub use handle::{EndpointHandle, Health};
use joint::Joint;
use lanes::Lanes;
pub(crate) use nothing::Nothing;
use office::DeadLetterOffice;
use outage::Outage;
#[cfg(feature = "cron")]
pub use recurring::{Calendar, NoCalendar};
use schedule::Departures;
use stopping::Stopping;
pub use system::{Jittered, RandomIds, SystemClock};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

#[cfg(feature = "testing")]
use crate::codec::Codec;
use crate::{
    claim::Spill,
    deliver::Deliver,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    manager::{Passes, Stores},
    ports::{DeadLetters, Delivery, Dispatcher, Evicted, Receipt, Receiver, Settlement, StoreError, TransportError},
    seal::Seals,
    trace::Spans,
};

/// A named receiver of messages, with its sagas, its stores and its transport.
#[must_use = "an endpoint handles nothing until it is run"]
pub struct Endpoint {
    name: EndpointName,
    managers: Arc<[Arc<dyn Passes>]>,
    /// Of what was enqueued: it handles nothing, there is only something to send.
    enqueued: Vec<Arc<dyn Passes>>,
    /// Which managers handle a message type.
    takers: BTreeMap<TypeName, Vec<usize>>,
    receiver: Arc<Joint>,
    deliver: Deliver,
    dispatcher: Arc<dyn Dispatcher>,
    /// Where the transport does not hold everything back itself.
    departures: Option<Arc<Departures>>,
    letters: Arc<dyn DeadLetters>,
    circuit: Arc<Circuit>,
    spans: Spans,
    handle: EndpointHandle,
    /// Says that it has stopped, however it ends.
    _ended: handle::Ended,
    stores: Stores,
    seals: Seals,
    spill: Option<Arc<Spill>>,
    /// Of messages that a test sends.
    #[cfg(feature = "testing")]
    codec: Codec,
    lease: Option<Duration>,
    /// What is given more often than this may be what kills the process.
    suspect_above: u32,
    settings: Settings,
    inboxes: Vec<Evict>,
    evidence: Option<Evidence>,
    auditor: Arc<Auditor>,
    /// What it tells itself when it begins.
    begin: Vec<Outgoing>,
    /// Messages whose handling has ended since upkeep looked last.
    handled: AtomicU64,
    #[cfg(feature = "testing")]
    drops: Option<crate::testing::Drops>,
}

/// How old entries of an inbox are removed.
pub(crate) type Evict = Arc<dyn Fn(Duration) -> BoxFuture<'static, Result<Evicted, StoreError>> + Send + Sync>;

/// Leases are extended when a third of them has passed: two more tries before they run out.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// Rest after the transport failed, so that a broker that is down is not hammered.
const RECEIVE_RETRY: Duration = Duration::from_millis(500);
/// How often an endpoint tells itself what it does by the calendar. A new version of a program is heard within this, once the last process of
/// the old one has stopped; each time is a message and a save for each name.
const TELL_ITSELF: Duration = Duration::from_secs(600);
/// Messages that are given back at the same time: as a broker takes them well, and what is many is soon back.
const GIVEN_BACK_AT_ONCE: usize = 16;
/// Rest before each message that is received while the stores cannot be reached.
const RECEIVE_REST: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Begins an endpoint. The name is part of every dedup key: renaming it forgets what was seen.
    pub fn builder(name: impl Into<String>) -> EndpointBuilder {
        EndpointBuilder::new(name)
    }

    /// Stays with whoever runs it: how it is, and what may change while it runs.
    #[must_use]
    pub fn handle(&self) -> EndpointHandle {
        self.handle.clone()
    }

    /// What was set aside, for a person, and what `by` can do with it: a name for the record. The endpoint need not run for it, nor
    /// in this process. While it runs, its [handle](EndpointHandle::dead_letter_office) has the same.
    #[must_use]
    pub fn dead_letter_office(&self, by: impl Into<String>) -> DeadLetterOffice {
        self.handle.dead_letter_office(by)
    }

    /// Handles messages until `stop` is ready, then lets what has begun come to its end.
    ///
    /// # Errors
    /// None once it runs: what fails is retried, and what cannot succeed is set aside.
    pub async fn run_until<F: Future>(mut self, stop: F) -> Result<(), Error> {
        let (stopping, backoff) = Stopping::new(self.deliver.backoff.clone());
        self.deliver.backoff = Arc::new(backoff);
        let mut lanes = Lanes::new(&self);
        let mut maintenance = std::pin::pin!(self.maintain());
        let mut beginning = std::pin::pin!(self.tell_itself().fuse());
        let mut extension = interval(self.extension_interval());
        extension.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut receiving: Option<BoxFuture<'_, Result<Vec<Delivery>, TransportError>>> = None;
        let mut outage = Outage::default();
        let mut stop = std::pin::pin!(stop);
        let handle = self.handle.clone();
        let mut turn = interval(handle::TURN);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tracing::info!(endpoint = %self.name, "started");
        loop {
            handle.shared().turned();
            let room = handle.shared().room(lanes.held());
            if receiving.is_none() && !lanes.suspects.at_work() {
                receiving = match room {
                    // More could not be handled; and one may be for an entity that can be reached.
                    Room::For(_) if self.circuit.is_open() => Some(self.receive_after(RECEIVE_REST, 1).boxed()),
                    Room::For(_) if lanes.suspects.are_about() => Some(self.receive(1).boxed()),
                    Room::For(room) => Some(self.receive(room).boxed()),
                    Room::Later(_) | Room::None => None,
                };
            }
            let later = match room {
                Room::Later(at) if receiving.is_none() => Some(at),
                _ => None,
            };
            tokio::select! {
                _ = &mut stop => break,
                Some(done) = lanes.running.next(), if !lanes.running.is_empty() => lanes.several_ended(done),
                received = async { receiving.as_mut().expect("guarded").await }, if receiving.is_some() => {
                    receiving = None;
                    handle.shared().received(&received);
                    match received {
                        Ok(deliveries) => {
                            outage.is_over(&self.name);
                            lanes.take(deliveries);
                        }
                        Err(error) => {
                            outage.failed(&self.name, &error);
                            receiving = Some(self.receive_after(RECEIVE_RETRY, 1).boxed());
                        }
                    }
                }
                _ = extension.tick(), if self.lease.is_some() => self.extend(lanes.receipts()).await,
                () = &mut maintenance => {}
                () = &mut beginning, if !beginning.is_terminated() => {}
                // What is received by the old bounds is let go of: it comes again.
                () = handle.shared().changed.notified() => receiving = None,
                () = async { sleep_until(later.expect("guarded")).await }, if later.is_some() => {}
                _ = turn.tick() => {
                    lanes.shed();
                    self.circuit.turned();
                }
            }
        }
        handle.shared().stopping();
        drop(receiving);
        stopping.send_replace(true);
        self.drain(lanes).await;
        tracing::info!(endpoint = %self.name, "stopped");
        Ok(())
    }

    /// Never ends, if there is anything to tell: while two versions of a program run, the other one may be given what is told.
    async fn tell_itself(&self) {
        while !self.begin.is_empty() {
            let mut left: Vec<Outgoing> = self.begin.iter().filter_map(|told| self.told_anew(told)).collect();
            while !left.is_empty() {
                let results = self.dispatcher.dispatch(&left).await;
                let mut results = results.iter();
                left.retain(|_| results.next().is_none_or(Result::is_err));
                if !left.is_empty() {
                    tracing::warn!(endpoint = %self.name, left = left.len(), "what it has to tell itself cannot be sent yet");
                    tokio::time::sleep(RECEIVE_RETRY).await;
                }
            }
            tokio::time::sleep(TELL_ITSELF).await;
        }
    }

    /// The same under an id of its own: it is meant again.
    fn told_anew(&self, told: &Outgoing) -> Option<Outgoing> {
        let mut envelope = Envelope { message_id: MessageId::random(), ..(*told.envelope).clone() };
        if let Err(error) = self.seals.seal(&mut envelope) {
            tracing::warn!(endpoint = %self.name, %error, "what it has to tell itself cannot be sealed");
            return None;
        }
        Some(Outgoing { envelope: Arc::new(envelope), ..told.clone() })
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.receiver.receive(max).await
    }

    async fn receive_after(&self, rest: Duration, max: usize) -> Result<Vec<Delivery>, TransportError> {
        tokio::time::sleep(rest).await;
        self.receiver.receive(max).await
    }

    /// What the messages of one entity may take of what may be held, while others want room.
    fn share(&self) -> Held {
        self.handle.shared().flow.share()
    }

    fn extension_interval(&self) -> Duration {
        const WITHOUT_LEASE: Duration = Duration::from_secs(3600);
        let lease = self.lease.map_or(WITHOUT_LEASE, |lease| lease / EXTENSIONS_PER_LEASE);
        lease.max(Duration::from_millis(1))
    }

    /// Best effort: a lease that runs out costs a duplicate, which is recognised.
    async fn extend(&self, receipts: Vec<Receipt>) {
        if receipts.is_empty() {
            return;
        }
        // It is waited for between two turns of the endpoint: a broker that does not answer must not hold them up for long.
        match timeout(self.extension_interval(), self.receiver.extend(&receipts)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(endpoint = %self.name, %error, "extending leases failed"),
            Err(_) => tracing::warn!(endpoint = %self.name, "extending leases has taken too long"),
        }
    }

    /// Gives messages back, uncounted, several at a time. One that the broker does not take comes again when its lease has run out.
    async fn give_back(&self, receipts: Vec<Receipt>, rest: Duration) {
        let settle = |receipt| async move {
            let back = Settlement::Retry { delay: rest, counts: false };
            if let Err(error) = self.receiver.settle(&receipt, back).await {
                tracing::debug!(endpoint = %self.name, %error, "giving a message back failed; its lease will run out");
            }
        };
        stream::iter(receipts).for_each_concurrent(GIVEN_BACK_AT_ONCE, settle).await;
    }

    /// Lets passes that have begun end, and gives back what has not begun. Nothing counts as failed (S74).
    async fn drain(&self, mut lanes: Lanes<'_>) {
        let giving_back = self.give_back(lanes.take_waiting(), Duration::ZERO).fuse();
        let ended = timeout(self.settings.stop_limit, async {
            let mut giving_back = std::pin::pin!(giving_back);
            let mut extension = interval(self.extension_interval());
            while !lanes.running.is_empty() || !giving_back.is_terminated() {
                tokio::select! {
                    Some(done) = lanes.running.next(), if !lanes.running.is_empty() => lanes.ended(done),
                    () = &mut giving_back, if !giving_back.is_terminated() => {}
                    _ = extension.tick(), if self.lease.is_some() => self.extend(lanes.receipts()).await,
                }
            }
        })
        .await;
        if ended.is_err() {
            tracing::warn!(endpoint = %self.name, left = lanes.running.len(), "stopped with passes unfinished; their messages come again");
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}
