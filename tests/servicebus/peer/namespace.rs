//! What is in a namespace, as the service documents itself: queues with locks, counts, due times and sub-queues of dead letters, and topics
//! that forward to queues. It has a clock of its own, and knows nothing of frames.
//!
//! A delivery counts when it begins, and what is released is taken back: that is what the service's own people say of it
//! (github.com/Azure/amqpnetlite/issues/342). A lock that runs out and what is abandoned (`modified`) count.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use fe2o3_amqp::types::{
    definitions::Fields,
    messaging::{Body, DeliveryState, Message, annotations::OwnedKey},
    primitives::{SimpleValue, Timestamp, Value},
};
use tokio::sync::mpsc::UnboundedSender;

pub(super) type Carried = Message<Body<Value>>;

/// What the service calls a lock, in the order in which a UUID is written.
pub(super) type Token = [u8; 16];

pub(super) const SUB_QUEUE: &str = "/$deadletterqueue";
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// A link on which messages go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) connection: u64,
    pub(super) channel: u16,
    pub(super) handle: u32,
}

/// A message for such a link.
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) queue: String,
    pub(super) token: Token,
    pub(super) message: Carried,
}

struct Taker {
    place: Place,
    /// How many it has been given, and how many it may be given in all.
    given: u32,
    limit: u32,
    gives: UnboundedSender<Given>,
}

#[derive(Clone)]
struct Kept {
    sequence: i64,
    enqueued: i64,
    /// Deliveries that count.
    given: u32,
    message: Carried,
    lock: Option<(Token, Instant)>,
}

struct Queue {
    lock: Duration,
    deliveries_max: u32,
    scheduled: Vec<(i64, Carried)>,
    messages: VecDeque<Kept>,
    takers: VecDeque<Taker>,
    last: i64,
    renewed: usize,
    hears_no_release: bool,
}

/// All names are in lower case: the service does not tell `A` from `a`.
#[derive(Default)]
pub(super) struct Namespace {
    queues: HashMap<String, Queue>,
    /// Where each topic forwards to.
    topics: HashMap<String, Vec<String>>,
}

/// What is known of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In the queue, whether locked or not.
    pub(crate) messages: usize,
    pub(crate) locked: usize,
    /// Not due.
    pub(crate) scheduled: usize,
    /// Locks that began anew.
    pub(crate) renewed: usize,
}

fn now() -> i64 {
    millis(SystemTime::now())
}

