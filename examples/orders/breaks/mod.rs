//! `--break NAME`: the same shop with one rule of the protocol broken, so that one can see the books find it.
//!
//! The manager is the shipped one. What breaks the rule is an adapter around one of its ports, as a careless author of a
//! store or a transport might write it. Several workers compete for the messages, since one process never races itself,
//! and the adapter lies in wait until the unlucky moment has come, which would come by itself sooner or later. With
//! `--mend` everything is the same, the ambush included, but the rule is kept: then the books balance.

mod diary;
mod receiver;
mod store;
mod story;
mod trace;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use hapax::{InProcess, Sqlite, ids::TypeName};
use receiver::BrokenTransport;
use store::BrokenStore;
pub(crate) use story::Story;
use trace::{Call, Open, Port, Trace};

use crate::books::Finding;

/// Workers that compete for the messages: two to collide and one to carry on.
pub(crate) const WORKERS: usize = 3;
/// Orders of a run unless told otherwise: enough for hundreds of collisions in a few seconds.
pub(crate) const ORDERS: u32 = 300;
/// Copies come within this time: while the first is being handled, or just after.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(20);
/// A message that was acked early is in no queue while it is being handled: so such a run is over when nothing has come
/// to an end for longer than a payment waits for its card.
const QUIET: Duration = Duration::from_secs(2);
/// When nothing has come to an end for so long, the rest never will: a payment whose cancellation got lost asks a silent
/// card for ever.
const STUCK: Duration = Duration::from_secs(3);
/// A worker takes so many messages at a time, so that something is left for its rivals.
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// A rule of the protocol that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The check must come after the load.
    CheckBeforeLoad,
    /// A save must expect the version that was loaded.
    BlindSave,
    /// The ack must come last.
    AckEarly,
    /// A message is marked after everything of it has been dispatched.
    MarkBeforeDispatch,
    /// The dedup store forgets nothing within the retention.
    ForgetfulDedup,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::CheckBeforeLoad, Self::BlindSave, Self::AckEarly, Self::MarkBeforeDispatch, Self::ForgetfulDedup];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CheckBeforeLoad => "check-before-load",
            Self::BlindSave => "blind-save",
            Self::AckEarly => "ack-early",
            Self::MarkBeforeDispatch => "mark-before-dispatch",
            Self::ForgetfulDedup => "forgetful-dedup",
        }
    }

    /// Share of messages that come twice, unless told otherwise. Where a copy could save a lost message, none is made.
    pub(crate) const fn duplicates(self) -> f64 {
        match self {
            Self::CheckBeforeLoad | Self::ForgetfulDedup => 0.6,
            Self::BlindSave | Self::MarkBeforeDispatch => 0.2,
            Self::AckEarly => 0.0,
        }
    }

    /// Share of passes that may be dropped, unless told otherwise. Where no crash is needed, none gets in the way.
    pub(crate) const fn crashes(self) -> f64 {
        match self {
            Self::CheckBeforeLoad | Self::BlindSave | Self::ForgetfulDedup => 0.0,
            Self::AckEarly | Self::MarkBeforeDispatch => 0.5,
        }
    }

    /// The step of the protocol that it is about.
    const fn step(self) -> &'static str {
        match self {
            Self::CheckBeforeLoad => "load ─> check dedup",
            Self::BlindSave => "save(state + outbox entry)",
            Self::AckEarly => "settle(Ack), the last step",
            Self::MarkBeforeDispatch => "save ─> dispatch ─> add dedup",
            Self::ForgetfulDedup => "check dedup",
        }
    }

    /// What the adapter does.
    const fn broken(self) -> &'static str {
        match self {
            Self::CheckBeforeLoad => "the store is asked whether the message is over, and only then for the entity",
            Self::BlindSave => "a save goes over whatever version is stored by now",
            Self::AckEarly => "a message is acked as soon as it is received",
            Self::MarkBeforeDispatch => "a message is marked as over in the commit that saves what it is to send",
            Self::ForgetfulDedup => "of every eight messages that are over, the dedup store has forgotten one",
        }
    }

    /// What hapax does.
    const fn shipped(self) -> &'static str {
        match self {
            Self::CheckBeforeLoad => {
                "load first; the check begins when the load has returned, or both see one snapshot"
            }
            Self::BlindSave => "a save counts only if the version is still the one that was loaded; else load again",
            Self::AckEarly => "ack last: until then the message comes again when the lease of a dead worker runs out",
            Self::MarkBeforeDispatch => {
                "mark when everything is dispatched and confirmed: until then a copy finds the \
                                         outbox entry and sends it"
            }
            Self::ForgetfulDedup => "dedup entries are kept for the retention, which is longer than any copy takes",
        }
    }

    /// How the one leads to the other.
    const fn moral(self) -> &'static str {
        match self {
            Self::CheckBeforeLoad => {
                "Between check and load the rival finished the message: \"not seen\" was old, the entity was new, and no \
                 outbox entry was left to tell. So the message was handled twice."
            }
            Self::BlindSave => {
                "Both had loaded the same version. The second save went over the first, whose message is marked as over \
                 and has left no effect."
            }
            Self::AckEarly => {
                "The worker died with the message in its hands. The broker was told that it was done, and the sender \
                 will not send it again: nobody has it any more."
            }
            Self::MarkBeforeDispatch => {
                "The worker died before it had sent anything. The next one was told \"seen\", took the outbox entry for \
                 a left-over and removed it: what it was to send is lost."
            }
            Self::ForgetfulDedup => {
                "The message was over, dispatched, marked and cleaned up. A late copy came, and the one place that \
                 remembered said \"not seen\": so it was handled twice."
            }
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let rule = Self::ALL.into_iter().find(|rule| rule.name() == name);
        rule.ok_or_else(|| format!("there is no such rule to break; choose one of {}", names()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A run in which a rule is broken.
#[derive(Debug, Clone)]
pub(crate) struct Sabotage {
    rule: Rule,
    /// The rule is kept after all.
    mended: bool,
    trace: Trace,
}

impl Sabotage {
    pub(crate) fn new(rule: Rule, mended: bool) -> Self {
        Self { rule, mended, trace: Trace::new() }
    }

    /// The ports of the worker with this number.
    pub(crate) fn ports(&self, number: usize, store: Sqlite, queue: InProcess) -> (BrokenStore, BrokenTransport) {
        let worker = Arc::new(Worker { number, sabotage: self.clone() });
        (BrokenStore::new(store, worker.clone()), BrokenTransport::new(queue, worker))
    }

    /// How long nothing must have come to an end, once the queue is empty, before the run is over.
    pub(crate) const fn quiet(&self) -> Duration {
        match self.rule {
            Rule::AckEarly => QUIET,
            _ => Duration::ZERO,
        }
    }

    /// When nothing has come to an end for so long, something never will; `None`: as in any run.
    pub(crate) fn stuck(&self) -> Option<Duration> {
        (!self.mended).then_some(STUCK)
    }

    /// What became of it, once the books have been checked.
    pub(crate) fn story(&self, findings: &[Finding]) -> Story {
        Story::find(self, findings)
    }
}

/// A message type without the name of the shop.
fn short(message_type: &TypeName) -> &str {
    let name = message_type.as_str();
    name.strip_prefix("shop.").unwrap_or(name)
}

/// One of the workers, as its ports see it.
#[derive(Debug)]
struct Worker {
    number: usize,
    sabotage: Sabotage,
}

impl Worker {
    /// The ambush for a break of `rule` is to be laid.
    fn is_about(&self, rule: Rule) -> bool {
        self.sabotage.rule == rule
    }

    /// And the rule is to be broken.
    fn breaks(&self, rule: Rule) -> bool {
        self.is_about(rule) && !self.sabotage.mended
    }

    fn trace(&self) -> &Trace {
        &self.sabotage.trace
    }

    fn call(&self, port: Port) -> Open<'_> {
        Open::new(self.trace(), self.number, port)
    }
}
