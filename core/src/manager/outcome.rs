//! What a pass tells of each message, and which of it counts against the message: an outage never does.

use std::{fmt, sync::Arc, time::Instant};

use super::Few;
use crate::{
    claim::Hold,
    envelope::Envelope,
    handler_error::{HandlerError, chain},
    ids::{DedupKey, Fingerprint, SagaName},
    ports::{Cause, ErrorKind, Receipt, StoreError},
    registry::Decoded,
    trace::Trace,
};

/// A message under a lease, with what has been worked out about it.
pub struct Incoming {
    /// Under what it will be remembered.
    pub key: DedupKey,
    /// What it says.
    pub fingerprint: Fingerprint,
    /// The message.
    pub envelope: Arc<Envelope>,
    /// Proof of its lease, for whoever settles it.
    pub receipt: Receipt,
    /// How often it has been given, this time included.
    pub attempts: u32,
    /// What it holds in memory, in bytes: of its body what it has opened to, where that is more.
    pub(crate) bytes: usize,
    /// The decoded body; taken by the first run of the handler, decoded again for a second.
    pub(crate) decoded: Option<Decoded>,
    /// Who follows it; nobody where no endpoint has set that.
    pub(crate) trace: Trace,
    /// Where its body was fetched from elsewhere.
    pub(crate) fetched: Option<Arc<WithBody>>,
    /// Whether the answer that it asks for has gone to its address since it was given: it needs no other one.
    pub(crate) answered: bool,
    /// Whether its effect was saved since it was given: nobody has sent its answer before.
    pub(crate) is_first: bool,
}

/// A message with the body that was fetched for it, and what holds that body until the message is over.
#[derive(Clone)]
pub(crate) struct WithBody {
    pub(crate) whole: Arc<Envelope>,
    pub(crate) hold: Arc<Hold>,
}

impl Incoming {
    /// The message with its body, wherever that has come from.
    pub(crate) fn whole(&self) -> &Arc<Envelope> {
        self.fetched.as_ref().map_or(&self.envelope, |fetched| &fetched.whole)
    }

    /// It is over, or was set aside by `aside`: before it is acknowledged, what was fetched for it is let go of.
    pub(crate) async fn over(&self, aside: Option<&SagaName>) -> Result<(), StoreError> {
        match &self.fetched {
            Some(fetched) => fetched.hold.over(aside).await,
            None => Ok(()),
        }
    }

    /// When the endpoint began with it, by the process's own clock: after it had waited for its turn. `None` outside of an
    /// endpoint.
    #[must_use]
    pub const fn began(&self) -> Option<Instant> {
        self.trace.began()
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("message_id", &self.envelope.message_id)
            .field("message_type", &self.envelope.message_type)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// How a pass ended for one message.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled, sent and marked, now or by finishing an earlier attempt: ack.
    Handled,
    /// Seen before: ack.
    Duplicate,
    /// Dropped by a rule, which the text names: ack and count.
    Dropped(&'static str),
    /// To be set aside for a person, with the reason.
    DeadLetter(String),
    /// The handler failed, or there is no saga to handle it yet. Nothing of the run was kept.
    Failed(HandlerError),
    /// Handled and saved, but not everything is sent and marked: another pass finishes it, or the sweeper does.
    Unsent(String),
    /// Over, but the answer that this copy asks for could not be sent to its address: it comes again, and is answered then.
    Unanswered(String),
    /// Nothing is decided: start over from the load.
    Again(Again),
    /// The pass ended before this message, or with the copy of it that it waits for: it is judged in the next pass.
    Rest,
}

impl Outcome {
    /// How a run ends of which nothing is kept.
    pub(crate) fn of_run(error: HandlerError) -> Self {
        match error.rule() {
            Some(rule) => Self::Dropped(rule),
            None if error.is_permanent() => Self::DeadLetter(error.chain()),
            None => Self::Failed(error),
        }
    }
}

/// Why nothing is decided. None of these count against a message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Again {
    /// Somebody else has saved the entity.
    Conflict,
    /// A write may have happened: what happened is known after the next load.
    UnknownOutcome(String),
    /// The store failed before it wrote anything.
    Unavailable(String),
    /// What is stored cannot be read by this program, which another version or a person may change.
    Malformed(String),
    /// The entity has as many entries waiting to be sent as it may have.
    Full,
    /// The pass took longer than its deadline before it had saved anything, and nobody has saved the entity meanwhile.
    Deadline,
    /// What the pass wanted to save is too large for the store, and nobody has saved the entity meanwhile: fewer messages
    /// in one pass.
    TooLarge(String),
}

impl Again {
    /// Whose budget another try is charged to.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        match self {
            Self::Conflict | Self::UnknownOutcome(_) | Self::TooLarge(_) => Cause::Conflict,
            // Whoever can send what waits makes room for it.
            Self::Full => Cause::Unsent,
            Self::Unavailable(_) | Self::Malformed(_) | Self::Deadline => Cause::Unavailable,
        }
    }
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("the entity was saved by somebody else meanwhile"),
            Self::UnknownOutcome(why) | Self::Unavailable(why) | Self::Malformed(why) | Self::TooLarge(why) => {
                f.write_str(why)
            }
            Self::Full => f.write_str("the saga's outbox is full; it empties when its messages can be sent"),
            Self::Deadline => f.write_str("the pass took longer than its deadline before it could save"),
        }
    }
}

impl From<StoreError> for Again {
    fn from(error: StoreError) -> Self {
        let text = chain(&error);
        match error.kind() {
            ErrorKind::UnknownOutcome => Self::UnknownOutcome(text),
            ErrorKind::Malformed => Self::Malformed(text),
            // Too large a message is the manager's own verdict, on a save: of any other call it would be no fault of its.
            ErrorKind::Unavailable
            | ErrorKind::Denied
            | ErrorKind::Misconfigured
            | ErrorKind::Absent
            | ErrorKind::TooLarge => Self::Unavailable(text),
        }
    }
}

/// Which messages have the identity of one before them.
pub(super) fn repeated(messages: &[Incoming]) -> Few<bool> {
    let mut repeated: Few<bool> = messages.iter().map(|_| false).collect();
    let mut order: Few<(DedupKey, usize)> = messages.iter().map(|message| message.key).zip(0..).collect();
    order.sort_unstable();
    for pair in order.windows(2) {
        if let [(key, _), (next, index)] = *pair
            && key == next
        {
            repeated[index] = true;
        }
    }
    repeated
}
