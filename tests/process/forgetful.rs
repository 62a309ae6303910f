//! What must not be done: a store that confirms marks and does not keep them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError,
    },
};

/// A store that forgets which messages are over.
#[derive(Debug)]
pub(crate) struct Forgetful<S>(pub(crate) S);

#[async_trait]
impl<S: EntityStore> EntityStore for Forgetful<S> {
    fn capabilities(&self) -> StoreCapabilities {
        self.0.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.0.load(key, ids).await
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        _: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.0.save(key, expected, entity, &[]).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        _: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.0.finish(key, &[], clean_up).await
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

#[async_trait]
impl<S: DedupStore> DedupStore for Forgetful<S> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.0.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.0.contains(keys).await
    }

    async fn insert(&self, _: &[DedupEntry]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.0.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl<S: DeadLetters> DeadLetters for Forgetful<S> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.0.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.0.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.0.discard(letters).await
    }
}
