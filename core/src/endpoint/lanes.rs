//! Lanes: the messages of one entity are handled one after the other, in one process never at the same time; different
//! entities go in parallel, and one that is slow does not take all the room.

mod lane;
mod refused;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use lane::{Lane, SLOW};
use tokio::time::Instant;
use tracing::Instrument;

use super::{Endpoint, flow::Held, suspects::Suspects};
use crate::{
    claim::{self, is_claim},
    envelope::Envelope,
    handler_error::HandlerError,
    ids::EntityKey,
    manager::{Incoming, WithBody},
    metrics::Event,
    ports::{Delivery, Receipt},
};

/// A header that names the only saga which takes a message: the one that could not handle it, when a dead letter is retried.
pub(super) const RETRY_SAGA: &str = "retry-saga";

/// Rest of what a slow lane has no room for; doubled each time until the longest, which is short beside how long a slow one lasts.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_LONGEST: Duration = Duration::from_secs(16);
/// After so long what has ended is looked at no more before the endpoint has had a turn: receiving and leases wait meanwhile.
const ENDING_MAX: Duration = Duration::from_millis(1);
/// Lanes that end between two looks at the clock: a look costs a hundredth of a small pass, and handlers that compute for long must not keep
/// the endpoint from its turn.
const CLOCK_EVERY: u32 = 4;
/// Rest of a suspect whose entity is at work.
const SUSPECT_REST: Duration = Duration::from_secs(1);

pub(super) struct Lanes<'e> {
    pub(super) endpoint: &'e Endpoint,
    lanes: HashMap<EntityKey, Lane>,
    /// One future for each lane that is at work, and for each message that no lane takes.
    pub(super) running: FuturesUnordered<BoxFuture<'e, Ended>>,
    held: Held,
    /// Leases of what waits for its body.
    fetching: Vec<Receipt>,
    /// Nothing begins any more.
    pub(super) stopping: bool,
    pub(super) suspects: Suspects,
    /// Futures of `running` that give messages back.
    returning: usize,
    /// The time of this turn, about: exact enough for what is [slow](SLOW).
    now: Instant,
}

/// What a future of `running` did.
pub(super) enum Ended {
    /// The messages of a lane.
    Lane(EntityKey),
    /// A message that no lane takes.
    Refused,
    /// A message that has come without its body, of so many bytes, and what came of fetching it.
    Fetched { delivery: Delivery, bytes: usize, fetched: claim::Fetched },
    /// Messages were given back.
    Returned(Held),
}

impl<'e> Lanes<'e> {
    pub(super) fn new(endpoint: &'e Endpoint) -> Self {
        Self {
            endpoint,
            lanes: HashMap::new(),
            running: FuturesUnordered::new(),
            held: Held::default(),
            suspects: Suspects::default(),
            fetching: Vec::new(),
            stopping: false,
            returning: 0,
            now: Instant::now(),
        }
    }

    /// Messages that are not settled yet, counted once for each saga.
    pub(super) const fn held(&self) -> Held {
        self.held
    }

    /// Puts deliveries into their lanes, then sets the idle lanes to work: so that what came together is handled
    /// together.
    pub(super) fn take(&mut self, mut deliveries: Vec<Delivery>) {
        let Endpoint { name, deliver, suspect_above, .. } = self.endpoint;
        deliver.metrics.observe(Event::Received(name, deliveries.len()));
        // Before any of them is read, which may kill the process too.
        let turned_away = self.suspects.part(&mut deliveries, *suspect_above);
        self.give_back(turned_away.into_iter().map(|delivery| (delivery.receipt, 0)), Duration::ZERO);
        self.now = Instant::now();
        let mut idle = Vec::new();
        for delivery in deliveries {
            if is_claim(&delivery.envelope) && self.takers_of(&delivery.envelope).is_ok() {
                self.fetch(delivery);
            } else {
                self.route(&delivery, None, &mut idle);
            }
        }
        for key in idle {
            self.begin(key);
        }
        self.begin_suspect();
    }

    /// Sets to work what may kill the process, once nothing is on its way back that would be charged for it.
    fn begin_suspect(&mut self) {
        if self.returning > 0 {
            return;
        }
        let Some(delivery) = self.suspects.next.take() else { return };
        let (message_id, attempts) = (&delivery.envelope.message_id, delivery.attempts);
        tracing::warn!(endpoint = %self.endpoint.name, %message_id, attempts, "given so often that the process may die of it; handled alone");
        if is_claim(&delivery.envelope) && self.takers_of(&delivery.envelope).is_ok() {
            self.suspects.fetching = self.fetch(delivery);
        } else {
            self.take_one(&delivery, None);
        }
    }