fn millis(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn due_of(message: &Carried) -> Option<i64> {
    let annotations = &message.message_annotations.as_ref()?.0;
    annotations.iter().find_map(|(key, value)| match (key, value) {
        (OwnedKey::Symbol(name), Value::Timestamp(time)) if name.as_str() == SCHEDULED => Some(time.milliseconds()),
        _ => None,
    })
}

impl Namespace {
    /// Does what a command of `az` says. Harmless when repeated.
    pub(super) fn declare(&mut self, command: &str) {
        let word = |name: &str| {
            let mut words = command.split(' ').skip_while(|word| *word != name).skip(1);
            words.next().unwrap_or_else(|| panic!("`{command}` has no {name}")).to_lowercase()
        };
        if command.starts_with("az servicebus queue create") {
            let seconds = word("--lock-duration");
            let seconds = seconds.strip_prefix("pt").and_then(|rest| rest.strip_suffix('s')).unwrap().parse().unwrap();
            let (name, lock) = (word("--name"), Duration::from_secs(seconds));
            let deliveries_max = word("--max-delivery-count").parse().unwrap();
            self.queues.entry(format!("{name}{SUB_QUEUE}")).or_insert_with(|| Queue::new(lock, u32::MAX));
            self.queues.entry(name).or_insert_with(|| Queue::new(lock, deliveries_max));
        } else if command.starts_with("az servicebus topic subscription create") {
            let queues = self.topics.entry(word("--topic-name")).or_default();
            let queue = word("--forward-to");
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        } else if command.starts_with("az servicebus topic create") {
            self.topics.entry(word("--name")).or_default();
        }
    }

    pub(super) fn is_queue(&self, name: &str) -> bool {
        self.queues.contains_key(name)
    }

    /// Nobody may send to a sub-queue.
    pub(super) fn takes_messages(&self, name: &str) -> bool {
        self.topics.contains_key(name) || (self.is_queue(name) && !name.ends_with(SUB_QUEUE))
    }

    pub(super) fn send(&mut self, name: &str, message: Carried) {
        let queues = self.topics.get(name).cloned().unwrap_or_else(|| vec![name.to_owned()]);
        for name in queues {
            let queue = self.queues.get_mut(&name).unwrap_or_else(|| panic!("there is no queue {name}"));
            match due_of(&message).filter(|due| *due > now()) {
                Some(due) => queue.scheduled.push((due, message.clone())),
                None => queue.put(message.clone(), 0),
            }
            self.hand_out(&name);
        }
    }

    pub(super) fn attach(&mut self, name: &str, place: Place, gives: UnboundedSender<Given>) {
        if let Some(queue) = self.queues.get_mut(name) {
            // Who comes is the next, before those that have had some.
            queue.takers.push_front(Taker { place, given: 0, limit: 0, gives });
        }
    }

    /// `limit`: how many may have been given on this link in all.
    pub(super) fn credit(&mut self, name: &str, place: Place, limit: u32) {
        let takers = self.queues.get_mut(name).map(|queue| &mut queue.takers);
        if let Some(taker) = takers.and_then(|all| all.iter_mut().find(|taker| taker.place == place)) {
            taker.limit = limit;
        }
        self.hand_out(name);
    }

    /// What was given on these links stays locked, as long as its locks last.
    pub(super) fn leave(&mut self, is_over: impl Fn(Place) -> bool) {
        for queue in self.queues.values_mut() {
            queue.takers.retain(|taker| !is_over(taker.place));
        }
    }

    /// What is said of a lock that has run out changes nothing, and is answered by nobody.
    pub(super) fn settle(&mut self, name: &str, token: Token, state: &DeliveryState) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let Some(at) = queue.locked(token) else { return };
        match state {
            DeliveryState::Accepted(_) => drop(queue.messages.remove(at)),
            DeliveryState::Released(_) if queue.hears_no_release => {}
            DeliveryState::Released(_) => {
                queue.messages[at].lock = None;
                queue.messages[at].given -= 1;
            }
            DeliveryState::Rejected(rejected) => {
                let said = rejected.error.as_ref().and_then(|error| error.info.as_deref());
                let [reason, description] = [REASON, DESCRIPTION].map(|name| said.and_then(|info| text_of(info, name)));
                if let Some(kept) = queue.messages.remove(at) {
                    self.set_aside(name, kept, reason.as_deref(), description.as_deref());
                }
            }
            // `undeliverable-here` would defer it, which nobody asks for here.
            DeliveryState::Modified(_) => queue.messages[at].lock = None,
            DeliveryState::Received(_) => {}
            #[allow(unreachable_patterns)] // A feature of the driver adds some.
            _ => {}
        }
        self.hand_out(name);
    }

    /// Lets all of these locks begin anew, or none; the time until which they last.
    pub(super) fn renew(&mut self, name: &str, tokens: &[Token]) -> Option<i64> {
        let queue = self.queues.get_mut(name)?;
        let until = Instant::now() + queue.lock;
        let places: Vec<usize> = tokens.iter().map(|token| queue.locked(*token)).collect::<Option<_>>()?;
        for (at, token) in places.into_iter().zip(tokens) {
            queue.messages[at].lock = Some((*token, until));
            queue.renewed += 1;
        }
        Some(millis(SystemTime::now() + queue.lock))
    }

    /// As time goes on.
    pub(super) fn tick(&mut self) {
        let names: Vec<String> = self.queues.keys().cloned().collect();
        for name in names {
            if let Some(queue) = self.queues.get_mut(&name) {
                queue.tick();
            }
            self.hand_out(&name);
        }
    }

    /// Ends the lock of the first message in `name`.
    pub(super) fn lapse(&mut self, name: &str) {
        if let Some(kept) = self.queues.get_mut(name).and_then(|queue| queue.messages.front_mut()) {
            kept.lock = None;
        }
    }

    pub(super) fn hears_no_release(&mut self, name: &str) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.hears_no_release = true;
        }
    }

    pub(super) fn seen(&self, name: &str) -> Seen {
        let queue = self.queues.get(name).unwrap_or_else(|| panic!("there is no queue {name}"));
        Seen {
            messages: queue.messages.len(),
            locked: queue.messages.iter().filter(|kept| kept.lock.is_some()).count(),
            scheduled: queue.scheduled.len(),
            renewed: queue.renewed,
        }
    }

    /// Of what is in `name`, the application property `property`.
    pub(super) fn told(&self, name: &str, property: &str) -> Vec<Option<String>> {
        let queue = self.queues.get(name).unwrap_or_else(|| panic!("there is no queue {name}"));
        let told = |kept: &Kept| {
            let properties = &kept.message.application_properties.as_ref()?.0;
            properties.iter().find_map(|(name, value)| match value {
                SimpleValue::String(text) if name == property => Some(text.clone()),
                _ => None,
            })
        };
        queue.messages.iter().map(told).collect()
    }

    fn hand_out(&mut self, name: &str) {
        let worn_out = self.queues.get_mut(name).map(|queue| queue.hand_out(name)).unwrap_or_default();
        for kept in worn_out {
            let description = format!("it was given {} times, as often as this queue lets it be", kept.given);
            self.set_aside(name, kept, Some("MaxDeliveryCountExceeded"), Some(&description));
        }
    }

    fn set_aside(&mut self, name: &str, kept: Kept, reason: Option<&str>, description: Option<&str>) {
        let Kept { mut message, given, .. } = kept;
        let properties = message.application_properties.get_or_insert_with(Default::default);
        for (name, value) in [(REASON, reason), (DESCRIPTION, description)] {
            if let Some(value) = value {
                properties.insert(name.to_owned(), SimpleValue::String(value.to_owned()));
            }
        }
        let sub = format!("{name}{SUB_QUEUE}");
        if let Some(queue) = self.queues.get_mut(&sub) {
            queue.put(message, given);
        }
        self.hand_out(&sub);
    }
}

