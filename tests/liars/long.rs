//! Lies about what is remembered of dedup entries that are gone.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::DedupEntry,
    ids::{DedupKey, EndpointName, Identity},
    ports::{DedupStore, Evicted, Keep, Known, LongMemory, Passed, StoreError},
};

use crate::lie::{Lie, rejected};

rejected! {
    a_memory_that_never_folds_is_rejected:
        long_memory_breaks "long memory 6, in the end", |memory| NeverFolds(memory);
    a_memory_that_folds_the_numbers_between_is_rejected:
        long_memory_breaks "long memory 2, exact", |memory, shared| FoldsBetween(memory, shared);
    a_drop_before_it_is_remembered_is_rejected:
        long_memory_breaks "long memory 1, no gap", |memory, shared| DropsFirst(memory, shared);
    keys_that_are_forgotten_at_the_plain_retention_are_rejected:
        long_memory_breaks "long memory 1, no gap", |memory| ForgetsKeys(memory);
    keys_that_are_kept_without_their_replies_are_rejected:
        long_memory_breaks "long memory 3, keys are kept whole", |memory| KeepsNoReplies(memory);
    an_eviction_that_forgets_what_another_endpoint_waits_for_is_rejected:
        long_memory_breaks "long memory 4, by evidence", |memory, shared| WaitsForTheLast(memory, shared);
    a_hasty_endpoint_that_lowers_what_was_asked_is_rejected:
        long_memory_breaks "long memory 5, whoever asks", |memory, shared| GoesByTheLast(memory, shared);
}

#[derive(Debug)]
struct NeverFolds(Memory);

#[async_trait]
impl Lie for NeverFolds {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict_keeping(&self, _keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }
}

/// The least and the greatest number of each sequence.
type Ends = Arc<Mutex<BTreeMap<[u8; 16], (DedupKey, DedupKey)>>>;

/// Takes all numbers of a sequence between its ends for over.
#[derive(Debug)]
struct FoldsBetween(Memory, Ends);

fn sequence(key: &DedupKey) -> [u8; 16] {
    *key.as_bytes().first_chunk().unwrap()
}

#[async_trait]
impl Lie for FoldsBetween {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        for DedupEntry { key, .. } in entries {
            let mut sequences = self.1.lock().unwrap();
            let (least, greatest) = sequences.entry(sequence(key)).or_insert((*key, *key));
            (*least, *greatest) = ((*least).min(*key), (*greatest).max(*key));
        }
        self.0.insert(entries).await
    }
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let sequences = self.1.lock().unwrap().clone();
        let between = |key: &&DedupKey| {
            let numbered = key.identity() == Identity::Numbered;
            numbered && sequences.get(&sequence(key)).is_some_and(|(least, greatest)| (least..=greatest).contains(key))
        };
        Ok(self.0.recall(keys).await?.and_folded(keys.iter().filter(between).copied()))
    }
}

/// Two transactions: one in which entries go, and later one in which they are remembered.
#[derive(Debug)]
struct DropsFirst(Memory, Arc<AtomicBool>);

#[async_trait]
impl Lie for DropsFirst {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        self.1.store(true, Ordering::Relaxed);
        let evicted = self.0.evict_keeping(keep).await;
        // Long enough for who asks beside it to be met on a machine that is busy.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.1.store(false, Ordering::Relaxed);
        evicted
    }
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        if self.1.load(Ordering::Relaxed) { Ok(Known::default()) } else { self.0.recall(keys).await }
    }
}

#[derive(Debug)]
struct ForgetsKeys(Memory);

#[async_trait]
impl Lie for ForgetsKeys {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        self.0.evict_keeping(&Keep { keys: Duration::ZERO, ..*keep }).await
    }
}

#[derive(Debug)]
struct KeepsNoReplies(Memory);

#[async_trait]
impl Lie for KeepsNoReplies {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let known = self.0.recall(keys).await?;
        let entries = keys.iter().filter_map(|key| known.entry(key));
        let entries = entries.map(|entry| DedupEntry { reply: None, ..entry.clone() }).collect();
        Ok(Known::new(entries).and_folded(keys.iter().filter(|key| known.is_folded(key)).copied()))
    }
}

/// Goes by the evidence of whoever has shown something last.
#[derive(Debug)]
struct WaitsForTheLast(Memory, Arc<Mutex<HashSet<EndpointName>>>);

#[async_trait]
impl Lie for WaitsForTheLast {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        if let Passed::Until(_) = keep.passed {
            let others = std::mem::take(&mut *self.1.lock().unwrap());
            for other in others.iter().filter(|other| *other != keep.endpoint) {
                self.0.withdraw(other).await?;
            }
        }
        self.1.lock().unwrap().insert(keep.endpoint.clone());
        self.0.evict_keeping(keep).await
    }
}

/// Goes by what was asked for last, though another endpoint has asked for more.
#[derive(Debug)]
struct GoesByTheLast(Memory, Arc<Mutex<(bool, bool)>>);

#[async_trait]
impl Lie for GoesByTheLast {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        *self.1.lock().unwrap() = (false, false);
        self.0.evict(retention).await
    }
    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        *self.1.lock().unwrap() = (keep.fold, keep.keys > Duration::ZERO);
        self.0.evict_keeping(keep).await
    }
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let (known, (folds, keeps)) = (self.0.recall(keys).await?, *self.1.lock().unwrap());
        let entries = keys.iter().filter(|_| keeps).filter_map(|key| known.entry(key)).cloned().collect();
        Ok(Known::new(entries).and_folded(keys.iter().filter(|key| folds && known.is_folded(key)).copied()))
    }
}