    /// Puts a message, whose body may have been fetched, into its lanes.
    pub(super) fn take_one(&mut self, delivery: &Delivery, fetched: Option<&WithBody>) {
        let mut idle = Vec::new();
        self.route(delivery, fetched, &mut idle);
        if delivery.attempts > self.endpoint.suspect_above {
            for key in &idle {
                self.lanes.entry(key.clone()).and_modify(|lane| lane.suspect = true);
            }
            self.suspects.lanes = idle.len();
        }
        for key in idle {
            self.begin(key);
        }
    }

    /// Which managers take `envelope`, or why none does.
    pub(super) fn takers_of(&self, envelope: &Envelope) -> Result<&'e [usize], String> {
        let Endpoint { name, takers, managers, .. } = self.endpoint;
        let message_type = &envelope.message_type;
        let Some(takers) = takers.get(message_type) else {
            return Err(format!(
                "endpoint {name} has no handler for {message_type}; add .handles(..) or .handler(..), or send it to another endpoint"
            ));
        };
        let Some(saga) = envelope.headers.value(RETRY_SAGA) else { return Ok(takers) };
        match takers.iter().position(|index| managers[*index].scope().saga.as_str() == saga) {
            Some(only) => Ok(&takers[only..=only]),
            None => Err(format!("endpoint {name} has no saga {saga} for {message_type}")),
        }
    }

    fn route(&mut self, delivery: &Delivery, fetched: Option<&WithBody>, idle: &mut Vec<EntityKey>) {
        let endpoint = self.endpoint;
        let takers = match self.takers_of(&delivery.envelope) {
            Ok(takers) => takers,
            Err(why) => return self.refuse(delivery, None, None, HandlerError::permanent(why)),
        };
        endpoint.receiver.share(&delivery.receipt, takers.len());
        let whole = fetched.map_or(&delivery.envelope, |fetched| &fetched.whole);
        for &index in takers {
            let manager = &endpoint.managers[index];
            match manager.route(whole, delivery.receipt.clone(), delivery.attempts) {
                Ok((key, mut incoming)) => {
                    incoming.envelope = delivery.envelope.clone();
                    incoming.fetched = fetched.cloned().map(Arc::new);
                    self.enqueue(index, key, incoming, idle);
                }
                Err(error) => self.refuse(delivery, Some(manager), fetched, error),
            }
        }
    }

    pub(super) fn fetching(&mut self, receipt: &Receipt, bytes: usize) {
        self.fetching.push(receipt.clone());
        self.held.messages += 1;
        self.held.bytes = self.held.bytes.saturating_add(bytes);
    }

    pub(super) const fn held_one_more(&mut self) {
        self.held.messages += 1;
    }

    fn enqueue(&mut self, manager: usize, key: EntityKey, incoming: Incoming, idle: &mut Vec<EntityKey>) {
        let (bytes, is_suspect) = (incoming.bytes, incoming.attempts > self.endpoint.suspect_above);
        let mut back = None;
        match self.lanes.entry(key) {
            // It would begin in the middle of others.
            Entry::Occupied(_) if is_suspect => back = Some((incoming.receipt, SUSPECT_REST)),
            Entry::Occupied(mut lane) => {
                let lane = lane.get_mut();
                lane.held.add(bytes);
                match lane.slow {
                    Some(rest) if lane.held.exceeds(self.endpoint.share()) => {
                        lane.held.sub(Held { messages: 1, bytes });
                        back = Some((incoming.receipt, rest));
                    }
                    _ => lane.waiting.push(incoming),
                }
            }
            Entry::Vacant(lane) => {
                idle.push(lane.key().clone());
                lane.insert(Lane::new(manager, incoming, self.now));
            }
        }
        match back {
            Some((receipt, rest)) => self.give_back([(receipt, bytes)], rest),
            None => self.held.add(bytes),
        }
    }

    /// Gives messages back, with their bytes. They are held until the broker has heard of it.
    fn give_back(&mut self, messages: impl IntoIterator<Item = (Receipt, usize)>, rest: Duration) {
        let (mut receipts, mut back) = (Vec::new(), Held::default());
        for (receipt, bytes) in messages {
            receipts.push(receipt);
            back.add(bytes);
            self.held.add(bytes);
        }
        if receipts.is_empty() {
            return;
        }
        self.returning += 1;
        let giving_back = self.endpoint.give_back(receipts, rest);
        self.running.push(giving_back.map(move |()| Ended::Returned(back)).boxed());
    }

    /// Gives back what waits in slow lanes beyond their share, where it takes the room of others. Order is given up for it.
    pub(super) fn shed(&mut self) {
        if !self.endpoint.handle.shared().flow.is_crowded(self.held) {
            return;
        }
        let share = self.endpoint.share();
        let mut back: Vec<(Vec<(Receipt, usize)>, Duration)> = Vec::new();
        for (key, lane) in &mut self.lanes {
            if lane.waiting.is_empty() || lane.begun.elapsed() < SLOW || !lane.held.exceeds(share) {
                continue;
            }
            let rest = lane.slow.map_or(REST_FIRST, |rest| (rest * 2).min(REST_LONGEST));
            lane.slow = Some(rest);
            let mut shed = Vec::new();
            while lane.held.exceeds(share)
                && let Some(last) = lane.waiting.pop()
            {
                lane.held.sub(Held { messages: 1, bytes: last.bytes });
                shed.push((last.receipt, last.bytes));
            }
            tracing::info!(entity = %key, back = shed.len(), ?rest, "it is slow, and others want room: what it has no share for waits outside");
            shed.reverse();
            back.push((shed, rest));
        }
        for (shed, rest) in back {
            for (_, bytes) in &shed {
                self.held.sub(Held { messages: 1, bytes: *bytes });
            }
            self.give_back(shed, rest);
        }
    }

    /// Hands the first of what waits in a lane to `deliver`: one pass of it, and no more than its share, so that what is
    /// settled makes room at once.
    ///
    /// Thousands of these futures wait for their stores at a time: what is rare and large in one is in a box of its own, or each
    /// would hold room for it all the while.
    fn begin(&mut self, key: EntityKey) {
        let (share, pass_max) = (self.endpoint.share(), self.endpoint.deliver.pass_max.max(1));
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let mut messages = lane.next(Held { messages: share.messages.min(pass_max), ..share });
        let (deliver, manager) = (&self.endpoint.deliver, &self.endpoint.managers[lane.manager]);
        let span = self.endpoint.spans.begin(&key, &mut messages);
        lane.begun = self.now;
        #[cfg(feature = "testing")]
        if let Some(drops) = &self.endpoint.drops {
            let delivering = async move {
                let _ = drops.run(deliver.deliver(manager.as_ref(), &key, messages)).await;
                Ended::Lane(key)
            };
            self.running.push(delivering.instrument(span).boxed());
            return;
        }
        let delivering = async move {
            deliver.deliver(manager.as_ref(), &key, messages).await;
            Ended::Lane(key)
        };
        self.running.push(delivering.instrument(span).boxed());
    }

    /// `first` has come to its end, and with it what else has by now: a turn of the endpoint costs as much as a small message.
    pub(super) fn several_ended(&mut self, first: Ended) {
        self.now = Instant::now();
        let until = self.now + ENDING_MAX;
        self.ended(first);
        let mut ended = 1;
        // The next turn asks again, with somebody to wake: so none is missed that this look finds unfinished.
        while let Some(Some(next)) = self.running.next().now_or_never() {
            self.ended(next);
            ended += 1;
            if ended % CLOCK_EVERY == 0 {
                self.now = Instant::now();
                if self.now > until {
                    break;
                }
            }
        }
    }

    /// A lane has come to its end: what came since begins, or the lane is closed.
    pub(super) fn ended(&mut self, ended: Ended) {
        let key = match ended {
            Ended::Lane(key) => key,
            Ended::Refused => {
                self.held.messages -= 1;
                return;
            }
            Ended::Fetched { delivery, bytes, fetched } => {
                self.fetching.retain(|receipt| *receipt != delivery.receipt);
                self.held.messages -= 1;
                self.held.bytes = self.held.bytes.saturating_sub(bytes);
                if delivery.attempts > self.endpoint.suspect_above {
                    self.suspects.fetching = false;
                }
                return self.fetched(delivery, fetched);
            }
            Ended::Returned(back) => {
                self.held.sub(back);
                self.returning -= 1;
                self.begin_suspect();
                return;
            }
        };
        let Entry::Occupied(mut entry) = self.lanes.entry(key) else { return };
        let lane = entry.get_mut();
        self.endpoint.handled.fetch_add(lane.at_work.messages as u64, Ordering::Relaxed);
        self.held.sub(lane.ended(self.now));
        if std::mem::take(&mut lane.suspect) {
            self.suspects.lanes -= 1;
        }
        if lane.waiting.is_empty() {
            entry.remove();
        } else {
            let key = entry.key().clone();
            self.begin(key);
        }
    }

    /// The leases of all that is held.
    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let lanes = self.lanes.values();
        let held =
            lanes.flat_map(|lane| lane.running.iter().chain(lane.waiting.iter().map(|message| &message.receipt)));
        let suspect = self.suspects.next.iter().map(|delivery| &delivery.receipt);
        held.chain(&self.fetching).chain(suspect).cloned().collect()
    }

    /// Takes out what has not begun.
    pub(super) fn take_waiting(&mut self) -> Vec<Receipt> {
        self.stopping = true;
        let mut receipts: Vec<Receipt> =
            self.suspects.next.take().map(|delivery| delivery.receipt).into_iter().collect();
        for lane in self.lanes.values_mut() {
            for message in std::mem::take(&mut lane.waiting) {
                let held = Held { messages: 1, bytes: message.bytes };
                lane.held.sub(held);
                self.held.sub(held);
                receipts.push(message.receipt);
            }
        }
        receipts
    }
}
