//! Entities in one store, dedup entries in another.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, ErrorKind, Evicted, Finished, Known,
        Loaded, LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError,
    },
};

use crate::Backend;

/// Two stores as one: what a rig takes for one, and uses as two.
#[derive(Debug, Clone)]
pub struct Pair<E, D> {
    /// Entities and dead letters.
    pub entities: E,
    /// Dedup entries.
    pub dedup: D,
}

/// A store of entities and dead letters.
pub trait Entities: EntityStore + DeadLetters + Clone + Debug + 'static {}
impl<E: EntityStore + DeadLetters + Clone + Debug + 'static> Entities for E {}

/// A store of dedup entries.
pub trait Entries: DedupStore + Clone + Debug + 'static {}
impl<D: DedupStore + Clone + Debug + 'static> Entries for D {}

impl<E: Entities, D: Entries> Backend for Pair<E, D> {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}

#[async_trait]
impl<E: Entities, D: Entries> EntityStore for Pair<E, D> {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { together: false, ..self.entities.capabilities() }
    }
    async fn load(&self, key: &EntityKey, _: &[DedupKey]) -> Result<Loaded, StoreError> {
        Ok(Loaded { known: None, ..self.entities.load(key, &[]).await? })
    }
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        if !processed.is_empty() {
            let why = "the dedup entries of a pair are in another store than its entities";
            return Err(StoreError::new(ErrorKind::Misconfigured, "saving an entity", why));
        }
        self.entities.save(key, expected, entity, &[]).await
    }
    async fn finish(
        &self,
        _: &EntityKey,
        _: &[DedupEntry],
        _: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        Ok(None)
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.entities.version(key).await
    }
    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.entities.pending(scope, older_than, after, limit).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.entities.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl<E: Entities, D: Entries> DedupStore for Pair<E, D> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.dedup.dedup_capabilities()
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.dedup.contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.dedup.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.dedup.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl<E: Entities, D: Entries> DeadLetters for Pair<E, D> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.entities.add(letter).await
    }
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.entities.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.entities.discard(letters).await
    }
}
