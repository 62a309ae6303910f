//! What keeps state and outbox together, under a version that changes with both: the port on which the promise rests most.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Known, StoreError};
use crate::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{AttemptId, DedupKey, EntityKey, Scope},
};

/// Keeps one [`Entity`] per [`EntityKey`], guarded by a [`Version`].
///
/// # Promises
/// 1. *Whole:* state, outbox and timeouts are saved together or not at all.
/// 2. *Guarded:* of several saves that expect the same, at most one returns [`Saved::At`]; a save that expects a
///    version of an entity that is not there is a conflict.
/// 3. *Never again:* a version is not reused for a key, not even after completion and purge (S49).
/// 4. *Kept:* what `save` has confirmed is what every later `version` and primary read sees.
/// 5. *One snapshot:* where `load` answers `known`, entity and dedup entries are of one instant, or the dedup entries
///    of a later one; it takes no lock for it.
/// 6. *Only with the winner:* `processed` is stored in the same commit as the entity and only if that save wins.
/// 7. *Finish marks first:* after `finish` has returned `Some`, every entry of `done` is in the dedup store, whether the
///    clean-up won or not.
/// 8. *Own result:* a call that shares a commit with others is told its own result, also when others use the same key.
/// 9. *Current:* `version` answers from the primary, never from a cache or a replica.
/// 10. *Pending:* `pending` lists an entity whose entry is older than asked for, sooner or later, also when the entity is
///     saved all the time; younger entries are not listed.
/// 11. *Purge spares:* `purge` removes completed entities with an empty outbox only, and only older ones than asked for.
/// 12. *Limits before writing:* what is too large is refused with [`ErrorKind::TooLarge`](super::ErrorKind::TooLarge)
///     and nothing of it is stored.
/// 13. *Honest errors:* an error of any kind but [`ErrorKind::UnknownOutcome`](super::ErrorKind::UnknownOutcome) means
///     that nothing was written and nothing will be; an answer that was lost is an unknown outcome.
/// 14. *Complete:* where `load` answers `known`, it answers for every id asked for and for the key of every entry in the
///     entity, whichever attempt is over; and knows nothing that was not inserted.
/// 15. *Apart:* keys that differ in any byte of endpoint, saga or saga key are different entities (S58).
///
/// Freshness of `load` is *not* promised: it may return an older version, since promise 2 then refuses the save.
///
/// # Errors
/// A write that fails with [`ErrorKind::UnknownOutcome`](super::ErrorKind::UnknownOutcome) may have taken effect or
/// still may: load again. With any other kind it has not and will not. A lost race is not an error but [`Saved::Conflict`]. A
/// conflict may be one's own earlier write that a client library repeated: it means "load again", never "lost".
///
/// # Source
/// T. Masternak, S. Pobiega, "Improving the Outbox" (exactly-once.github.io/posts/improving-outbox).
#[async_trait]
pub trait EntityStore: fmt::Debug + Send + Sync {
    /// What this store can do. Constant for the life of the store.
    fn capabilities(&self) -> StoreCapabilities;

    /// Reads the entity. `ids` is what the caller is about to ask the dedup store; a store that holds the dedup entries
    /// too may answer that in [`Loaded::known`], for `ids` and for the key of every entry found in the entity.
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError>;

    /// Saves `entity` if what is stored still is what is `expected`, and `processed` with it.
    ///
    /// `processed` holds dedup entries of messages that have nothing outgoing. A store whose
    /// [`StoreCapabilities::together`] is false refuses a save where it is not empty, before it writes.
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError>;

    /// Adds `done` to the dedup entries, then saves `clean_up` if the entity still has the version given with it.
    ///
    /// Only the outbox of `clean_up` differs from what is stored at that version. A store may leave the clean-up for
    /// [later](Finished::Later), once `done` is stored. `None` means that this store holds no
    /// dedup entries: the caller inserts into the dedup store, then cleans up by `save`.
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError>;

    /// The version that the primary has now; `None` when there is no entity.
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError>;

    /// Entities of `scope` with outbox entries saved longer ago than `older_than`, by the store's own clock: at most
    /// `limit`, in the order of their keys, beginning after `after`. A hint: the caller loads before it acts.
    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError>;

    /// Removes tombstones of `scope` that were completed longer ago than `older_than`, by the store's own clock; at most
    /// `limit`. Answers how many. Unknown outcomes are harmless: call again.
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError>;
}

/// What an entity store can do; checked by its conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCapabilities {
    /// Name for messages, for example `sqlite`.
    pub name: &'static str,
    /// Largest entity, in bytes as [`Entity::size`] counts.
    pub entity_bytes_max: usize,
    /// Entities and dedup entries are in one database: `load` answers `known`, `save` takes `processed`, `finish` works.
    pub together: bool,
    /// How many dedup entries a `save` takes with a small entity: an endpoint handles no more messages in one pass, so that none is
    /// handled to be refused. Where there are many bytes it may be fewer.
    pub processed_max: usize,
    /// What is confirmed survives the process.
    pub durable: bool,
}

impl StoreCapabilities {
    /// Of [`processed_max`](Self::processed_max) where nothing but bytes limits a transaction.
    pub const PROCESSED_UNLIMITED: usize = usize::MAX;
}

/// What `load` found.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The entity with its version, if there is one.
    pub stored: Option<Stored>,
    /// What is known of the messages asked for and of the entity's entries; `None`: ask the dedup store, after this.
    pub known: Option<Known>,
}

/// An entity as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: Version,
    /// Itself.
    pub entity: Entity,
}

/// How a save ended. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Saved {
    /// It won; the entity has this version now.
    At(Version),
    /// What is stored is not what was expected. Nothing was written, unless a client library has repeated the call and
    /// met its own write: load again.
    Conflict,
}

/// How a finish ended. The dedup entries are in, either way. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Finished {
    /// The outbox entries are gone; the entity has this version now, or is untouched when nothing was to be cleaned up.
    Cleaned(Option<Version>),
    /// The entity keeps its version for now: the store cleans up by itself within seconds, unless the next save of the entity
    /// does, or somebody has saved it since the version that was given; what stays then is the next save's, or the sweeper's. Until then this store's loads may show the outbox entries or leave them out; whoever else loads the entity finds
    /// them known.
    Later,
    /// The entity has changed: its outbox entries stay for the next save or the sweeper.
    Left,
}

/// An entity that has waited for its outgoing messages to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Which entity.
    pub key: EntityKey,
    /// Its entries that are older than asked for.
    pub entries: Vec<PendingEntry>,
}

/// An outbox entry that has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingEntry {
    /// Which attempt saved it.
    pub attempt: AttemptId,
    /// How long ago, by the store's clock.
    pub age: Duration,
}
