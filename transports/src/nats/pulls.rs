//! What an endpoint has asked for, what has come of it, and what it holds.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Message, Request, StatusCode, Subject};
use hapax_core::{
    envelope::Envelope,
    ports::{Delivery, Receipt, TransportError},
};
use serde_json::json;
use tokio::sync::Notify;

use super::{
    NatsOptions,
    errors::gone,
    link::Link,
    message::Place,
    receiver::RECEIVING,
    topology::{Source, nanos},
};

/// For how long the server keeps a request for messages. What was lost on the way is asked for again after it.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// What a request is kept beyond that on this side.
const ANSWER: Duration = Duration::from_secs(2);
/// After a request that the server had no room for.
const REST: Duration = Duration::from_secs(1);
/// How many messages a request has not been answered by, when it ends.
const LEFT: &str = "Nats-Pending-Messages";

/// A message that waits to be given.
pub(super) struct Ready {
    pub(super) envelope: Arc<Envelope>,
    pub(super) place: Place,
    /// How many of its deliveries do not count.
    pub(super) uncounted: u32,
    /// When it came: its lease began before.
    pub(super) since: Instant,
}

impl Ready {
    fn attempts(&self) -> u32 {
        u32::try_from(self.place.delivered).unwrap_or(u32::MAX).saturating_sub(self.uncounted).max(1)
    }
}

/// A message that is not settled.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) envelope: Arc<Envelope>,
    pub(super) place: Place,
    pub(super) uncounted: u32,
    pub(super) attempts: u32,
    until: Instant,
}

impl Held {
    pub(super) fn of(ready: &Ready, lease: Duration) -> Self {
        Self {
            envelope: ready.envelope.clone(),
            place: ready.place.clone(),
            uncounted: ready.uncounted,
            attempts: ready.attempts(),
            until: ready.since + lease,
        }
    }

    /// What is left of its lease. The server would take a settlement after it, also when another has the message by then.
    pub(super) fn left(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.left().is_none()
    }
}

/// What was asked of one consumer.
#[derive(Debug, Clone)]
struct Asked {
    messages: usize,
    until: Instant,
}

struct State {
    asked: Vec<Asked>,
    ready: VecDeque<Ready>,
    held: HashMap<u64, Held>,
    /// Messages that came and are not known to be given yet, nor not to be.
    looked_at: usize,
    next: u64,
    failed: Option<String>,
}

pub(super) struct Pulls {
    /// One for all: what comes on it says which consumer it is of.
    inbox: String,
    sources: Vec<Source>,
    prefetch: usize,
    lease: Duration,
    state: Mutex<State>,
    /// Something came, or was settled.
    pub(super) arrived: Notify,
}

