//! Giving messages under a lease, and settling them.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    ids::EndpointName,
    ports::{Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, StoreError, TransportError},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    super::{errors::transport_error, millis, order::Unplaced},
    Queues,
    asks::{Ask, End, Lease, Take, Wanted, What},
    rare::queue_of,
    signals::{Looked, Position, Signal},
};

/// Most messages that one claim gives: more would keep the others of its commit waiting, and other processes idle.
const CLAIM_MAX: usize = 512;
/// Bytes that one claim gives, the last message aside: all of them are in memory at once.
const CLAIM_BYTES_MAX: usize = 16 << 20;

/// Leases that are ended or extended in one group.
const LEASES_MAX: usize = 1024;

pub(crate) const RECEIVING: &str = "receiving messages";
const EXTENDING: &str = "extending leases";
const SETTLING: &str = "settling a message";

/// One endpoint's end of a queue.
#[derive(Clone)]
pub(crate) struct EndpointQueue<Q: Queues> {
    pub(super) queue: Q,
    endpoint: EndpointName,
    pub(super) signal: Arc<Signal>,
    unplaced: Arc<Unplaced>,
}

/// What a receipt says: `ID:TOKEN` or, where order is kept, `ID:TOKEN:KEY`.
struct Held<'r> {
    id: i64,
    token: i64,
    key: Option<&'r str>,
}

impl<'r> Held<'r> {
    /// `None` for a receipt that is none of ours.
    fn of(receipt: &'r Receipt) -> Option<Self> {
        let (id, rest) = receipt.as_text()?.split_once(':')?;
        let (token, key) = rest.split_once(':').map_or((rest, None), |(token, key)| (token, Some(key)));
        Some(Self { id: id.parse().ok()?, token: token.parse().ok()?, key })
    }

    const fn lease(&self, what: What) -> Lease {
        Lease { id: self.id, token: self.token, ordered: self.key.is_some(), what }
    }
}

/// Messages on their way to who asked for them. If nobody is there any more, they are given back.
pub(crate) struct Handover<Q: Queues> {
    end: EndpointQueue<Q>,
    deliveries: Vec<Delivery>,
}

impl<Q: Queues> Handover<Q> {
    /// With what was given, in the order of sending.
    pub(crate) fn filled(mut self, mut given: Vec<Given<'_>>) -> Self {
        given.sort_by_key(|given| given.id);
        let ordered = self.end.queue.hub().rules.ordered_keys;
        let deliveries = given.into_iter().filter_map(|given| {
            let has_place = given.rest.as_ref().is_ok_and(|rest| rest.key.is_some());
            let (place, endpoint) = (&*self.end.queue.hub().place, &self.end.endpoint);
            match given.delivery(ordered) {
                Ok(delivery) => {
                    if ordered && !has_place {
                        self.end.unplaced.came(place, endpoint, &delivery.envelope);
                    }
                    Some(delivery)
                }
                Err(error) => {
                    // It stays under its lease: a program that can read it may be given it next time.
                    tracing::error!(%error, place, %endpoint, "a message cannot be read by this version");
                    None
                }
            }
        });
        self.deliveries = deliveries.collect();
        self
    }

    fn take(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl<Q: Queues> Drop for Handover<Q> {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        if !deliveries.is_empty() {
            let end = self.end.clone();
            self.end.queue.hub().runtime.spawn(async move { end.give_back(deliveries).await });
        }
    }
}

/// A claim that was begun and has not ended: if it does not, what was known when it began is known again.
struct Begun<'s> {
    signal: &'s Signal,
    freed: Vec<Arc<str>>,
}

impl Begun<'_> {
    fn ended(mut self) -> Vec<Arc<str>> {
        let freed = std::mem::take(&mut self.freed);
        std::mem::forget(self); // Nothing is left in it that has to be dropped.
        freed
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.signal.free_again(std::mem::take(&mut self.freed));
        self.signal.anew();
        self.signal.give();
    }
}

impl<Q: Queues> EndpointQueue<Q> {
    pub(crate) fn new(queue: Q, endpoint: EndpointName, signal: Arc<Signal>) -> Self {
        Self { queue, endpoint, signal, unplaced: Arc::default() }
    }

