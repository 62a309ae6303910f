use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded, Page,
        Pending, Saved, StoreCapabilities, StoreError,
    },
};

use crate::Backend;

/// A store whose versions are text that begins with a number and a dot, for rigs that understand numbers only: the number grows
/// with each save of an entity. Clones share what they have seen.
#[derive(Debug, Clone)]
pub struct Numbered<B> {
    inner: B,
    seen: Arc<Mutex<HashMap<(EntityKey, i64), Version>>>,
}

impl<B> Numbered<B> {
    /// The versions of `inner` as numbers.
    #[must_use]
    pub fn new(inner: B) -> Self {
        Self { inner, seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<(EntityKey, i64), Version>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of `version`, which is remembered for it.
    fn number(&self, key: &EntityKey, version: Version) -> Version {
        let number =
            version.as_text().and_then(|text| text.split_once('.')).and_then(|(number, _)| number.parse().ok());
        let number = number.expect("a version that begins with a number");
        let before = self.seen().insert((key.clone(), number), version.clone());
        assert!(before.is_none_or(|before| before == version), "the number {number} stands for two versions of {key}");
        Version::number(number)
    }

    /// What stands for `version` in the store; a version that nobody has seen stays as it is, and is nobody's.
    fn text(&self, key: &EntityKey, version: &Version) -> Version {
        let seen = version.as_number().and_then(|number| self.seen().get(&(key.clone(), number)).cloned());
        seen.unwrap_or_else(|| version.clone())
    }
}

#[async_trait]
impl<B: Backend> EntityStore for Numbered<B> {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let mut loaded = self.inner.load(key, ids).await?;
        if let Some(stored) = &mut loaded.stored {
            stored.version = self.number(key, stored.version.clone());
        }
        Ok(loaded)
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let expected = match expected {
            Expected::Absent => Expected::Absent,
            Expected::Version(version) => Expected::Version(self.text(key, version)),
        };
        Ok(match self.inner.save(key, &expected, entity, processed).await? {
            Saved::At(version) => Saved::At(self.number(key, version)),
            Saved::Conflict => Saved::Conflict,
        })
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let clean_up = clean_up.map(|(version, entity)| (self.text(key, version), entity));
        let clean_up = clean_up.as_ref().map(|(version, entity)| (version, *entity));
        Ok(match self.inner.finish(key, done, clean_up).await? {
            Some(Finished::Cleaned(Some(version))) => Some(Finished::Cleaned(Some(self.number(key, version)))),
            finished => finished,
        })
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        Ok(self.inner.version(key).await?.map(|version| self.number(key, version)))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.inner.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl<B: Backend> DedupStore for Numbered<B> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.inner.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.inner.contains(keys).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.inner.insert(entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.inner.evict(retention).await
    }
}

#[async_trait]
impl<B: Backend> DeadLetters for Numbered<B> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.inner.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.inner.list(endpoint, page).await
    }
}

impl<B: Backend> Backend for Numbered<B> {
    const EXACT: bool = B::EXACT;

    fn dedup_entries(&self) -> Option<usize> {
        self.inner.dedup_entries()
    }
}
