//! A store that keeps what the last messages left behind and nothing of any entity, so that all that grows beside it is the
//! endpoint's. Only for messages each of which is the first of its entity.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError,
    },
};

/// Dedup entries that are kept.
const ENTRIES_MAX: usize = 8192;
/// Far beyond any entity or reply here.
const BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Default)]
pub(super) struct Recent(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    entries: HashMap<DedupKey, DedupEntry>,
    /// In the order in which they came.
    order: VecDeque<DedupKey>,
    counts: Counts,
    version: i64,
}

impl Default for State {
    /// With all the room that it will ever need: a map grows once more when it is half full and has seen many removals.
    fn default() -> Self {
        Self {
            entries: HashMap::with_capacity(4 * ENTRIES_MAX),
            order: VecDeque::with_capacity(ENTRIES_MAX + 1),
            counts: Counts::default(),
            version: 0,
        }
    }
}

/// What was asked of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Versions of entities, those that only cleaned up left out.
    pub(super) versions: u64,
    pub(super) dedup_entries: u64,
    pub(super) letters: u64,
}

impl Recent {
    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn known(&self, keys: &[DedupKey]) -> Known {
        Known::new(keys.iter().filter_map(|key| self.entries.get(key)).cloned().collect())
    }

    fn insert(&mut self, entries: &[DedupEntry]) {
        for entry in entries {
            if self.entries.insert(entry.key, entry.clone()).is_some() {
                continue;
            }
            self.counts.dedup_entries += 1;
            self.order.push_back(entry.key);
            if self.order.len() > ENTRIES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
    }

    const fn next(&mut self) -> Version {
        self.version += 1;
        Version::number(self.version)
    }
}

#[async_trait]
impl EntityStore for Recent {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "recent",
            entity_bytes_max: BYTES_MAX,
            together: true,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: false,
        }
    }

    async fn load(&self, _: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        Ok(Loaded { stored: None, known: Some(self.state().known(ids)) })
    }

    async fn save(
        &self,
        _: &EntityKey,
        expected: &Expected,
        _: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        if *expected != Expected::Absent {
            return Ok(Saved::Conflict);
        }
        let mut state = self.state();
        state.insert(processed);
        state.counts.versions += 1;
        Ok(Saved::At(state.next()))
    }

    async fn finish(
        &self,
        _: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let mut state = self.state();
        state.insert(done);
        Ok(Some(Finished::Cleaned(clean_up.map(|_| state.next()))))
    }

    async fn version(&self, _: &EntityKey) -> Result<Option<Version>, StoreError> {
        Ok(None)
    }

    async fn pending(
        &self,
        _: &Arc<Scope>,
        _: Duration,
        _: Option<&EntityKey>,
        _: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        Ok(Vec::new())
    }

    async fn purge(&self, _: &Arc<Scope>, _: Duration, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl DedupStore for Recent {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "recent",
            keeps: None,
            alone: true,
            durable: false,
            consistent: true,
            reply_bytes_max: BYTES_MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(self.state().known(keys))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.state().insert(entries);
        Ok(())
    }

    async fn evict(&self, _: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl DeadLetters for Recent {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        self.state().counts.letters += 1;
        Ok(())
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use hapax::{
        ids::{AttemptId, Fingerprint},
        time::Timestamp,
    };

    use super::*;

    fn entry(number: u64) -> DedupEntry {
        let mut key = [0; DedupKey::BYTES];
        key[DedupKey::BYTES - 8..].copy_from_slice(&number.to_be_bytes());
        DedupEntry {
            key: DedupKey::from_bytes(key),
            attempt: AttemptId::from_bytes([0; AttemptId::BYTES]),
            fingerprint: Fingerprint::from_bytes([0; Fingerprint::BYTES]),
            reply: None,
            time: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn the_last_entries_are_kept_and_all_are_counted_once() {
        let mut state = State::default();
        let last = ENTRIES_MAX as u64;
        for number in 0..=last {
            state.insert(&[entry(number)]);
            state.insert(&[entry(number)]);
        }
        assert_eq!((state.entries.len(), state.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(state.counts.dedup_entries, last + 1);
        let known = state.known(&[entry(0).key, entry(1).key, entry(last).key]);
        assert!(known.entry(&entry(0).key).is_none() && known.entry(&entry(1).key).is_some());
    }
}
