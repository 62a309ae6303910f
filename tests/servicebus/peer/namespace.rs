//! What is in a namespace, as the service documents itself: queues with locks, counts, due times and sub-queues of dead letters, and topics
//! that forward to queues; and the sessions of queues that have some. It has a clock of its own, and knows nothing of frames.
//!
//! A delivery counts when it begins, and what is released is taken back: that is what the service's own people say of it
//! (github.com/Azure/amqpnetlite/issues/342). A lock that runs out and what is abandoned (`modified`) count.

mod seen;
mod sessions;

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use fe2o3_amqp::types::{
    definitions::Fields,
    messaging::{Body, DeliveryState, Message, annotations::OwnedKey},
    primitives::{SimpleValue, Timestamp, Value},
};
pub(crate) use seen::Seen;
use sessions::Sessions;
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

/// What is to be said on such a link.
pub(super) enum Event {
    Message(Box<Given>),
    /// It has this session.
    Session(Place, String),
    /// It is over, with this error: it has no session, or has none any more.
    Ended(Place, &'static str),
}

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
    gives: UnboundedSender<Event>,
    /// The session that it has, in a queue that has some.
    session: Option<String>,
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
    sessions: Option<Sessions>,
}

/// All names are in lower case: the service does not tell `A` from `a`.
#[derive(Default)]
pub(super) struct Namespace {
    queues: HashMap<String, Queue>,
    /// Where each topic forwards to.
    topics: HashMap<String, Vec<String>>,
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
            let has_sessions = command.contains("--enable-session true");
            self.queues.entry(format!("{name}{SUB_QUEUE}")).or_insert_with(|| Queue::new(lock, u32::MAX, false));
            self.queues.entry(name).or_insert_with(|| Queue::new(lock, deliveries_max, has_sessions));
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

    /// Whether it is taken: a queue with sessions takes nothing that is in none.
    pub(super) fn send(&mut self, name: &str, message: Carried) -> bool {
        let queues = self.topics.get(name).cloned().unwrap_or_else(|| vec![name.to_owned()]);
        if group_of(&message).is_none() && queues.iter().any(|name| self.has_sessions(name)) {
            return false;
        }
        for name in queues {
            let queue = self.queues.get_mut(&name).unwrap_or_else(|| panic!("there is no queue {name}"));
            match due_of(&message).filter(|due| *due > now()) {
                Some(due) => queue.scheduled.push((due, message.clone())),
                None => queue.put(message.clone(), 0),
            }
            self.hand_out(&name);
        }
        true
    }

    pub(super) fn attach(&mut self, name: &str, place: Place, gives: UnboundedSender<Event>) {
        if let Some(queue) = self.queues.get_mut(name) {
            // Who comes is the next, before those that have had some.
            queue.takers.push_front(Taker { place, given: 0, limit: 0, gives, session: None });
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

    /// What was given on these links stays locked, as long as its locks last. So does a session, unless it `is_told`.
    pub(super) fn leave(&mut self, is_told: bool, is_over: impl Fn(Place) -> bool) {
        for queue in self.queues.values_mut() {
            queue.takers.retain(|taker| !is_over(taker.place));
            queue.leave_sessions(is_told, &is_over);
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
    fn new(lock: Duration, deliveries_max: u32, has_sessions: bool) -> Self {
        Self {
            lock,
            deliveries_max,
            scheduled: Vec::new(),
            messages: VecDeque::new(),
            takers: VecDeque::new(),
            last: 0,
            renewed: 0,
            hears_no_release: false,
            sessions: has_sessions.then(Sessions::default),
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
        let deliveries_max = self.deliveries_max;
        let is_worn_out = |kept: &Kept| kept.lock.is_none() && kept.given >= deliveries_max;
        while let Some(at) = self.messages.iter().position(is_worn_out) {
            worn_out.extend(self.messages.remove(at));
        }
        self.grant_sessions();
        while let Some((at, next)) = self.next_pair() {
            let Some(mut taker) = self.takers.remove(next) else { break };
            let token = fastrand::u128(..).to_be_bytes();
            let until = self.locked_until(&taker);
            let lasts = until.saturating_duration_since(Instant::now());
            let message = self.messages[at].as_given(millis(SystemTime::now() + lasts));
            let given = Given { place: taker.place, queue: name.to_owned(), token, message };
            if taker.gives.send(Event::Message(Box::new(given))).is_err() {
                continue; // Its connection has ended, and it is gone.
            }
            let kept = &mut self.messages[at];
            kept.lock = Some((token, until));
            kept.given += 1;
            taker.given += 1;
            self.takers.push_back(taker);
        }
        worn_out
    }

    /// Which message goes to whom.
    fn next_pair(&self) -> Option<(usize, usize)> {
        self.takers.iter().enumerate().filter(|(_, taker)| taker.given < taker.limit).find_map(|(next, taker)| {
            let wanted = |kept: &Kept| kept.lock.is_none() && taker.session.as_deref().is_none_or(|id| kept.is_in(id));
            Some((self.messages.iter().position(wanted)?, next))
        })
    }
}

impl Kept {
    fn is_in(&self, session: &str) -> bool {
        group_of(&self.message) == Some(session)
    }

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

fn group_of(message: &Carried) -> Option<&str> {
    message.properties.as_ref()?.group_id.as_deref()
}

fn text_of(info: &Fields, wanted: &str) -> Option<String> {
    info.iter().find_map(|(name, value)| match value {
        Value::String(text) if name.as_str() == wanted => Some(text.clone()),
        _ => None,
    })
}
