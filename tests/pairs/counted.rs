//! How many calls of its stores a message costs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Message,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded, Page,
        Pending, Saved, StoreCapabilities, StoreError,
    },
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Ask;

impl Message for Ask {
    const TYPE: &'static str = "pairs.ask";
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer;

impl Message for Answer {
    const TYPE: &'static str = "pairs.answer";
}

struct Answers;

impl Handler<Ask> for Answers {
    const NAME: &'static str = "answers";

    async fn handle(&self, _: Ask, cx: &mut Context) -> Result<(), HandlerError> {
        cx.publish(Answer)
    }
}

/// Counts the calls that passes make.
#[derive(Debug, Clone, Default)]
struct Counted {
    store: Memory,
    calls: Arc<AtomicUsize>,
}

impl Counted {
    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl EntityStore for Counted {
    fn capabilities(&self) -> StoreCapabilities {
        self.store.capabilities()
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.count();
        self.store.load(key, ids).await
    }
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.count();
        self.store.save(key, expected, entity, processed).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.count();
        self.store.finish(key, done, clean_up).await
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.count();
        self.store.version(key).await
    }
    // Asked by the sweeper, for no message.
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
impl DedupStore for Counted {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.store.dedup_capabilities()
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.count();
        self.store.contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.count();
        self.store.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.store.evict(retention).await
    }
}

#[async_trait]
impl DeadLetters for Counted {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.count();
        self.store.add(letter).await
    }
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list(endpoint, page).await
    }
}

/// Calls for a message that sends another, where both are one store and where they are two.
pub(crate) async fn calls() -> [usize; 2] {
    let mut counts = [0; 2];
    for (two, count) in [false, true].into_iter().zip(&mut counts) {
        let (hub, counted) = (InProcess::new("pairs"), Counted::default());
        let builder = Endpoint::builder("pairs").transport(hub.clone());
        let other = Counted { store: Memory::new(), calls: counted.calls.clone() };
        let builder = match two {
            true => builder.entities(counted.clone()).dedup(other).dead_letters(Memory::new()),
            false => builder.store(counted.clone()),
        };
        hub.sender().send("pairs", &Ask).await.unwrap();
        builder.handler(Answers).run_until(hub.idle()).await.unwrap();
        *count = counted.calls.load(Ordering::Relaxed);
    }
    counts
}
