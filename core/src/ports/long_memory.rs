//! How a dedup store may forget entries and still recognise late copies: by number, by key, or by evidence that none is left.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{Evicted, Known, StoreError};
use crate::ids::{DedupKey, EndpointName};

/// What a [`DedupStore`](super::DedupStore) remembers of entries that it has evicted, and what has to be shown before it evicts others.
///
/// Time alone does not tell when a copy of a message can no longer come. Three things do better, by what a message is
/// [known by](DedupKey::identity):
///
/// - *Its number* in its sender's sequence: of numbers that follow one another, only the first and the last are kept, for ever. A message
///   is recognised however late it comes.
/// - *Its idempotency key*: the entry is kept whole for a time of its own.
/// - *Its id*: the entry goes only when the transport has shown that no copy is left in its queue ([`Marks`](super::Marks)).
///
/// # Promises
/// 1. *No gap:* what `contains` answers no more because `evict` has folded or put by its entry, each `recall` that begins later answers. So
///    whoever asks `contains` first and then `recall` learns of every message that is over.
/// 2. *Exact:* `recall` answers for a number whose entry was inserted, and for no other: not for one between two that are over.
/// 3. *Keys are kept whole:* the entry of an [idempotency key](crate::ids::Identity::Keyed) is found, by `contains` or `recall`, as it was
///    inserted, for as long as [`Keep::keys`] says, counted from its insertion.
/// 4. *By evidence:* an entry of an [id](crate::ids::Identity::Id) is not evicted before [`Passed::Until`] its insertion, of every endpoint that has ever
///    asked with [`Passed::Waits`] or `Until`, until that endpoint has [withdrawn](Self::withdraw).
/// 5. *Whoever asks:* the longest [`Keep::keys`] that anybody asked for holds for all, and so does [`Keep::fold`]: for
///    [`DedupStore::evict`](super::DedupStore::evict) too, and after a restart.
/// 6. *In the end:* entries of numbers that were inserted longer ago than the retention are folded by finitely many calls, each of which does
///    a bounded part.
///
/// # Errors
/// An `evict_keeping` or a `withdraw` with an unknown outcome may have done its part: repeat it.
#[async_trait]
pub trait LongMemory: fmt::Debug + Send + Sync {
    /// Which of `keys` are over, of those whose entries `contains` may answer no more.
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError>;

    /// The time of the store's own clock.
    async fn moment(&self) -> Result<Moment, StoreError>;

    /// Removes entries as [`DedupStore::evict`](super::DedupStore::evict) does, and remembers and spares what `keep` says.
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError>;

    /// Of `endpoint` nothing has to be shown any more: for an endpoint that is no more, or that no longer goes by evidence.
    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError>;
}

/// What an eviction leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep<'a> {
    /// Who asks.
    pub endpoint: &'a EndpointName,
    /// Nothing that was inserted within it is touched: see [`DedupStore::evict`](super::DedupStore::evict).
    pub retention: Duration,
    /// For how long entries of idempotency keys are kept; no shorter than the retention, whatever it says.
    pub keys: Duration,
    /// Numbers are folded, not forgotten.
    pub fold: bool,
    /// What has been shown of the endpoint's queue.
    pub passed: Passed,
}

/// What a transport has shown of an endpoint's queue. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// It shows nothing, and is not asked to: the retention decides.
    Unasked,
    /// It will show something and has not yet: nothing that is known by its id goes.
    Waits,
    /// Of messages whose entries were inserted up to this moment, no copy is left, and none can come any more.
    Until(Moment),
}

/// A time of a store's own clock, in milliseconds from wherever that store counts. Comparable within one store alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// So much earlier.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}
