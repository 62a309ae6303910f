use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    CosmosDb,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded, Page,
        Pending, Saved, StoreCapabilities, StoreError,
    },
};
use hapax_tests::Backend;

/// The store with numbers for versions, which is what the model's observers understand: in the order in which they are
/// first heard of.
#[derive(Debug, Clone)]
pub(super) struct Numbered {
    store: CosmosDb,
    numbers: Arc<Mutex<HashMap<Version, i64>>>,
}

impl Numbered {
    pub(super) fn new(store: CosmosDb) -> Self {
        Self { store, numbers: Arc::default() }
    }

    fn number(&self, version: Version) -> Version {
        let mut numbers = self.numbers.lock().unwrap();
        let next = i64::try_from(numbers.len()).unwrap() + 1;
        Version::number(*numbers.entry(version).or_insert(next))
    }

    fn version(&self, number: &Version) -> Version {
        let numbers = self.numbers.lock().unwrap();
        let found = numbers.iter().find(|(_, known)| Some(**known) == number.as_number());
        found.map_or_else(|| number.clone(), |(version, _)| version.clone())
    }
}

#[async_trait]
impl EntityStore for Numbered {
    fn capabilities(&self) -> StoreCapabilities {
        self.store.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let mut loaded = self.store.load(key, ids).await?;
        if let Some(stored) = &mut loaded.stored {
            stored.version = self.number(stored.version.clone());
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
            Expected::Version(number) => Expected::Version(self.version(number)),
        };
        Ok(match self.store.save(key, &expected, entity, processed).await? {
            Saved::At(version) => Saved::At(self.number(version)),
            Saved::Conflict => Saved::Conflict,
        })
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let clean_up = clean_up.map(|(number, entity)| (self.version(number), entity));
        let clean_up = clean_up.as_ref().map(|(version, entity)| (version, *entity));
        Ok(match self.store.finish(key, done, clean_up).await? {
            Some(Finished::Cleaned(Some(version))) => Some(Finished::Cleaned(Some(self.number(version)))),
            other => other,
        })
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        Ok(EntityStore::version(&self.store, key).await?.map(|version| self.number(version)))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.store.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.store.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Numbered {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.store.dedup_capabilities()
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.store.contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.store.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.store.evict(retention).await
    }
}

#[async_trait]
impl DeadLetters for Numbered {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.store.add(letter).await
    }
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list(endpoint, page).await
    }
}

impl Backend for Numbered {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        None
    }
}
