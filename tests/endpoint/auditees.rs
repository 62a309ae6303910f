//! Stores that lie from a moment on, for an audit to find.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Scope},
    metrics::{Event, Metrics},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError, Stored,
    },
};

/// What a store does otherwise than it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    Nothing,
    /// No message is known any more.
    Forgets,
    /// What is known is of another attempt.
    OtherAttempt,
    /// Outboxes are empty.
    DropsEntries,
    /// Each entity is as it was saved first.
    OldState,
    /// The state is another one, under the same version.
    TwoStates,
    /// No entity is there.
    Gone,
    /// A finish marks and says that it has cleaned up.
    NeverCleans,
    /// The same, and a save keeps what it is to leave out of the outbox.
    CarriesAlong,
    /// Nothing is pending.
    ListsNothing,
}

/// A store that lies when it is told to.
#[derive(Debug, Clone)]
pub(crate) struct Liar {
    pub(crate) memory: Memory,
    lie: Arc<Mutex<Lie>>,
    first: Arc<Mutex<HashMap<EntityKey, Stored>>>,
    versions: Arc<AtomicU64>,
}

impl Liar {
    pub(crate) fn new() -> Self {
        let lie = Arc::new(Mutex::new(Lie::Nothing));
        Self { memory: Memory::new(), lie, first: Arc::default(), versions: Arc::default() }
    }

    pub(crate) fn lie(&self, lie: Lie) {
        *self.lie.lock().unwrap() = lie;
    }

    fn lies(&self) -> Lie {
        *self.lie.lock().unwrap()
    }

    /// How often it was asked for one.
    pub(crate) fn versions(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }

    pub(crate) fn only_entity(&self) -> (EntityKey, Entity) {
        let mut entities = self.memory.entities();
        assert_eq!(entities.len(), 1);
        entities.remove(0)
    }

    fn first(&self, key: &EntityKey) -> Option<Stored> {
        self.first.lock().unwrap().get(key).cloned()
    }

    fn bent(&self, known: &Known, keys: impl Iterator<Item = DedupKey>) -> Known {
        let entries = keys.filter_map(|key| known.entry(&key).cloned());
        match self.lies() {
            Lie::Forgets => Known::default(),
            Lie::OtherAttempt => {
                let other = AttemptId::from_bytes([9; AttemptId::BYTES]);
                Known::new(entries.map(|entry| DedupEntry { attempt: other, ..entry }).collect())
            }
            _ => Known::new(entries.collect()),
        }
    }
}

#[async_trait]
impl EntityStore for Liar {
    fn capabilities(&self) -> StoreCapabilities {
        EntityStore::capabilities(&self.memory)
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let Loaded { mut stored, known } = self.memory.load(key, ids).await?;
        let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        let known = known.map(|known| self.bent(&known, keys.into_iter()));
        match self.lies() {
            Lie::DropsEntries => stored.iter_mut().for_each(|stored| stored.entity.outbox.clear()),
            Lie::OldState => stored = self.first(key),
            Lie::TwoStates => stored.iter_mut().for_each(|stored| stored.entity.state = b"other".to_vec().into()),
            Lie::Gone => stored = None,
            _ => {}
        }
        Ok(Loaded { stored, known })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let mut entity = entity.clone();
        if self.lies() == Lie::CarriesAlong
            && let Some(stored) = self.memory.load(key, &[]).await?.stored
        {
            let left = stored.entity.outbox.iter().filter(|entry| entity.entry(&entry.key).is_none()).cloned();
            let left: Vec<_> = left.collect();
            entity.outbox.splice(0..0, left);
        }
        let saved = self.memory.save(key, expected, &entity, processed).await?;
        if let Saved::At(version) = &saved {
            let stored = Stored { version: version.clone(), entity };
            self.first.lock().unwrap().entry(key.clone()).or_insert(stored);
        }
        Ok(saved)
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let clean_up = clean_up.filter(|_| !matches!(self.lies(), Lie::NeverCleans | Lie::CarriesAlong));
        self.memory.finish(key, done, clean_up).await
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.versions.fetch_add(1, Ordering::Relaxed);
        match self.lies() {
            Lie::OldState => Ok(self.first(key).map(|stored| stored.version)),
            Lie::Gone => Ok(None),
            _ => self.memory.version(key).await,
        }
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        if self.lies() == Lie::ListsNothing {
            return Ok(Vec::new());
        }
        self.memory.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.memory.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Liar {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.memory.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let known = self.memory.contains(keys).await?;
        Ok(self.bent(&known, keys.iter().copied()))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.memory.insert(entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.memory.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl DeadLetters for Liar {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.memory.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.memory.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.memory.discard(letters).await
    }
}

/// Counts what an audit tells.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    looked_at: AtomicU64,
    violations: AtomicU64,
}

impl Observer {
    pub(crate) fn told(&self) -> (u64, u64) {
        (self.looked_at.load(Ordering::Relaxed), self.violations.load(Ordering::Relaxed))
    }
}

impl Metrics for Observer {
    fn observe(&self, event: Event<'_>) {
        if let Event::Audited(_, _, violation) = event {
            self.looked_at.fetch_add(1, Ordering::Relaxed);
            self.violations.fetch_add(u64::from(violation.is_some()), Ordering::Relaxed);
        }
    }
}
