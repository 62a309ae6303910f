//! What an operator may want to count.

mod audited;

use std::{fmt, sync::Arc, time::Duration};

pub use audited::{Invariant, Violation};

use crate::{
    HandlerError,
    entity::OutboxEntry,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, EntityKey, MessageId, Scope},
    manager::{Incoming, Outcome},
    ports::{Cause, DispatchError},
};

/// Observes an endpoint. Called from the hot path: it must be quick and must not block.
///
/// Nothing here tells the time but what a shell has measured: the heart reads no clock for its observers. Who wants to know how
/// long something has taken compares the times that come with it ([`Incoming::began`], [`OutboxEntry::saved_at`]).
pub trait Metrics: fmt::Debug + Send + Sync {
    /// Something happened.
    fn observe(&self, event: Event<'_>);
}

impl<M: Metrics + ?Sized> Metrics for Arc<M> {
    fn observe(&self, event: Event<'_>) {
        (**self).observe(event);
    }
}

/// What happened to which entity.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A message's effect is saved, everything is sent and marked; by the pass that handled it, or by one that finished
    /// what an earlier one had saved.
    Handled(&'a EntityKey),
    /// A copy was recognised and dropped.
    Duplicate(&'a EntityKey),
    /// A message was dropped by a rule; the text says which.
    Dropped(&'a EntityKey, &'static str),
    /// A message was set aside.
    DeadLettered(&'a EntityKey),
    /// An outgoing message that can never be sent was set aside: it is a dead letter with a destination.
    OutgoingDeadLettered(&'a EntityKey),
    /// A message's handler has failed; it will be given again.
    Failed {
        /// Its entity.
        key: &'a EntityKey,
        /// Which message.
        message_id: &'a MessageId,
        /// How often it has been given.
        attempt: u32,
        /// What its handler said.
        error: &'a HandlerError,
    },
    /// A store did not let a pass read its entity, or what is known of its messages: nothing is done. Where there are messages they are
    /// [`Retried`](Self::Retried), and a sweep has [failed](Self::SweepFailed).
    Unread(&'a EntityKey),
    /// What a store has for a message can be read, and not understood by this program. The message is given back, uncounted: it waits for another
    /// version, or until that is mended.
    Unreadable {
        /// Its entity.
        key: &'a EntityKey,
        /// Which message.
        message_id: &'a MessageId,
        /// What cannot be understood.
        why: &'a str,
    },
    /// What a pass has handled is saved, with all that it has to send.
    Saved(&'a EntityKey),
    /// An entity could be read, and its store has not confirmed the save: it takes no writes, or its answer was lost. Another pass loads
    /// again.
    Unsaved(&'a EntityKey),
    /// What an entity had to send is sent, and the dedup store has not confirmed that it is over: another pass, or the sweeper, finishes it.
    Unmarked(&'a EntityKey),
    /// A pass has to be made again.
    Retried(&'a EntityKey, Cause),
    /// Work is saved but could not be sent within its budget; the sweeper has it now.
    LeftToSweeper(&'a EntityKey),
    /// The sweeper has finished this many entries.
    Swept(&'a EntityKey, usize),
    /// The sweeper could not finish entries, for this reason. They stay, and the next sweep tries again.
    SweepFailed(&'a EntityKey, &'a str),
    /// A message was seen, yet its entity holds an entry of another attempt: retention was shorter than the longest
    /// redelivery, and the message has been handled twice.
    RetentionBreached(&'a EntityKey),
    /// An endpoint is about to run, on a transport of this name.
    Started(&'a EndpointName, &'static str),
    /// An endpoint has received so many messages; one for several sagas is one.
    Received(&'a EndpointName, usize),
    /// A message that a saga was given has come to this end, and the broker is told. Each delivery has one end for each of
    /// its sagas.
    Ended(&'a EntityKey, &'a Incoming, Ending),
    /// A message that no saga of the endpoint can take has come to this end, and the broker is told.
    Refused(&'a EndpointName, &'a Envelope, Ending),
    /// These messages were offered to the transport in one call, which took so long, with these results. What is held back, since
    /// its destination takes nothing, is not offered.
    Sent(&'a EndpointName, &'a [Outgoing], &'a [Result<(), DispatchError>], Duration),
    /// All messages of an outbox entry are with the transport, for the first time or once more. How long they have waited is the
    /// time since the entry was saved.
    Dispatched(&'a EntityKey, &'a OutboxEntry),
    /// What a sweeper has found waiting in the outboxes of a saga, in one look through all of them; also when it was nothing. Of
    /// several processes each tells of the same entries.
    Waiting(&'a Scope, Backlog),
    /// An [audit](crate::endpoint::Audit) has looked whether an invariant holds of an entity, or of one of its messages, and has
    /// found that it does (`None`), or that it does not. The same violation of a message is told once by each process.
    Audited(&'a EntityKey, Invariant, Option<&'a Violation>),
    /// For how long the earliest message of an endpoint's schedule has been due and is not sent, by the schedule's clock; `None` when
    /// none is. Told at each look into it. Of several processes each tells of the same messages.
    Overdue(&'a EndpointName, Option<Duration>),
}

/// How a delivery ended for a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// Its effect is saved, everything is sent and marked.
    Handled,
    /// It was a copy.
    Duplicate,
    /// A rule has dropped it.
    Dropped,
    /// It was set aside.
    DeadLettered,
    /// Its effect is saved; the sweeper sends what is left.
    LeftToSweeper,
    /// It is given back, and comes again.
    Retried,
}

impl Ending {
    /// How a message ends whose pass has decided so; `None` where nothing is decided, or something is yet to be done.
    pub(crate) const fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Handled => Some(Self::Handled),
            Outcome::Duplicate => Some(Self::Duplicate),
            Outcome::Dropped(_) => Some(Self::Dropped),
            _ => None,
        }
    }

    /// The ending in one word, as it stands in spans and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Duplicate => "duplicate",
            Self::Dropped => "dropped",
            Self::DeadLettered => "dead_lettered",
            Self::LeftToSweeper => "left_to_sweeper",
            Self::Retried => "retried",
        }
    }

    /// Whether somebody should look at why.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::DeadLettered | Self::LeftToSweeper | Self::Retried)
    }
}

/// What waits in the outboxes of a saga to be sent, and has waited for longer than
/// [`sweep_age`](crate::endpoint::Settings::sweep_age).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// How many entities.
    pub entities: usize,
    /// How many entries they have.
    pub entries: usize,
    /// How long ago the oldest was saved, by the store's clock.
    pub oldest: Option<Duration>,
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {
    fn observe(&self, _event: Event<'_>) {}
}
