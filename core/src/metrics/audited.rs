//! What an audit looks for.

use std::fmt;

use crate::{
    ids::{DedupKey, EntityKey, MessageId},
    time::Timestamp,
};

/// A sentence that is always true of an endpoint's stores, whatever crashes, repeats or races, as long as they keep the
/// [promises of their ports](crate::ports). See [`Audit`](crate::endpoint::Audit) for who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Invariant {
    /// A message that is handled, and all of whose outgoing messages are sent, has a dedup entry until retention has passed.
    /// Without it, the next copy is handled again.
    Remembered,
    /// A message whose effect is saved is in its entity's outbox or has a dedup entry: never in neither. Without either, what it
    /// was to send is lost, and the next copy is handled again.
    Kept,
    /// The dedup entry of a message is that of one attempt, for as long as it is there. A second attempt is a second effect.
    OneAttempt,
    /// No outbox entry is of another attempt than its message's dedup entry: that message was handled twice, as it came again
    /// after it had been forgotten.
    HandledOnce,
    /// An outbox entry that has waited is finished by the sweeper, or the sweeper says why it cannot; and what is over does not
    /// stay. What stays for longer than its dedup entry is sent once more, long after.
    NoOrphan,
    /// An entity only goes on: no version comes back, none stands for two states, the count of handled messages never falls, and
    /// nothing but a tombstone ever goes away.
    VersionsGrow,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Remembered, Self::Kept, Self::OneAttempt, Self::HandledOnce, Self::NoOrphan, Self::VersionsGrow];

    /// Its name, as it stands in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Remembered => "remembered",
            Self::Kept => "kept",
            Self::OneAttempt => "one_attempt",
            Self::HandledOnce => "handled_once",
            Self::NoOrphan => "no_orphan",
            Self::VersionsGrow => "versions_grow",
        }
    }

    /// What a person does who is told that it does not hold.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Remembered => {
                "the dedup store has forgotten it early, or answers from a replica: look for a time to live, a clean-up job, a \
                 restored backup or a failover, and compare what its next copy would do twice"
            }
            Self::Kept => {
                "the entity was written or restored by something else than this endpoint: look for it, and compare what the message \
                 was to send with what its receivers have"
            }
            Self::OneAttempt | Self::HandledOnce => {
                "the message was handled twice: raise retention above the longest redelivery, look for a dedup store that forgets or \
                 was restored, and mend the second effect"
            }
            Self::NoOrphan => {
                "no sweeper finishes it: look whether the store lists it as pending and takes its clean-up, and whether all processes \
                 run one version of the program"
            }
            Self::VersionsGrow => {
                "the entity was restored, removed or written by something else than this endpoint, or is read from a replica: look \
                 for it, and handle anew what was lost since"
            }
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An invariant that was found not to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Of which entity.
    pub entity: EntityKey,
    /// Under what the message is remembered; `None` where it is about the entity as a whole.
    pub message: Option<DedupKey>,
    /// Its id, where this process has seen the message.
    pub message_id: Option<MessageId>,
    /// What was found.
    pub what: String,
    /// When, by this process's clock.
    pub at: Timestamp,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, entity, what, .. } = self;
        write!(f, "{invariant}: {entity}: {what}; {}", invariant.remedy())
    }
}
