//! An endpoint's end of a queue: a consumer of its group, with connections of its own, so that who waits holds up nobody who settles.

mod looks;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::redis::{Cmd, Value};
use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use looks::Looks;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};

use super::{
    Broker, RedisStreams,
    acks::Acks,
    answer::{Entry, array, entries, entry, number, place, text},
    bell::{Bell, Known, Wait},
    errors::{is_no_group, malformed},
    held::{Held, Missed},
    lease::{Lease, What},
    letters::Letter,
    link::Lane,
    message::envelope_of,
    scripts::{Loaded, Script},
};
use crate::reason::reason_of;

/// Most messages that one call gives: more would keep the server from others, and other processes idle.
const TAKE_MAX: usize = 512;
/// Bytes that one call gives, those aside that are read with the last of them: all of them are in memory at once.
const TAKE_BYTES_MAX: usize = 8 << 20;
/// How often whoever waits looks for what was put off or left by others. What is sent is told.
const POLL: Duration = Duration::from_millis(240);
/// What comes less than this before its due time is given: clocks differ by more.
const EARLY: Duration = Duration::from_millis(10);

pub(super) const RECEIVING: &str = "receiving messages";
const EXTENDING: &str = "extending leases";

/// One endpoint's end of a queue, with connections of its own.
pub(super) struct EndpointQueue(pub(super) Arc<End>);

pub(super) struct End {
    pub(super) broker: Arc<Broker>,
    pub(super) endpoint: EndpointName,
    types: Vec<TypeName>,
    /// Who this is in the consumer group: nobody else.
    pub(super) consumer: String,
    pub(super) queue: String,
    pub(super) later: String,
    pub(super) uncounted: String,
    active: String,
    pub(super) lane: Lane,
    pub(super) bell: Bell,
    /// Something was given back here.
    pub(super) again: Notify,
    pub(super) acks: Acks,
    pub(super) held: Held,
    looks: Mutex<Looks>,
    known: Mutex<Option<Known>>,
}

/// What a call found.
pub(super) struct Taken {
    given: Handover,
    /// When there is something again, as far as the server can tell.
    next: Option<Duration>,
    /// Behind which entry something new would be; `None` if that is of no use now.
    last: Option<String>,
}

impl Taken {
    pub(super) const fn has_any(&self) -> bool {
        !self.given.deliveries.is_empty()
    }
}

/// Messages on their way to who asked for them. If nobody is there any more, they are given back.
struct Handover {
    end: Arc<End>,
    deliveries: Vec<Delivery>,
}

impl Drop for Handover {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !deliveries.is_empty()
        {
            let end = self.end.clone();
            runtime.spawn(async move { end.give_back(&deliveries).await });
        }
    }
}

