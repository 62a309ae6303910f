//! A store between which and its caller something is lost or late when a test says so.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, ErrorKind, Evicted, Finished, Known,
        Loaded, LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError,
    },
};
use hapax_model::{Seen, World};
use hapax_tests::Backend;

/// What becomes of a write; its caller learns that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It does not arrive.
    Request,
    /// It arrives, and its answer does not.
    Answer,
    /// It arrives later.
    Late,
}

type Writing<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What is to be lost, and what is under way: for all handles.
#[derive(Clone)]
pub(crate) struct Line {
    world: World,
    state: Arc<Mutex<OnTheLine>>,
}

#[derive(Default)]
struct OnTheLine {
    next: Option<Loss>,
    late: Vec<Writing<()>>,
}

impl Line {
    /// What is lost is counted in `world`.
    pub(crate) fn new(world: World) -> Self {
        Self { world, state: Arc::default() }
    }

    /// The next write is lost so; `None`: it is not.
    pub(crate) fn lose(&self, loss: Option<Loss>) {
        self.state.lock().unwrap().next = loss;
    }

    /// Everything that is late arrives.
    pub(crate) async fn land(&self) {
        let late = std::mem::take(&mut self.state.lock().unwrap().late);
        for write in late {
            write.await;
        }
    }

    async fn write<T: Send + 'static>(&self, write: Writing<Result<T, StoreError>>) -> Result<T, StoreError> {
        let loss = self.state.lock().unwrap().next.take();
        match loss {
            None => return write.await,
            Some(Loss::Request) => self.world.count(Seen::UnknownNotApplied),
            Some(Loss::Answer) => {
                write.await?;
                self.world.count(Seen::UnknownApplied);
            }
            Some(Loss::Late) => {
                self.world.count(Seen::LandedLate);
                self.state.lock().unwrap().late.push(Box::pin(async { drop(write.await) }));
            }
        }
        Err(StoreError::new(ErrorKind::UnknownOutcome, "writing", "no answer, as asked for"))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Lossy<B> {
    inner: B,
    line: Line,
}

impl<B> Lossy<B> {
    pub(crate) const fn new(inner: B, line: Line) -> Self {
        Self { inner, line }
    }
}

#[async_trait]
impl<B: Backend> EntityStore for Lossy<B> {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
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
        let (inner, key, expected) = (self.inner.clone(), key.clone(), expected.clone());
        let (entity, processed) = (entity.clone(), processed.to_vec());
        self.line.write(Box::pin(async move { inner.save(&key, &expected, &entity, &processed).await })).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let (inner, key, done) = (self.inner.clone(), key.clone(), done.to_vec());
        let clean_up = clean_up.map(|(version, entity)| (version.clone(), entity.clone()));
        let write = async move {
            let clean_up = clean_up.as_ref().map(|(version, entity)| (version, entity));
            inner.finish(&key, &done, clean_up).await
        };
        self.line.write(Box::pin(write)).await
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

#[async_trait]
impl<B: Backend> DedupStore for Lossy<B> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.inner.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.inner.contains(keys).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let (inner, entries) = (self.inner.clone(), entries.to_vec());
        self.line.write(Box::pin(async move { inner.insert(&entries).await })).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.inner.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl<B: Backend> DeadLetters for Lossy<B> {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.inner.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.inner.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.inner.discard(letters).await
    }
}

/// What is lost on the way is not told to whoever watches.
impl<B: Backend> Backend for Lossy<B> {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        self.inner.dedup_entries()
    }
}
