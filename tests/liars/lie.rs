//! An honest store with one lie, and how a suite is to take it.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Keep, Known, Loaded, LongMemory, Moment,
        Pending, Saved, StoreCapabilities, StoreError,
    },
    testing::{Broken, dedup_store, entity_store, long_memory},
};

/// What a liar does otherwise than [`Memory`]; what it does not say, it does honestly.
#[async_trait]
pub(crate) trait Lie: fmt::Debug + Send + Sync + 'static {
    fn honest(&self) -> &Memory;

    fn capabilities(&self) -> StoreCapabilities {
        EntityStore::capabilities(self.honest())
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.honest().load(key, ids).await
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        save.to(self.honest(), key).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.honest().finish(key, done, clean_up).await
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.honest().version(key).await
    }
    async fn pending(&self, scope: &Arc<Scope>, ask: Ask<'_>) -> Result<Vec<Pending>, StoreError> {
        self.honest().pending(scope, ask.older_than, ask.after, ask.limit).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.honest().purge(scope, older_than, limit).await
    }

    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.honest().dedup_capabilities()
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.honest().contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.honest().insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.honest().evict(retention).await
    }

    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.honest().recall(keys).await
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        self.honest().evict_keeping(keep).await
    }
}

/// The arguments of a save.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Save<'a> {
    pub(crate) expected: &'a Expected,
    pub(crate) entity: &'a Entity,
    pub(crate) processed: &'a [DedupEntry],
}

impl Save<'_> {
    pub(crate) async fn to(self, store: &Memory, key: &EntityKey) -> Result<Saved, StoreError> {
        store.save(key, self.expected, self.entity, self.processed).await
    }
}

/// The arguments of a look at what is pending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) older_than: Duration,
    pub(crate) after: Option<&'a EntityKey>,
    pub(crate) limit: usize,
}

/// The liar as an adapter.
#[derive(Debug)]
struct Liar<L>(L);

#[async_trait]
impl<L: Lie> EntityStore for Liar<L> {
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
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.0.save(key, Save { expected, entity, processed }).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.0.finish(key, done, clean_up).await
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
        self.0.pending(scope, Ask { older_than, after, limit }).await
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl<L: Lie> DedupStore for Liar<L> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.0.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.0.contains(keys).await
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.0.insert(entries).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.0.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        Some(self)
    }
}

#[async_trait]
impl<L: Lie> LongMemory for Liar<L> {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.0.recall(keys).await
    }
    async fn moment(&self) -> Result<Moment, StoreError> {
        self.0.honest().moment().await
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        self.0.evict_keeping(keep).await
    }
    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.0.honest().withdraw(endpoint).await
    }
}

/// Makes a liar of each handle: onto the data of all, and onto data apart.
struct Liars<F>(F, F);

impl<F> fmt::Debug for Liars<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Liars")
    }
}

#[async_trait]
impl<L: Lie, F: Fn() -> L + Send + Sync> entity_store::Builder for Liars<F> {
    async fn entities(&self) -> Arc<dyn EntityStore> {
        Arc::new(Liar(self.0()))
    }
    async fn dedup(&self) -> Option<Arc<dyn DedupStore>> {
        let liar = Liar(self.0());
        if EntityStore::capabilities(&liar).together { Some(Arc::new(liar)) } else { None }
    }
    async fn faulty(&self) -> Option<Arc<dyn EntityStore>> {
        None
    }
}

#[async_trait]
impl<L: Lie, F: Fn() -> L + Send + Sync> dedup_store::Builder for Liars<F> {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(Liar(self.0()))
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(Liar(self.1())))
    }
}

/// The entity store suite rejects such handles, and names `promise` first.
pub(crate) async fn entities_break<L: Lie, F: Fn() -> L + Send + Sync>(promise: &str, liars: impl Fn() -> F) {
    expect(promise, entity_store::first_broken(&Liars(liars(), liars())).await);
}

/// The entity store suite has nothing against such handles.
pub(crate) async fn entities_keep_all<L: Lie>(handle: impl Fn() -> L + Send + Sync + Clone) {
    entity_store::check_all(&Liars(handle.clone(), handle)).await.assert();
}

/// The dedup store suite rejects such handles, and names `promise` first.
pub(crate) async fn dedup_breaks<L: Lie, F: Fn() -> L + Send + Sync>(promise: &str, liars: impl Fn() -> F) {
    expect(promise, dedup_store::first_broken(&Liars(liars(), liars())).await);
}

/// Makes a liar of data apart each time.
struct Apart<G>(G);

impl<G> fmt::Debug for Apart<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Apart")
    }
}

#[async_trait]
impl<L: Lie, F: Fn() -> L + Send + Sync, G: Fn() -> F + Send + Sync> dedup_store::Builder for Apart<G> {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(Liar(self.0()()))
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(Liar(self.0()())))
    }
}

/// The suite of long memories rejects such handles, and names `promise` first.
pub(crate) async fn long_memory_breaks<L, F>(promise: &str, liars: impl Fn() -> F + Send + Sync)
where
    L: Lie,
    F: Fn() -> L + Send + Sync,
{
    expect(promise, long_memory::first_broken(&Apart(liars)).await);
}

#[track_caller]
pub(crate) fn expect(promise: &str, broken: Option<Broken>) {
    let broken = broken.expect("the suite has to reject a liar");
    assert_eq!(broken.promise, promise, "the suite names another promise first: {broken}");
    println!("{broken}");
}

/// One test for each liar: its name, the suite, the promise it breaks, and a handle, made from one [`Memory`] and, where
/// the handles have to agree, from something that they share.
macro_rules! rejected {
    ($($test:ident: $how:ident $promise:literal, |$memory:ident $(, $shared:ident)?| $liar:expr;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let liars = || {
                    let all = hapax::Memory::new();
                    $(let $shared = Default::default();)?
                    move || {
                        let $memory = all.clone();
                        $(let $shared = Clone::clone(&$shared);)?
                        $liar
                    }
                };
                $crate::lie::$how($promise, liars).await;
            }
        )+
    };
}
pub(crate) use rejected;
