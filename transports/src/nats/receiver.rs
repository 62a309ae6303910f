//! An endpoint's end of its stream: it knows when each lease began, and what is set aside is confirmed where it goes before it is taken from here.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::{Request, Subject};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use serde_json::json;
use tokio::{runtime::Handle, sync::Mutex as AsyncMutex, task::AbortHandle, time::sleep};

use super::{
    Nats,
    errors::{gone, is_nobody, late},
    letters::letter_extras,
    link::lost,
    message::as_letter,
    pulls::{Held, Pulls, Ready},
    topology::nanos,
};
use crate::reason::reason_of;

pub(super) const RECEIVING: &str = "receiving messages";
const SETTLING: &str = "settling a message";
/// How much longer the server keeps a message from others than it is said here: for what a message is on its way, and a settlement.
pub(super) const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// What comes less than this before its due time is given: clocks differ by more.
const EARLY: Duration = Duration::from_millis(10);
/// Before a message that could not be set aside is tried again; and how long a receiver waits for a connection before it says that
/// there is none.
const REST: Duration = Duration::from_secs(1);

const ACK: &[u8] = b"+ACK";
const NAK: &[u8] = b"-NAK";
const IN_PROGRESS: &[u8] = b"+WPI";

/// One endpoint's end of its queue, and of what it subscribes to.
pub(super) struct EndpointQueue(Arc<End>);

pub(super) struct End {
    pub(super) nats: Nats,
    pub(super) endpoint: EndpointName,
    types: Vec<TypeName>,
    /// One call at a time; and what takes messages from the connection, from the first call on: nobody is asked for messages before.
    taking: AsyncMutex<Option<AbortHandle>>,
    pub(super) pulls: Pulls,
    /// The connection was, or a queue, so that what it needs is declared before the next call.
    lost: AtomicBool,
    /// How often the connection had been when something was asked for last.
    losses: AtomicU64,
}

impl EndpointQueue {
    pub(super) fn new(nats: Nats, endpoint: EndpointName, types: &[TypeName]) -> Self {
        let sources = nats.0.sources(&endpoint, types);
        let pulls = Pulls::new(nats.0.link.client.new_inbox(), sources, &nats.0.options);
        let losses = AtomicU64::new(nats.0.link.line().borrow().losses);
        Self(Arc::new(End {
            nats,
            endpoint,
            types: types.to_vec(),
            taking: AsyncMutex::default(),
            pulls,
            lost: AtomicBool::new(false),
            losses,
        }))
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let (end, link) = (&self.0, &self.0.nats.0.link);
        let mut taking = end.taking.lock().await;
        if !link.up_within(REST.min(link.patience)).await {
            return Err(gone(RECEIVING, link.place(), false));
        }
        let mut line = link.line();
        let losses = line.borrow().losses;
        if end.losses.swap(losses, Ordering::Relaxed) != losses {
            // The server may have forgotten what it was asked for; what was given stays ours as long as its lease.
            end.lost.store(true, Ordering::Relaxed);
            end.pulls.forget();
        }
        if end.lost.load(Ordering::Relaxed) {
            // The queue may have gone with a server whose disk was lost.
            end.nats.0.set_up().await?;
            end.nats.0.subscribe(&end.endpoint, &end.types).await?;
            end.lost.store(false, Ordering::Relaxed);
        }
        if taking.as_ref().is_none_or(AbortHandle::is_finished) {
            *taking = Some(end.take_from_now_on().await?);
        }
        loop {
            // From the first on nothing is waited for: a call that is dropped has taken nothing.
            let deliveries = end.given(max.max(1));
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
            if let Some(why) = end.pulls.failed() {
                end.lost.store(true, Ordering::Relaxed);
                let why = format!("{}: {why}", link.place());
                return Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why));
            }
            let look_again = end.pulls.ask(link, max.max(1)).await?;
            tokio::select! {
                () = end.pulls.arrived.notified() => {}
                () = sleep(look_again) => {}
                () = lost(&mut line, losses) => return Err(gone(RECEIVING, link.place(), false)),
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let link = &self.0.nats.0.link;
        if !link.is_up() {
            return Err(gone("extending leases", link.place(), false));
        }
        for number in receipts.iter().filter_map(Receipt::as_number) {
            let Some(reply) = self.0.pulls.extended(number) else { continue };
            let told = link.client.publish(reply, Bytes::from_static(IN_PROGRESS)).await;
            told.map_err(|e| gone("extending leases", link.place(), false).caused_by(e))?;
        }
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let Some(number) = receipt.as_number() else { return Ok(Settled::LeaseLost) };
        let Some(held) = self.0.pulls.held(number) else { return Ok(Settled::LeaseLost) };
        let settled = self.0.settle(&held, settlement).await;
        // With an error, its lease runs out, and it comes again.
        self.0.pulls.let_go(number);
        settled
    }
}