    fn lease_ms(&self) -> i64 {
        millis(self.queue.hub().rules.lease)
    }

    /// Claims up to `max` messages that are available.
    async fn claim(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let (from, freed) = self.signal.begin();
        let begun = Begun { signal: &self.signal, freed };
        self.is_still_there(RECEIVING).await?;
        let (handover, looked) = self.claimed(max, from, begun.freed.clone()).await?;
        let freed = begun.ended();
        let given = handover.take();
        self.signal.looked(from, looked);
        self.signal.held_up(looked.last.filter(|_| given.is_empty()));
        if looked.left {
            self.signal.free_again(freed);
        }
        if looked.more && !(looked.left && given.is_empty()) {
            self.signal.give(); // For another receiver of this queue, or the next call.
        }
        Ok(given)
    }

    /// After a fail-over the queue may have been lost, with its number and its subscriptions: another may have that number.
    pub(super) async fn is_still_there(&self, operation: &'static str) -> Result<(), TransportError> {
        let number = queue_of(&self.queue, &self.endpoint).await.map_err(|e| transport_error(operation, e))?;
        if number == self.signal.queue {
            return Ok(());
        }
        let why = format!(
            "{}: the server has lost the queue of {}, as after a fail-over to one that lacked it: start the endpoint again",
            self.queue.hub().place,
            self.endpoint
        );
        Err(TransportError::new(ErrorKind::Misconfigured, operation, why))
    }

    async fn claimed(
        &self,
        max: usize,
        from: Position,
        freed: Vec<Arc<str>>,
    ) -> Result<(Handover<Q>, Looked), TransportError> {
        let (answer, answered) = oneshot::channel();
        let wanted = Wanted {
            queue: self.signal.queue,
            from,
            max,
            bytes_max: CLAIM_BYTES_MAX,
            token: self.queue.hub().token(),
            lease: self.lease_ms(),
        };
        let take = Take {
            operation: RECEIVING,
            wanted,
            freed: self.queue.hub().rules.ordered_keys.then_some(freed),
            handover: Handover { end: self.clone(), deliveries: Vec::new() },
            answer,
        };
        self.queue.hub().ask(RECEIVING, Ask::Take(take), answered).await
    }

    /// Ends leases as if they had never begun.
    async fn give_back(&self, deliveries: Vec<Delivery>) {
        let held = deliveries.iter().filter_map(|delivery| Held::of(&delivery.receipt));
        let leases = held.map(|held| held.lease(What::Retry { delay: 0, uncounted: 1 })).collect();
        if let Err(error) = self.end(RECEIVING, leases).await {
            tracing::debug!(%error, endpoint = %self.endpoint, "giving messages back failed; their leases will run out");
        }
        self.signal.anew();
        self.signal.give();
    }

    /// Looks for what other processes have sent and for what comes due, for all who wait in this process. Ends with an
    /// error only.
    async fn look_out(&self) -> Result<(), StoreError> {
        let signals = &self.queue.hub().signals;
        let _looking = match signals.looking.try_lock() {
            Ok(looking) => looking,
            Err(_) => {
                // Somebody else looks, and does not know yet that it is for this queue, too.
                signals.sooner.notify_one();
                signals.looking.lock().await
            }
        };
        loop {
            let due = self.look().await?;
            let rest = due.into_iter().chain([signals.interval()]).min().unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = signals.sooner.notified() => {}
            }
        }
    }

    /// Gives the signals of queues that have something, and tells when the next one will.
    async fn look(&self) -> Result<Option<Duration>, StoreError> {
        let waiting = self.queue.hub().signals.waiting();
        if waiting.is_empty() {
            return Ok(None);
        }
        let since = self.queue.names().since();
        if self.queue.hub().looked_since.swap(since, Ordering::Relaxed) != since {
            waiting.iter().for_each(|(signal, _)| signal.give()); // Each looks whether its queue is still there.
        }
        let began = Instant::now();
        let all = self.queue.look(&waiting).await?;
        let idle = began.elapsed();
        let mut next: Option<i64> = None;
        for seen in all {
            let Some((signal, from)) = waiting.iter().find(|(signal, _)| signal.queue == seen.queue) else { continue };
            if seen.is_there {
                signal.give();
            } else {
                signal.looked(*from, Looked { now: seen.now, idle, ..Looked::default() });
            }
            next = [next, seen.due].into_iter().flatten().min();
        }
        Ok(next.map(|due| Duration::from_millis(u64::try_from(due).unwrap_or_default())))
    }

    /// Writes what ends leases, or begins them anew; how many were still held.
    async fn end(&self, operation: &'static str, mut leases: Vec<Lease>) -> Result<usize, TransportError> {
        let mut ended = 0;
        while !leases.is_empty() {
            let rest = leases.split_off(leases.len().min(LEASES_MAX));
            let (answer, answered) = oneshot::channel();
            let leases = std::mem::replace(&mut leases, rest);
            ended += self
                .queue
                .hub()
                .ask(operation, Ask::End(End { operation, leases, answer: Some(answer) }), answered)
                .await?;
        }
        Ok(ended)
    }
}

