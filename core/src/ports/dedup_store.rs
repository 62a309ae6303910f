//! What is asked whether a message is over, and told once it is: what it forgets too early takes effect a second time.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{LongMemory, StoreError};
use crate::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey},
};

/// Remembers which messages are over: handled, and everything they caused dispatched.
///
/// # Promises
/// 1. *Visible:* once `insert` has returned, every `contains` that begins later, on any connection of any process,
///    answers with the entry, until it is evicted. A store that cannot promise this doubles effects (S47).
/// 2. *Present means seen:* whatever its age; being evicted late is always safe.
/// 3. *Idempotent:* inserting an entry that is there is success and changes nothing (S22).
/// 4. *All or an error:* a `contains` that cannot answer for every key is an error, never "not seen" (S25).
/// 5. *Not early:* nothing that was inserted within the retention is removed, by the store's own clock. The retention
///    is the longest that anybody ever asked of this store, not this call's: entries do not say whose they are, and of two
///    endpoints on one store the hastier must not evict the other's. A store that keeps its entries keeps this too, and
///    its documentation says how a person lowers it. A store that [keeps](DedupCapabilities::keeps) entries for a fixed time
///    refuses a longer retention with [`ErrorKind::Misconfigured`](super::ErrorKind::Misconfigured).
/// 6. *Whole entry:* attempt, fingerprint and reply come back as they were inserted.
/// 7. *Nothing else:* a key that was not inserted is not known, however much of it another key shares.
/// 8. *In the end:* what was inserted longer ago than the retention is removed by finitely many calls of `evict`, or by
///    the service itself where the store [keeps](DedupCapabilities::keeps) entries for a fixed time.
///
/// # Errors
/// An `insert` with an unknown outcome may have stored any part of its entries: insert again. An `evict` that fails may have removed
/// some of what it was to remove: the next one goes on.
#[async_trait]
pub trait DedupStore: fmt::Debug + Send + Sync {
    /// What this store can do. Constant for the life of the store.
    fn dedup_capabilities(&self) -> DedupCapabilities;

    /// Which of `keys` are over.
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError>;

    /// Adds `entries`.
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError>;

    /// Removes entries that were inserted longer ago than `retention` and than any longer one asked for before, a bounded
    /// number a call. To be called every so often; it does little when there is little to do.
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError>;

    /// What it remembers beyond its entries; `None` where it forgets whatever it evicts.
    fn long_memory(&self) -> Option<&dyn LongMemory>;
}

/// What a dedup store can do; checked by its conformance suite, and by the endpoint before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupCapabilities {
    /// Name for messages, for example `sqlite`.
    pub name: &'static str,
    /// Each entry is kept for at least so long, and some time later removed by the service itself (a time to live), not by
    /// `evict`: no endpoint may ask for a longer retention. `None` where `evict` decides.
    pub keeps: Option<Duration>,
    /// `insert` takes entries, whatever store their entities are in. False where an entry has its place beside its entity:
    /// then `insert` refuses every entry with [`ErrorKind::Misconfigured`](super::ErrorKind::Misconfigured), the entity
    /// store's `save` and `finish` add them, its `load` tells of those of its own entity, and no endpoint starts with it beside
    /// another entity store.
    pub alone: bool,
    /// What is confirmed survives the process.
    pub durable: bool,
    /// It keeps promise 1: whoever asks anywhere sees every insert that was confirmed before. False in a store that only sometimes can, as
    /// one that reads a replica: no endpoint starts with it.
    pub consistent: bool,
    /// Largest reply in an entry, in bytes as [`encode_outgoing`](crate::codec::record::encode_outgoing) writes it. `insert` may refuse
    /// a larger one with [`ErrorKind::TooLarge`](super::ErrorKind::TooLarge), by when it would have been sent: the manager refuses
    /// it before anything is saved.
    pub reply_bytes_max: usize,
}

/// What a dedup store knows of the keys it was asked for.
///
/// Holds the entries found: usually none, for duplicates are rare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known(Vec<Over>);

/// One list of both, since passes hold it while they wait.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Over {
    Entry(DedupEntry),
    /// Nothing is left but that it is over.
    Folded(DedupKey),
}

impl Known {
    /// What was found.
    #[must_use]
    pub fn new(entries: Vec<DedupEntry>) -> Self {
        Self(entries.into_iter().map(Over::Entry).collect())
    }

    /// The same, and of `folded` that they are over.
    #[must_use]
    pub fn and_folded(mut self, folded: impl IntoIterator<Item = DedupKey>) -> Self {
        self.0.extend(folded.into_iter().map(Over::Folded));
        self
    }

    /// The same, and what `more` knows.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// Whether the message with `key` is over, and nothing else is known of it any more.
    #[must_use]
    pub fn is_folded(&self, key: &DedupKey) -> bool {
        self.0.iter().any(|over| matches!(over, Over::Folded(folded) if folded == key))
    }

    /// The entry of `key`: the message is over.
    #[must_use]
    pub fn entry(&self, key: &DedupKey) -> Option<&DedupEntry> {
        self.entries().find(|entry| entry.key == *key)
    }

    /// Whether `attempt` at the message with `key` is over. Another attempt's entry does not say so (S34).
    #[must_use]
    pub fn attempt(&self, key: &DedupKey, attempt: &AttemptId) -> bool {
        self.entries().any(|entry| entry.key == *key && entry.attempt == *attempt)
    }

    fn entries(&self) -> impl Iterator<Item = &DedupEntry> {
        self.0.iter().filter_map(|over| match over {
            Over::Entry(entry) => Some(entry),
            Over::Folded(_) => None,
        })
    }
}

/// What an eviction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// How many entries are gone. A store that drops very many at once may tell fewer than there were, and never none.
    pub entries: u64,
    /// There is more to evict now: call again soon.
    pub more: bool,
}