impl Drop for EndpointQueue {
    /// What was not settled is given back at once, as far as there is time for it: else others wait until its lease runs out.
    fn drop(&mut self) {
        if let Ok(mut taking) = self.0.taking.try_lock()
            && let Some(taking) = taking.take()
        {
            taking.abort();
        }
        let (left, client) = (self.0.pulls.all(), self.0.nats.0.link.client.clone());
        if let (false, Ok(runtime)) = (left.is_empty(), Handle::try_current()) {
            runtime.spawn(async move {
                join_all(left.into_iter().map(|reply| client.publish(reply, Bytes::from_static(NAK)))).await;
            });
        }
    }
}

impl End {
    /// A task that takes what comes on the connection, so that it is known when a lease began.
    async fn take_from_now_on(self: &Arc<Self>) -> Result<AbortHandle, TransportError> {
        let link = &self.nats.0.link;
        let subscribed = link.client.subscribe(self.pulls.subject()).await;
        let mut messages = subscribed.map_err(|e| gone(RECEIVING, link.place(), false).caused_by(e))?;
        let weak = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            while let Some(message) = futures_util::StreamExt::next(&mut messages).await {
                let Some(end) = weak.upgrade() else { return };
                end.came(message);
            }
        });
        Ok(task.abort_handle())
    }

    /// A message for the endpoint, unless it is none, or not due yet.
    fn came(self: &Arc<Self>, message: async_nats::Message) {
        let Some(place) = self.pulls.came(&message) else { return };
        let since = Instant::now();
        let names = &self.nats.0.names;
        match super::message::envelope_of(&message.subject, message.headers.as_ref(), message.payload.clone(), names) {
            Ok(envelope) => {
                let ready = Ready { envelope, place, uncounted: 0, since };
                // Only what was given before can have been given without being counted.
                if ready.place.delivered <= 1 && !is_early(&ready) {
                    return self.pulls.ready(ready);
                }
                let end = self.clone();
                tokio::spawn(async move {
                    match end.looked_at(ready).await {
                        Some(ready) => end.pulls.ready(ready),
                        None => end.pulls.not_given(),
                    }
                });
            }
            Err(problem) => {
                let (end, reason) = (self.clone(), reason_of(&problem));
                tokio::spawn(async move {
                    end.set_aside(place.reply, message, reason).await;
                    end.pulls.not_given();
                });
            }
        }
    }

    /// What came before, or early, with how often it came; `None` if it is put off.
    async fn looked_at(&self, mut ready: Ready) -> Option<Ready> {
        match self.nats.0.uncounted(&ready.place).await {
            Ok(uncounted) => ready.uncounted = uncounted,
            Err(e) => {
                tracing::warn!(error = ?e, "it cannot be told how often a message was given; it comes again when its lease has run out");
                return None;
            }
        }
        if !is_early(&ready) {
            return Some(ready);
        }
        let delay = ready.envelope.due.map_or(Duration::ZERO, |due| due.since(Timestamp::now()));
        let held = Held::of(&ready, self.nats.0.options.lease);
        if let Err(e) = self.give_back(&held, delay, false).await {
            tracing::warn!(error = ?e, "putting off a message that is not due failed; tried again");
        }
        None
    }

    /// What can be given now.
    fn given(&self, max: usize) -> Vec<Delivery> {
        let (deliveries, refresh) = self.pulls.give(max);
        if !refresh.is_empty() {
            let client = self.nats.0.link.client.clone();
            // They have waited here, and whoever has them now may count on a whole lease.
            tokio::spawn(async move {
                join_all(refresh.into_iter().map(|reply| client.publish(reply, Bytes::from_static(IN_PROGRESS)))).await;
            });
        }
        deliveries
    }

    /// Ends a delivery. What is set aside is first put, confirmed, where it goes, and only then taken from here: a crash in between leaves
    /// two copies, and never none.
    async fn settle(&self, held: &Held, settlement: Settlement) -> Result<Settled, TransportError> {
        match settlement {
            Settlement::Ack => {}
            Settlement::Retry { delay, counts } => return self.give_back(held, delay, counts).await,
            Settlement::DeadLetter { reason } => {
                if held.is_lost() {
                    return Ok(Settled::LeaseLost);
                }
                let letter = letter_extras(&self.endpoint, None, None, held.attempts, &reason, Timestamp::now());
                self.nats.0.put_letter(SETTLING, &self.endpoint, &held.envelope, None, None, letter).await?;
            }
        }
        self.tell(held, Bytes::from_static(ACK)).await
    }

    /// To the server, which counts it and gives it again after the delay. What does not count is written down before.
    async fn give_back(&self, held: &Held, delay: Duration, counts: bool) -> Result<Settled, TransportError> {
        if held.is_lost() {
            return Ok(Settled::LeaseLost);
        }
        if !counts && let Err(e) = self.nats.0.do_not_count(&held.place, held.uncounted).await {
            tracing::warn!(error = ?e, "that a delivery does not count could not be written; it counts");
        }
        let what = match delay {
            Duration::ZERO => Bytes::from_static(NAK),
            delay => format!("-NAK {}", json!({ "delay": nanos(delay) })).into(),
        };
        self.tell(held, what).await
    }

    /// Tells the server how a delivery ended, until it has answered: again on the next connection, as long as the lease lasts.
    async fn tell(&self, held: &Held, what: Bytes) -> Result<Settled, TransportError> {
        let link = &self.nats.0.link;
        loop {
            let Some(left) = held.left() else { return Ok(Settled::LeaseLost) };
            let within = left.min(link.patience);
            if !link.up_within(within).await {
                return Err(gone(SETTLING, link.place(), true));
            }
            let mut line = link.line();
            let losses = line.borrow().losses;
            let request = Request::new().payload(what.clone()).timeout(Some(within));
            let asked = link.client.send_request(held.place.reply.clone(), request);
            tokio::select! {
                biased;
                answer = asked => return match answer {
                    Ok(_) => Ok(Settled::Done),
                    // The queue is gone, and its leases.
                    Err(e) if is_nobody(&e) => Ok(Settled::LeaseLost),
                    Err(e) => Err(late(SETTLING, link.place(), within, true).caused_by(e)),
                },
                () = lost(&mut line, losses) => {}
            }
        }
    }

    /// What is no message of ours, with its headers as they came.
    async fn set_aside(&self, reply: Subject, message: async_nats::Message, reason: String) {
        tracing::error!(endpoint = %self.endpoint, reason, "a message that cannot be read is set aside among the dead letters");
        let broker = &self.nats.0;
        let extras = letter_extras(&self.endpoint, None, None, 1, &reason, Timestamp::now());
        let headers = as_letter(message.headers.as_ref());
        let put = broker.put_unreadable(SETTLING, &self.endpoint, &message.payload, headers, extras).await;
        let what = match put {
            Ok(()) => Bytes::from_static(ACK),
            Err(e) => {
                tracing::warn!(error = ?e, "setting a message aside failed; tried again");
                format!("-NAK {}", json!({ "delay": nanos(REST) })).into()
            }
        };
        drop(broker.link.client.publish(reply, what).await);
    }
}

fn is_early(ready: &Ready) -> bool {
    ready.envelope.due.is_some_and(|due| Timestamp::now().after(EARLY) < due)
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}
