//! One store for entities and dedup entries, or two: what is one commit in the one case is several calls in a fixed order in the other.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use smallvec::SmallVec;

use crate::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Identity, Scope},
    ports::{
        DedupStore, EntityStore, ErrorKind, Finished, Known, Loaded, Pending, Saved, StoreCapabilities, StoreError,
    },
};

/// Where entities and dedup entries are kept.
#[derive(Debug, Clone)]
pub struct Stores {
    pub(crate) entities: Arc<dyn EntityStore>,
    pub(crate) dedup: Arc<dyn DedupStore>,
    /// Both are the same.
    are_one: bool,
    /// Messages may be over though no entry is left of them.
    recalls: bool,
}

impl Stores {
    /// One store for both: load and check are one snapshot, marks and clean-up one commit, where the store can.
    #[must_use]
    pub fn one<S: EntityStore + DedupStore + 'static>(store: Arc<S>) -> Self {
        Self { entities: store.clone(), dedup: store, are_one: true, recalls: false }
    }

    /// Two stores, for example entities in DynamoDB and dedup entries in object storage. Nothing is fused, even if one
    /// of them could hold both: its dedup entries are not the ones that count.
    #[must_use]
    pub fn two(entities: Arc<dyn EntityStore>, dedup: Arc<dyn DedupStore>) -> Self {
        Self { entities: Arc::new(Apart(entities)), dedup, are_one: false, recalls: false }
    }

    /// Entities.
    #[must_use]
    pub fn entities(&self) -> &Arc<dyn EntityStore> {
        &self.entities
    }

    /// Dedup entries.
    #[must_use]
    pub fn dedup(&self) -> &Arc<dyn DedupStore> {
        &self.dedup
    }

    /// The same, with passes that ask the dedup store's [`LongMemory`](crate::ports::LongMemory) too, where it has one: for an endpoint that
    /// evicts by it.
    #[must_use]
    pub fn recalling(self) -> Self {
        Self { recalls: true, ..self }
    }

    /// `known`, and which others of `asked` are over: those that have no entry any more, but are remembered all the same. In a box where
    /// there is something to ask, since most passes have nothing to and hold it while they wait.
    pub(super) fn recall<'a>(
        &'a self,
        known: Known,
        asked: &[DedupKey],
    ) -> impl Future<Output = Result<Known, StoreError>> + Send + 'a {
        let memory = if self.recalls { self.dedup.long_memory() } else { None };
        let Some(memory) = memory else { return Either::Left(ready(Ok(known))) };
        let lasting = |key: &&DedupKey| key.identity() != Identity::Id && known.entry(key).is_none();
        let keys: SmallVec<[DedupKey; 1]> = asked.iter().filter(lasting).copied().collect();
        if keys.is_empty() {
            return Either::Left(ready(Ok(known)));
        }
        Either::Right(async move { Ok(known.and(memory.recall(&keys).await?)) }.boxed())
    }

    /// Whether one store keeps both.
    pub(crate) const fn are_one(&self) -> bool {
        self.are_one
    }
}

/// An entity store whose own dedup entries, if it has any, do not count.
#[derive(Debug)]
struct Apart(Arc<dyn EntityStore>);

#[async_trait]
impl EntityStore for Apart {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            together: false,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            ..self.0.capabilities()
        }
    }

    async fn load(&self, key: &EntityKey, _ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key, &[]).await?;
        Ok(Loaded { known: None, ..loaded })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        if !processed.is_empty() {
            let why = "the dedup entries are kept in another store and cannot be saved with the entity";
            return Err(StoreError::new(ErrorKind::Misconfigured, "saving an entity", why));
        }
        self.0.save(key, expected, entity, &[]).await
    }

    async fn finish(
        &self,
        _key: &EntityKey,
        _done: &[DedupEntry],
        _clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        Ok(None)
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.0.version(key).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.0.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(scope, older_than, limit).await
    }
}
