//! What a message does in a pair of stores, and how many calls of them it costs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, Handler, HandlerError, InProcess, Memory, Message, Saga, Sender,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError,
    },
};
use serde::{Deserialize, Serialize};

/// How often a message is sent: itself, and copies of it.
const COPIES: usize = 3;
const TELLER: &str = "teller";

#[derive(Debug, Serialize, Deserialize)]
struct Add;

impl Message for Add {
    const TYPE: &'static str = "pairs.add";
}

/// What the sum is now.
#[derive(Debug, Serialize, Deserialize)]
struct Sum(usize);

impl Message for Sum {
    const TYPE: &'static str = "pairs.sum";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Adding {
    sum: usize,
}

impl Saga for Adding {
    const NAME: &'static str = "adding";
}

impl Handle<Add> for Adding {
    fn correlate(_: &Add) -> Correlation<'_> {
        "one".into()
    }
    async fn handle(&mut self, _: Add, cx: &mut Context) -> Result<(), HandlerError> {
        self.sum += 1;
        cx.send(TELLER, Sum(self.sum))
    }
}

/// Takes the sums, in an endpoint of its own.
#[derive(Debug, Clone, Default)]
struct Teller(Arc<AtomicUsize>);

impl Handler<Sum> for Teller {
    const NAME: &'static str = "teller";

    async fn handle(&self, sum: Sum, _: &mut Context) -> Result<(), HandlerError> {
        self.0.fetch_max(sum.0, Ordering::Relaxed);
        Ok(())
    }
}

/// Where entities are and where dedup entries are.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) entities: Arc<dyn EntityStore>,
    pub(crate) dedup: Arc<dyn DedupStore>,
    /// They are one store.
    pub(crate) same: bool,
}

/// What a message does, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How often it has its effects though it comes [`COPIES`] times.
    pub(crate) effects: usize,
    /// Of the stores, until it is over.
    pub(crate) calls: usize,
}

/// Counts the calls that passes make.
#[derive(Debug, Clone)]
struct Counted {
    pair: Pair,
    letters: Memory,
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
        self.pair.entities.capabilities()
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.count();
        self.pair.entities.load(key, ids).await
    }
    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.count();
        self.pair.entities.save(key, expected, entity, processed).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.count();
        self.pair.entities.finish(key, done, clean_up).await
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.count();
        self.pair.entities.version(key).await
    }
    // Asked by the sweeper, for no message.
    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.pair.entities.pending(scope, older_than, after, limit).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.pair.entities.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Counted {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.pair.dedup.dedup_capabilities()
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.count();
        self.pair.dedup.contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.count();
        self.pair.dedup.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.pair.dedup.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl DeadLetters for Counted {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.count();
        self.letters.add(letter).await
    }
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.letters.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.letters.discard(letters).await
    }
}

impl Pair {
    /// Sends a message that sends one, copies of it, and another that tells what the first has done. `name` is of this pair alone.
    pub(crate) async fn seen(self, name: &str) -> Seen {
        let counted = Counted { pair: self, letters: Memory::new(), calls: Arc::default() };
        let (hub, teller) = (InProcess::new("pairs"), Teller::default());
        let sender = hub.sender();
        add(&sender, name, "first").await;
        counted.run(name, &hub, &teller).await;
        let calls = counted.calls.load(Ordering::Relaxed);
        for _ in 1..COPIES {
            add(&sender, name, "first").await;
        }
        add(&sender, name, "second").await;
        counted.run(name, &hub, &teller).await;
        Seen { effects: teller.0.load(Ordering::Relaxed) - 1, calls }
    }
}

async fn add(sender: &Sender, to: &str, id: &str) {
    sender.send_as(id.parse().unwrap(), to, &Add).await.unwrap();
}

impl Counted {
    async fn run(&self, name: &str, hub: &InProcess, teller: &Teller) {
        let builder = Endpoint::builder(name).transport(hub.clone());
        let builder = match self.pair.same {
            true => builder.store(self.clone()),
            false => builder.entities(self.clone()).dedup(self.clone()).dead_letters(self.letters.clone()),
        };
        let adding = builder.saga::<Adding>(|adding| adding.starts::<Add>()).run_until(hub.idle());
        let telling = Endpoint::builder(TELLER).transport(hub.clone()).store(Memory::new());
        let telling = telling.handler(teller.clone()).run_until(hub.idle());
        let (added, told) = tokio::join!(adding, telling);
        added.unwrap();
        told.unwrap();
    }
}

/// A dedup store that knows nothing of what it took.
#[derive(Debug)]
struct Forgetful(Memory);

#[async_trait]
impl DedupStore for Forgetful {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.0.dedup_capabilities()
    }
    async fn contains(&self, _: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(Known::default())
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.0.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.0.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[tokio::test]
async fn a_pair_whose_dedup_store_forgets_is_seen_to_have_effects_again() {
    let (entities, dedup) = (Arc::new(Memory::new()), Arc::new(Forgetful(Memory::new())));
    let seen = Pair { entities, dedup, same: false }.seen("forgetful").await;
    assert!(seen.effects > 1, "{seen:?}");
}