impl EndpointQueue {
    pub(super) fn new(streams: &RedisStreams, endpoint: EndpointName, types: &[TypeName]) -> Self {
        let broker = streams.0.clone();
        let names = &broker.names;
        let name: String = broker.link.name().chars().filter(char::is_ascii_graphic).collect();
        let consumer = format!("{name}-{:016x}", fastrand::u64(..));
        Self(Arc::new(End {
            consumer,
            queue: names.queue(&endpoint),
            later: names.later(&endpoint),
            uncounted: names.uncounted(&endpoint),
            active: names.active(&endpoint),
            lane: Lane::default(),
            bell: Bell::new(names.queue(&endpoint)),
            again: Notify::new(),
            acks: Acks::default(),
            held: Held::default(),
            looks: Mutex::default(),
            known: Mutex::default(),
            types: types.to_vec(),
            endpoint,
            broker,
        }))
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let max = max.clamp(1, TAKE_MAX);
        // What is new is told of by the answer that brings it: nobody need look first.
        let wait = self.0.known().take().and_then(Known::wait);
        let taken = match wait {
            Some(wait) => self.0.take(max, Some(wait)).await.ok(),
            None => None,
        };
        let mut taken = match taken {
            Some(taken) => taken,
            None => self.0.take(max, None).await?,
        };
        loop {
            let Taken { mut given, next, last } = taken;
            if !given.deliveries.is_empty() {
                let until = Instant::now() + next.unwrap_or(POLL).min(POLL);
                let took_all = given.deliveries.len() < max && !self.0.broker.options.ordered_keys;
                *self.0.known() = last.filter(|_| took_all).map(|last| Known { last, until });
                return Ok(std::mem::take(&mut given.deliveries));
            }
            let rest = next.unwrap_or(POLL).min(POLL);
            let until = Instant::now() + rest;
            if let Some(last) = last.filter(|_| !rest.is_zero()) {
                match self.0.take(max, Some(Wait { last, longest: rest })).await {
                    Ok(after) => {
                        taken = after;
                        continue;
                    }
                    Err(error) => {
                        tracing::debug!(%error, endpoint = %self.0.endpoint, "nobody tells of new messages: they are looked for");
                    }
                }
            }
            tokio::select! {
                () = self.0.again.notified() => {}
                () = sleep_until(until) => {}
            }
            taken = self.0.take(max, None).await?;
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let leases: Vec<Lease> = receipts.iter().filter_map(Lease::of).collect();
        if leases.is_empty() {
            return Ok(());
        }
        let end = &self.0;
        let asked = end.broker.link.ask(&end.lane, EXTENDING, true, |scripts| {
            let mut call = scripts.call(Script::Extend, &[&end.queue, &end.active]);
            call.arg(end.broker.group()).arg(&end.consumer).arg(end.lease_millis());
            call.arg(u8::from(end.broker.options.ordered_keys));
            for lease in &leases {
                call.arg(&lease.id).arg(lease.deliveries);
            }
            call
        });
        asked.await.map(drop)
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let Some(lease) = Lease::of(receipt) else { return Ok(Settled::LeaseLost) };
        match settlement {
            Settlement::Ack => self.0.acknowledge(lease).await,
            Settlement::Retry { delay, counts } => self.0.put_off(&lease, delay, counts).await,
            Settlement::DeadLetter { reason } => self.0.dead_letter(&lease, &reason).await,
        }
    }
}

impl End {
    /// Takes up to `max` messages. In a task of its own: a call that is dropped while the server answers would leave what it
    /// was given under a lease, and nobody would know of it.
    async fn take(self: &Arc<Self>, max: usize, wait: Option<Wait>) -> Result<Taken, TransportError> {
        let (answer, answered) = oneshot::channel();
        let end = self.clone();
        tokio::spawn(async move {
            match &wait {
                Some(wait) => end.take_after(wait, max, answer).await,
                // Who asked may be gone: then what was taken is given back as it is dropped.
                None => drop(answer.send(end.taken(max).await)),
            }
        });
        answered.await.unwrap_or_else(|_| {
            let why = "the runtime in which it was asked is ending";
            Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why))
        })
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn taken(self: &Arc<Self>, max: usize) -> Result<Taken, TransportError> {
        let looks = self.trimmed();
        let taken = self.taken_now(max, looks).await;
        if taken.is_err() {
            if looks {
                self.look_again();
            }
            self.held.lost_answer();
        }
        taken
    }

    async fn taken_now(self: &Arc<Self>, max: usize, looks: bool) -> Result<Taken, TransportError> {
        let answer = match self.ask_for(max, looks).await {
            // By an operator, or with a server that has kept nothing. What was in it is gone.
            Err(e) if is_no_group(&e) => {
                tracing::warn!(endpoint = %self.endpoint, "the queue was removed, and is declared anew");
                self.broker.subscribe(&self.endpoint, &self.types).await?;
                self.ask_for(max, looks).await?
            }
            answer => answer?,
        };
        self.read(answer)
    }