impl Pulls {
    pub(super) fn new(inbox: String, sources: Vec<Source>, options: &NatsOptions) -> Self {
        let asked = vec![Asked { messages: 0, until: Instant::now() }; sources.len()];
        let state = State { asked, ready: VecDeque::new(), held: HashMap::new(), looked_at: 0, next: 1, failed: None };
        Self {
            inbox,
            sources,
            prefetch: options.prefetch.into(),
            lease: options.lease,
            state: Mutex::new(state),
            arrived: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where all of it comes.
    pub(super) fn subject(&self) -> String {
        format!("{}.*", self.inbox)
    }

    /// Asks for as much as there is room for, where nothing, or little, is asked for. Until when nothing more need be done.
    pub(super) async fn ask(&self, link: &Link, max: usize) -> Result<Duration, TransportError> {
        for (source, messages) in self.wanted(max) {
            let Some(Source { stream, consumer }) = self.sources.get(source) else { continue };
            let request = json!({ "batch": messages, "expires": nanos(ASKED_FOR) });
            let request = Request::new().inbox(format!("{}.{source}", self.inbox)).payload(request.to_string().into());
            let asked = link.jetstream.send_request(format!("CONSUMER.MSG.NEXT.{stream}.{consumer}"), request).await;
            asked.map_err(|e| gone(RECEIVING, link.place(), false).caused_by(e))?;
        }
        let (state, now) = (self.state(), Instant::now());
        let open = state.asked.iter().filter(|asked| asked.messages > 0 && asked.until > now);
        let next = open.map(|asked| asked.until).min();
        Ok(next.map_or(ASKED_FOR, |next| next.saturating_duration_since(now)))
    }

    /// Whom to ask for how many, which are counted as asked for from now on.
    fn wanted(&self, max: usize) -> Vec<(usize, usize)> {
        let (mut state, now) = (self.state(), Instant::now());
        state.held.retain(|_, held| held.until > now);
        state.asked.iter_mut().filter(|asked| asked.until <= now).for_each(|asked| asked.messages = 0);
        let have = state.ready.len() + state.held.len() + state.looked_at;
        let room = max.saturating_sub(state.looked_at).min(self.prefetch.saturating_sub(have));
        if room == 0 {
            return Vec::new();
        }
        let share = room.div_ceil(self.sources.len().max(1));
        let mut wanted = Vec::new();
        for (source, asked) in state.asked.iter_mut().enumerate() {
            let more = share.saturating_sub(asked.messages);
            // Not for every one that was given.
            if more > 0 && (asked.messages == 0 || more >= share.div_ceil(4)) {
                *asked = Asked { messages: asked.messages + more, until: now + ASKED_FOR + ANSWER };
                wanted.push((source, more));
            }
        }
        wanted
    }

    /// The server may know no more of what was asked. If it does, more is asked for than there is room for, until that ends.
    pub(super) fn forget(&self) {
        self.state().asked.iter_mut().for_each(|asked| asked.messages = 0);
    }

    /// Why nothing can come any more, once.
    pub(super) fn failed(&self) -> Option<String> {
        self.state().failed.take()
    }

    /// Where a message that came is settled; `None` for a word of the server's. It is looked at until it is [ready](Self::ready), or
    /// [not given](Self::not_given).
    pub(super) fn came(&self, message: &Message) -> Option<Place> {
        if let Some(status) = message.status {
            self.told(message, status);
            return None;
        }
        let place = Place::parse(message.reply.clone()?)?;
        let of = |source: &Source| source.stream == place.stream() && source.consumer == place.consumer();
        let source = self.sources.iter().position(of)?;
        let mut state = self.state();
        if let Some(asked) = state.asked.get_mut(source) {
            asked.messages = asked.messages.saturating_sub(1);
        }
        state.looked_at += 1;
        Some(place)
    }

    fn told(&self, message: &Message, status: StatusCode) {
        let source = message.subject.rsplit_once('.').and_then(|(_, source)| source.parse::<usize>().ok());
        let says = message.description.clone().unwrap_or_default();
        let mut state = self.state();
        let State { asked, failed, .. } = &mut *state;
        let Some(asked) = source.and_then(|source| asked.get_mut(source)) else { return };
        match status.as_u16() {
            100 => return,
            // It has too many requests already.
            409 if says.contains("MaxWaiting") => {
                *asked = Asked { messages: asked.messages.max(1), until: Instant::now() + REST }
            }
            409 if says.contains("Deleted") => {
                *failed = Some("its queue, or the subscription, has been deleted".into())
            }
            404 | 408 | 409 => {
                let left = message.headers.as_ref().and_then(|headers| headers.get(LEFT));
                let left = left.and_then(|left| left.as_str().parse().ok());
                asked.messages = left.map_or(0, |left: usize| asked.messages.saturating_sub(left));
            }
            503 => *failed = Some("its queue, or the subscription, is not there".into()),
            other => *failed = Some(format!("it refuses to give messages: {other} {says}")),
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// A message that [came](Self::came) can be given.
    pub(super) fn ready(&self, ready: Ready) {
        self.state().ready.push_back(ready);
        self.not_given();
    }

    /// A message that came cannot: another may be asked for in its place.
    pub(super) fn not_given(&self) {
        let mut state = self.state();
        state.looked_at = state.looked_at.saturating_sub(1);
        drop(state);
        self.arrived.notify_one();
    }

    /// What can be given now; and what to extend, since it has waited here.
    pub(super) fn give(&self, max: usize) -> (Vec<Delivery>, Vec<Subject>) {
        let (mut state, now) = (self.state(), Instant::now());
        let (mut deliveries, mut refresh) = (Vec::new(), Vec::new());
        while deliveries.len() < max {
            let Some(ready) = state.ready.pop_front() else { break };
            let mut held = Held::of(&ready, self.lease);
            if held.until <= now {
                continue; // It is given again, perhaps to another.
            }
            if now.duration_since(ready.since) > self.lease / 4 {
                held.until = now + self.lease;
                refresh.push(held.place.reply.clone());
            }
            let (number, attempts) = (state.next, held.attempts);
            state.next += 1;
            state.held.insert(number, held);
            deliveries.push(Delivery { envelope: ready.envelope, receipt: Receipt::number(number), attempts });
        }
        (deliveries, refresh)
    }

    /// A message whose lease lasts.
    pub(super) fn held(&self, number: u64) -> Option<Held> {
        self.state().held.get(&number).filter(|held| !held.is_lost()).cloned()
    }

    /// Begins a lease anew, unless it is lost. Where that has to be told.
    pub(super) fn extended(&self, number: u64) -> Option<Subject> {
        let mut state = self.state();
        let held = state.held.get_mut(&number).filter(|held| !held.is_lost())?;
        held.until = Instant::now() + self.lease;
        Some(held.place.reply.clone())
    }

    pub(super) fn let_go(&self, number: u64) {
        self.state().held.remove(&number);
        self.arrived.notify_one();
    }

    /// Where all that is neither settled nor lost is settled. It is nobody's here any more.
    pub(super) fn all(&self) -> Vec<Subject> {
        let (mut state, now) = (self.state(), Instant::now());
        let lease = self.lease;
        let ready = state.ready.drain(..).filter(|ready| ready.since + lease > now).map(|ready| ready.place.reply);
        let mut all: Vec<Subject> = ready.collect();
        all.extend(state.held.drain().filter(|(_, held)| held.until > now).map(|(_, held)| held.place.reply));
        all
    }
}
