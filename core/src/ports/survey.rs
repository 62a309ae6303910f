//! What tools and pages may ask a store: numbers with a bound, and a reason in place of an answer that would take reading everything.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

use super::StoreError;
use crate::{
    envelope::Destination,
    ids::{EndpointName, EntityKey, MessageId, Scope},
    time::Timestamp,
};

/// What a person can be shown of a store beyond what a running endpoint asks it: names, and numbers that have a bound. For tools and
/// pages; no promise of hapax rests on it.
///
/// # Promises
/// 1. *Named:* `scopes` lists each endpoint and saga of which an entity was saved, once, those of one endpoint together; `lettered` each endpoint
///    with a dead letter, once; `entity_keys` lists the keys of a scope in their order, each once, beginning behind `after`.
/// 2. *Counted:* a number below its limit is exact, and of this endpoint alone where one is asked for; at the limit there
///    [may be more](Count::at_least).
/// 3. *Found:* `scheduled_message` shows where a message that was put into the schedule is to go and when it is due, and no other.
/// 4. *Read only:* no call changes what any other port of the store answers.
/// 5. *Honest:* what the store cannot tell, or only by reading all that it holds, is [`Answer::Unknown`] with the reason, and never an
///    empty list or a zero.
///
/// All of it may be of different moments.
///
/// # Errors
/// [`StoreError`] where the store could be asked and has not answered; nothing was changed.
#[async_trait]
pub trait Survey: fmt::Debug + Send + Sync {
    /// Endpoints and their sagas that the store has entities of, at most `limit`.
    async fn scopes(&self, limit: usize) -> Result<Answer<Vec<Scope>>, StoreError>;

    /// Endpoints that have set something aside, at most `limit`: one whose first messages all failed has no entity.
    async fn lettered(&self, limit: usize) -> Result<Answer<Vec<EndpointName>>, StoreError>;

    /// Keys of the entities of `scope`, tombstones included, behind `after`, at most `limit`.
    async fn entity_keys(
        &self,
        scope: &Arc<Scope>,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Answer<Vec<EntityKey>>, StoreError>;

    /// Dedup entries of all endpoints of the store, counted up to `limit`.
    async fn dedup_count(&self, limit: u64) -> Result<Answer<DedupEntries>, StoreError>;

    /// Dead letters of `endpoint`, counted up to `limit`.
    async fn dead_letter_count(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Count>, StoreError>;

    /// Messages that `endpoint` has put into the schedule, counted up to `limit`.
    async fn scheduled(&self, endpoint: &EndpointName, limit: u64) -> Result<Answer<Scheduled>, StoreError>;

    /// What `endpoint` has put into the schedule under this id: one for each destination.
    async fn scheduled_message(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
    ) -> Result<Answer<Vec<ScheduledMessage>>, StoreError>;
}

/// An answer, or why there is none. As JSON the answer itself, or `{"unknown": "why"}`. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// What was asked for.
    Is(T),
    /// It is not known here.
    Unknown {
        /// Why, and where else to look.
        #[serde(rename = "unknown")]
        why: String,
    },
}

impl<T> Answer<T> {
    /// Not known, for this reason.
    #[must_use]
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }

    /// The answer, if there is one.
    #[must_use]
    pub const fn is(&self) -> Option<&T> {
        match self {
            Self::Is(answer) => Some(answer),
            Self::Unknown { .. } => None,
        }
    }

    /// The same about something that is made of the answer.
    #[must_use]
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Is(answer) => Answer::Is(make(answer)),
            Self::Unknown { why } => Answer::Unknown { why },
        }
    }
}

impl<T: fmt::Display> fmt::Display for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(answer) => answer.fmt(f),
            Self::Unknown { why } => write!(f, "not known here: {why}"),
        }
    }
}

/// How many, as far as it was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// So many were found.
    pub number: u64,
    /// Counting ended at its limit, or leaves something out: there may be more.
    pub at_least: bool,
}

impl Count {
    /// Of `number` that were found where counting was to end at `limit`.
    #[must_use]
    pub const fn up_to(number: u64, limit: u64) -> Self {
        Self { number, at_least: number >= limit }
    }

    /// Exactly so many.
    #[must_use]
    pub const fn exactly(number: u64) -> Self {
        Self { number, at_least: false }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { number: self.number.saturating_add(other.number), at_least: self.at_least || other.at_least }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.at_least { "at least " } else { "" }, self.number)
    }
}

/// The dedup entries of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupEntries {
    /// How many, of all endpoints together.
    pub count: Count,
    /// None of them was inserted before this time, by the store's clock; `None` where there are none, or nobody knows.
    pub none_before: Option<Timestamp>,
    /// The longest retention that any endpoint has asked this store for; `None` where none has yet.
    pub retention: Option<Duration>,
}

/// What an endpoint has in the schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Messages, those that are due included.
    pub messages: Count,
    /// Of these, those that are due and not gone yet.
    pub overdue: Count,
}

/// A message in the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledMessage {
    /// Where it is to go.
    pub destination: Destination,
    /// When.
    pub due: Timestamp,
}
