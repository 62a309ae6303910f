//! A dedup store that fails.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupCapabilities, DedupStore, Evicted, Known, LongMemory, StoreError},
};

use super::{Faulty, WRITE, refused, unknown};
use crate::{Call, Fault, Side};

#[async_trait]
impl<P: DedupStore + 'static> DedupStore for Faulty<P> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.inner.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.world.point(Call::Contains, Side::Before).await;
        let fate = self.world.fate(Call::Contains, &[Fault::Refused]).await;
        if fate == Some(Fault::Refused) {
            return Err(refused("asking the dedup store"));
        }
        let known = self.inner.contains(keys).await?;
        self.world.silence(Call::Contains, fate).await;
        self.world.point(Call::Contains, Side::After).await;
        Ok(known)
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        const INSERTING: &str = "inserting dedup entries";
        self.world.point(Call::Insert, Side::Before).await;
        let fate = self.world.fate(Call::Insert, WRITE).await;
        match fate {
            Some(Fault::Refused) => return Err(refused(INSERTING)),
            Some(Fault::UnknownNotApplied) => return Err(unknown(INSERTING)),
            Some(Fault::Late) => {
                let (inner, world, entries) = (self.inner.clone(), self.world.clone(), entries.to_vec());
                self.world.delay(Box::pin(async move {
                    if inner.insert(&entries).await.is_ok() {
                        world.marked(&entries);
                    }
                }));
                return Err(unknown(INSERTING));
            }
            _ => self.inner.insert(entries).await?,
        }
        self.world.marked(entries);
        self.world.silence(Call::Insert, fate).await;
        self.world.point(Call::Insert, Side::After).await;
        if fate == Some(Fault::UnknownApplied) { Err(unknown(INSERTING)) } else { Ok(()) }
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.world.point(Call::Evict, Side::Before).await;
        let evicted = self.inner.evict(retention).await?;
        self.world.point(Call::Evict, Side::After).await;
        Ok(evicted)
    }
    /// No faults happen in it: see the explorer.
    fn long_memory(&self) -> Option<&dyn LongMemory> {
        self.inner.long_memory()
    }
}