    /// What a call has brought.
    pub(super) fn read(self: &Arc<Self>, answer: Value) -> Result<Taken, TransportError> {
        let bad = || malformed(RECEIVING, self.broker.link.place());
        let [again, fresh, due, last, wait, left]: [Value; 6] =
            array(answer).and_then(|parts| parts.try_into().ok()).ok_or_else(bad)?;
        let mut given = Handover { end: self.clone(), deliveries: Vec::new() };
        let mut all: Vec<(Entry, i64, i64)> = Vec::new();
        for one in array(again).ok_or_else(bad)? {
            let [it, deliveries, uncounted]: [Value; 3] =
                array(one).and_then(|parts| parts.try_into().ok()).ok_or_else(bad)?;
            let numbers = number(&deliveries).zip(number(&uncounted)).ok_or_else(bad)?;
            all.push((entry(it).ok_or_else(bad)?, numbers.0, numbers.1));
        }
        all.sort_by_key(|(entry, ..)| place(&entry.id));
        let fresh = entries(fresh).ok_or_else(bad)?;
        let newest = fresh.last().map(|entry| entry.id.clone());
        all.extend(fresh.into_iter().map(|entry| (entry, 1, 0)));
        for (entry, deliveries, uncounted) in all {
            if self.broker.options.ordered_keys {
                self.held.given(&entry.id, deliveries);
            }
            given.deliveries.extend(self.delivery(entry, deliveries, uncounted));
        }
        let millis = |value: &Value| number(value).and_then(|millis| u64::try_from(millis).ok());
        let is_left = number(&left) == Some(1);
        let wait = millis(&wait).filter(|wait| *wait > 0);
        let next = if is_left { Some(0) } else { wait.or_else(|| millis(&due)) };
        let last = newest.or_else(|| text(last).filter(|last| !last.is_empty()));
        Ok(Taken { given, next: next.map(Duration::from_millis), last })
    }

    async fn ask_for(&self, max: usize, looks: bool) -> Result<Value, TransportError> {
        let missed = if self.broker.options.ordered_keys { self.missed(max).await? } else { Missed::default() };
        let call = |scripts: &Loaded| self.take_call(scripts, max, looks, &missed);
        self.broker.link.ask(&self.lane, RECEIVING, false, call).await
    }

    pub(super) fn take_call(&self, scripts: &Loaded, max: usize, looks: bool, missed: &Missed) -> Cmd {
        let options = &self.broker.options;
        let keys = [&self.queue, &self.later, &self.uncounted, &self.active].map(String::as_str);
        let mut call = scripts.call(Script::Take, &keys);
        call.arg(self.broker.group()).arg(&self.consumer).arg(max).arg(TAKE_BYTES_MAX).arg(self.lease_millis());
        call.arg(u8::from(looks)).arg(u8::from(options.ordered_keys)).arg(options.unused_millis());
        call.arg(u8::from(missed.more)).arg(&missed.ids);
        call
    }

    /// A message for the endpoint, unless it is none, or not due yet.
    fn delivery(self: &Arc<Self>, entry: Entry, deliveries: i64, uncounted: i64) -> Option<Delivery> {
        let attempts = u32::try_from(deliveries.saturating_sub(uncounted)).unwrap_or(u32::MAX).max(1);
        let lease = Lease { id: entry.id.clone(), deliveries, attempts };
        match envelope_of(&entry.fields) {
            Ok(envelope) => {
                let now = Timestamp::now();
                if let Some(due) = envelope.due.filter(|due| now.after(EARLY) < *due) {
                    self.in_a_task("putting off a message that is not due", move |end| async move {
                        // It was given to nobody, so it is not counted.
                        end.put_off(&lease, due.since(Timestamp::now()), false).await
                    });
                    return None;
                }
                Some(Delivery { envelope, receipt: lease.receipt(), attempts })
            }
            Err(problem) => {
                let reason = reason_of(&problem);
                let endpoint = &self.endpoint;
                tracing::error!(%endpoint, reason, "a message that cannot be read is set aside among the dead letters");
                self.in_a_task("setting a message aside", move |end| async move {
                    let letter = Letter::of_none(&entry, &reason, lease.attempts, &end.endpoint);
                    end.end_lease(&lease, &What::Letter(&letter)).await
                });
                None
            }
        }
    }

    /// Does what nobody waits for. If it fails, the lease runs out, and it is tried again.
    fn in_a_task<F>(self: &Arc<Self>, what: &'static str, work: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = Result<Settled, TransportError>> + Send + 'static,
    {
        let work = work(self.clone());
        tokio::spawn(async move {
            if let Err(error) = work.await {
                tracing::warn!(?error, "{what} failed; tried again once its lease has run out");
            }
        });
    }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}