impl Queue {
    fn new(lock: Duration, deliveries_max: u32) -> Self {
        Self {
            lock,
            deliveries_max,
            scheduled: Vec::new(),
            messages: VecDeque::new(),
            takers: VecDeque::new(),
            last: 0,
            renewed: 0,
            hears_no_release: false,
        }
    }

    fn put(&mut self, message: Carried, given: u32) {
        self.last += 1;
        self.messages.push_back(Kept { sequence: self.last, enqueued: now(), given, message, lock: None });
    }

    /// Where the message is that is locked by `token`.
    fn locked(&self, token: Token) -> Option<usize> {
        let now = Instant::now();
        self.messages.iter().position(|kept| kept.lock.is_some_and(|(its, until)| its == token && until > now))
    }

    fn tick(&mut self) {
        let (now, time) = (Instant::now(), now());
        for kept in &mut self.messages {
            kept.lock = kept.lock.filter(|(_, until)| *until > now);
        }
        self.scheduled.sort_by_key(|(due, _)| *due);
        let due = self.scheduled.partition_point(|(due, _)| *due <= time);
        let messages: Vec<_> = self.scheduled.drain(..due).collect();
        for (_, message) in messages {
            self.put(message, 0);
        }
    }

    /// To whoever has credit, one after the other, so that none of them has all. Answers those that have been given too often.
    fn hand_out(&mut self, name: &str) -> Vec<Kept> {
        let mut worn_out = Vec::new();
        while let Some(at) = self.messages.iter().position(|kept| kept.lock.is_none()) {
            if self.messages[at].given >= self.deliveries_max {
                worn_out.extend(self.messages.remove(at));
                continue;
            }
            let Some(next) = self.takers.iter().position(|taker| taker.given < taker.limit) else { break };
            let Some(mut taker) = self.takers.remove(next) else { break };
            let token = fastrand::u128(..).to_be_bytes();
            let message = self.messages[at].as_given(millis(SystemTime::now() + self.lock));
            let given = Given { place: taker.place, queue: name.to_owned(), token, message };
            if taker.gives.send(given).is_err() {
                continue; // Its connection has ended, and it is gone.
            }
            let kept = &mut self.messages[at];
            kept.lock = Some((token, Instant::now() + self.lock));
            kept.given += 1;
            taker.given += 1;
            self.takers.push_back(taker);
        }
        worn_out
    }
}

impl Kept {
    /// With what the service says beside it.
    fn as_given(&self, locked_until: i64) -> Carried {
        let mut message = self.message.clone();
        message.header.get_or_insert_with(Default::default).delivery_count = self.given;
        let annotations = message.message_annotations.get_or_insert_with(Default::default);
        let time = |millis| Value::Timestamp(Timestamp::from_milliseconds(millis));
        annotations.insert(OwnedKey::from("x-opt-sequence-number"), Value::Long(self.sequence));
        annotations.insert(OwnedKey::from("x-opt-enqueued-time"), time(self.enqueued));
        annotations.insert(OwnedKey::from("x-opt-locked-until"), time(locked_until));
        message
    }
}

fn text_of(info: &Fields, wanted: &str) -> Option<String> {
    info.iter().find_map(|(name, value)| match value {
        Value::String(text) if name.as_str() == wanted => Some(text.clone()),
        _ => None,
    })
}
