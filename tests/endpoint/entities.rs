//! A store of entities that says, and does, what a test asks for.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Scope},
    ports::{
        DedupCapabilities, DedupStore, EntityStore, ErrorKind, Evicted, Finished, Known, Loaded, LongMemory, Pending,
        Saved, StoreCapabilities, StoreError,
    },
};

#[derive(Debug, Clone, Default)]
pub(crate) struct Entities {
    pub(crate) store: Memory,
    pub(crate) durable: bool,
    /// How long a look for what waits takes.
    pub(crate) look: Duration,
    /// How many looks there were.
    pub(crate) looks: Arc<AtomicU32>,
    /// How many purges there were.
    pub(crate) purges: Arc<AtomicU32>,
    /// A saga whose upkeep always fails.
    pub(crate) fails: Option<&'static str>,
    /// How many loads there were.
    pub(crate) loads: Arc<AtomicU32>,
    /// Entities whose keys begin so cannot be reached; with nothing, none can.
    pub(crate) away: Arc<Mutex<Option<&'static str>>>,
    /// Others come in between, before and after each load and save.
    pub(crate) yields: bool,
}

impl Entities {
    fn check(&self, scope: &Scope) -> Result<(), StoreError> {
        match self.fails {
            Some(saga) if scope.saga.as_str() == saga => Err(failed()),
            _ => Ok(()),
        }
    }

    /// From now on entities whose keys begin so cannot be reached; `None`: all can.
    pub(crate) fn is_away(&self, keys: Option<&'static str>) {
        *self.away.lock().unwrap() = keys;
    }

    async fn give_way(&self) {
        if self.yields {
            tokio::task::yield_now().await;
        }
    }

    fn reach(&self, key: &EntityKey) -> Result<(), StoreError> {
        match *self.away.lock().unwrap() {
            Some(begin) if key.key().as_str().starts_with(begin) => {
                Err(StoreError::new(ErrorKind::Unavailable, "reaching an entity", "it is away, as the test wants it"))
            }
            _ => Ok(()),
        }
    }
}

fn failed() -> StoreError {
    StoreError::new(ErrorKind::Malformed, "looking", "a row cannot be read")
}

#[async_trait]
impl EntityStore for Entities {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { durable: self.durable, ..self.store.capabilities() }
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.reach(key)?;
        self.give_way().await;
        let loaded = self.store.load(key, ids).await;
        self.give_way().await;
        loaded
    }
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.give_way().await;
        let saved = self.store.save(key, expected, entity, processed).await;
        self.give_way().await;
        saved
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.store.finish(key, done, clean_up).await
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.store.version(key).await
    }
    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.check(scope)?;
        self.looks.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.look).await;
        self.store.pending(scope, older_than, after, limit).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.check(scope)?;
        self.purges.fetch_add(1, Ordering::Relaxed);
        self.store.purge(scope, older_than, limit).await
    }
}

/// Dedup entries that are forgotten at once, in a store that says what a test asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dedup {
    pub(crate) durable: bool,
    pub(crate) keeps: Option<Duration>,
    pub(crate) alone: bool,
    pub(crate) consistent: bool,
    pub(crate) evicts: bool,
}

impl Dedup {
    pub(crate) const GOOD: Self = Self { durable: true, keeps: None, alone: true, consistent: true, evicts: true };
}

#[async_trait]
impl DedupStore for Dedup {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "kept-apart",
            keeps: self.keeps,
            alone: self.alone,
            durable: self.durable,
            consistent: self.consistent,
            reply_bytes_max: usize::MAX,
        }
    }
    async fn contains(&self, _: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(Known::default())
    }
    async fn insert(&self, _: &[DedupEntry]) -> Result<(), StoreError> {
        Ok(())
    }
    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        if self.evicts { Ok(Evicted::default()) } else { Err(failed()) }
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}