#[async_trait]
impl<Q: Queues> Receiver for EndpointQueue<Q> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let max = max.clamp(1, CLAIM_MAX);
        loop {
            if self.signal.take() {
                let given = self.claim(max).await?;
                if !given.is_empty() {
                    self.queue.hub().signals.came();
                    return Ok(given);
                }
            }
            let _waiting = self.signal.wait();
            tokio::select! {
                biased;
                () = self.signal.given.notified() => {}
                failed = self.look_out() => failed.map_err(|e| transport_error(RECEIVING, e))?,
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let lease = self.lease_ms();
        let leases: Vec<Lease> =
            receipts.iter().filter_map(Held::of).map(|held| held.lease(What::Extend { lease })).collect();
        if leases.is_empty() {
            return Ok(());
        }
        self.end(EXTENDING, leases).await.map(drop)
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let Some(held) = Held::of(receipt) else { return Ok(Settled::LeaseLost) };
        let mut delayed = None;
        let what = match settlement {
            Settlement::Ack => What::Ack,
            Settlement::Retry { delay, counts } => {
                // Now is cut to a millisecond, so that a delay needs one more to be no shorter than asked for.
                let ms = if delay.is_zero() { 0 } else { millis(delay).saturating_add(2) };
                delayed = Some(ms);
                What::Retry { delay: ms, uncounted: i64::from(!counts) }
            }
            Settlement::DeadLetter { reason } => {
                What::SetAside { endpoint: self.endpoint.as_str().into(), reason: self.queue.reason(reason) }
            }
        };
        let ended = self.end(SETTLING, vec![held.lease(what)]).await?;
        if let Some(key) = held.key {
            self.signal.free(key);
            self.signal.give();
        }
        if let Some(delay) = delayed {
            if delay == 0 {
                self.signal.give();
            }
            self.queue.hub().signals.sooner.notify_one();
        }
        Ok(if ended == 0 { Settled::LeaseLost } else { Settled::Done })
    }
}

type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// A message as the server has given it.
pub(crate) struct Given<'r> {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// What else is in its row, which may not be readable.
    pub(crate) rest: Result<Rest<'r>, Unreadable>,
}

pub(crate) struct Rest<'r> {
    pub(crate) deliveries: i64,
    pub(crate) envelope: &'r [u8],
    pub(crate) key: Option<&'r str>,
}

impl Given<'_> {
    fn delivery(self, ordered: bool) -> Result<Delivery, Unreadable> {
        let Self { id, token, rest } = self;
        let Rest { deliveries, envelope, key } = rest?;
        let receipt = match key.filter(|_| ordered) {
            Some(key) => format!("{id}:{token}:{key}"),
            None => format!("{id}:{token}"),
        };
        Ok(Delivery {
            envelope: Arc::new(record::decode_envelope(envelope)?),
            receipt: Receipt::text(receipt),
            attempts: u32::try_from(deliveries)?,
        })
    }
}

impl<Q: Queues> fmt::Debug for EndpointQueue<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.queue.hub().place;
        f.debug_struct("EndpointQueue").field("place", &place).field("endpoint", &self.endpoint).finish()
    }
}
