//! Handles whose way to the store is bad: one that says so, and ones that do not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Scope},
    ports::{EntityStore, ErrorKind, Finished, Loaded, Pending, Saved, StoreCapabilities, StoreError},
};

/// What is told of a write whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each test binary uses some")]
pub(crate) enum Told {
    /// That the outcome is unknown: the truth.
    Unknown,
    /// That nothing was written: a lie.
    Unavailable,
    /// The client has repeated the write, met its own first one, and says that nothing was written: a lie.
    Lost,
    /// The client has repeated the write, met its own first one, and says so: allowed, for it means "load again".
    Conflict,
    /// That nothing was written, and then it is written: a lie.
    Late,
}

/// By turns, a write goes well, does not arrive, or arrives and its answer does not.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Memory,
    told: Told,
    writes: AtomicUsize,
}

#[allow(dead_code, reason = "each test binary uses some")]
impl Faulty {
    pub(crate) fn honest(inner: Memory) -> Self {
        Self::new(inner, Told::Unknown)
    }

    pub(crate) fn new(inner: Memory, told: Told) -> Self {
        Self { inner, told, writes: AtomicUsize::new(0) }
    }

    fn unavailable() -> StoreError {
        StoreError::new(ErrorKind::Unavailable, "writing", "the request was refused, as asked for")
    }

    /// Whether a write that has arrived is answered for; an error where it did not arrive.
    fn arrives(&self) -> Result<bool, StoreError> {
        match self.writes.fetch_add(1, Ordering::Relaxed) % 5 {
            2 => Err(Self::unavailable()),
            1 | 4 => Ok(false),
            _ => Ok(true),
        }
    }

    fn later(&self, key: EntityKey, expected: Expected, entity: Entity) -> Result<Saved, StoreError> {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            inner.save(&key, &expected, &entity, &[]).await
        });
        Err(Self::unavailable())
    }

    fn unanswered<T>(&self, conflict: T) -> Result<T, StoreError> {
        match self.told {
            Told::Unknown => Err(StoreError::new(ErrorKind::UnknownOutcome, "writing", "no answer, as asked for")),
            Told::Unavailable | Told::Late => Err(Self::unavailable()),
            Told::Lost => Err(StoreError::new(ErrorKind::Misconfigured, "writing", "somebody else has written it")),
            Told::Conflict => Ok(conflict),
        }
    }
}

#[async_trait]
impl EntityStore for Faulty {
    fn capabilities(&self) -> StoreCapabilities {
        EntityStore::capabilities(&self.inner)
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.inner.load(key, ids).await
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let answered = self.arrives()?;
        if !answered && self.told == Told::Late {
            return self.later(key.clone(), expected.clone(), entity.clone());
        }
        let saved = self.inner.save(key, expected, entity, processed).await?;
        if answered { Ok(saved) } else { self.unanswered(Saved::Conflict) }
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let answered = self.arrives()?;
        let finished = self.inner.finish(key, done, clean_up).await?;
        if answered { Ok(finished) } else { self.unanswered(Some(Finished::Left)) }
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.inner.version(key).await
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

/// Several handles, which take turns in answering.
#[derive(Debug)]
#[allow(dead_code, reason = "each test binary uses some")]
pub(crate) struct Turns {
    handles: [Arc<dyn EntityStore>; 2],
    calls: AtomicUsize,
}

#[allow(dead_code, reason = "each test binary uses some")]
impl Turns {
    pub(crate) fn new(handles: [Arc<dyn EntityStore>; 2]) -> Self {
        Self { handles, calls: AtomicUsize::new(0) }
    }

    /// In threes, so that calls in pairs meet every handle.
    fn next(&self) -> &dyn EntityStore {
        &*self.handles[self.calls.fetch_add(1, Ordering::Relaxed) / 3 % self.handles.len()]
    }
}

#[async_trait]
impl EntityStore for Turns {
    fn capabilities(&self) -> StoreCapabilities {
        self.next().capabilities()
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.next().load(key, ids).await
    }
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.next().save(key, expected, entity, processed).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.next().finish(key, done, clean_up).await
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.next().version(key).await
    }
    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.next().pending(scope, older_than, after, limit).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.next().purge(scope, older_than, limit).await
    }
}
