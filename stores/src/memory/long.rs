//! What is remembered of entries that are gone.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax_core::{
    entity::DedupEntry,
    ids::{DedupKey, EndpointName, Identity},
    ports::{Evicted, Keep, Known, LongMemory, Moment, Passed, StoreError},
};

use super::{Memory, State};

#[derive(Debug)]
pub(super) struct Long {
    /// The beginning of time.
    born: Instant,
    fold: bool,
    /// Numbers that are over: the first key of each run, and the last.
    runs: BTreeMap<DedupKey, DedupKey>,
    /// For how long idempotency keys are kept.
    keys: Duration,
    keyed: HashMap<DedupKey, DedupEntry>,
    /// Of `keyed`, in the order of their insertion.
    order: VecDeque<(DedupKey, Instant)>,
    /// What each endpoint that goes by evidence has shown.
    shown: HashMap<EndpointName, Option<Moment>>,
}

impl Default for Long {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            fold: false,
            runs: BTreeMap::new(),
            keys: Duration::ZERO,
            keyed: HashMap::new(),
            order: VecDeque::new(),
            shown: HashMap::new(),
        }
    }
}

impl Long {
    fn moment(&self, time: Instant) -> Moment {
        Moment(i64::try_from(time.saturating_duration_since(self.born).as_millis()).unwrap_or(i64::MAX))
    }

    /// Whether an old entry of an id may go.
    pub(super) fn may_go(&self, inserted: Instant) -> bool {
        self.shown.values().all(|until| until.is_some_and(|until| self.moment(inserted) <= until))
    }

    /// Keeps what has to be kept of an old entry. Gives it back if it has to wait.
    pub(super) fn take(&mut self, entry: DedupEntry, inserted: Instant) -> Option<DedupEntry> {
        match entry.key.identity() {
            Identity::Numbered if self.fold => self.fold(entry.key),
            Identity::Keyed if inserted.elapsed() <= self.keys => {
                if !self.keyed.contains_key(&entry.key) {
                    self.order.push_back((entry.key, inserted));
                    self.keyed.insert(entry.key, entry);
                }
            }
            _ if self.may_go(inserted) => {}
            _ => return Some(entry),
        }
        None
    }

    fn fold(&mut self, key: DedupKey) {
        if self.is_folded(&key) {
            return;
        }
        let before = self.runs.range(..key).next_back().map(|(first, last)| (*first, *last));
        let first = match before {
            Some((first, last)) if last.next_number() == Some(key) => first,
            _ => key,
        };
        let last = key.next_number().and_then(|next| self.runs.remove(&next)).unwrap_or(key);
        self.runs.insert(first, last);
    }

    fn is_folded(&self, key: &DedupKey) -> bool {
        self.runs.range(..=*key).next_back().is_some_and(|(_, last)| last >= key)
    }

    /// Lets go of idempotency keys whose time is over.
    pub(super) fn forget(&mut self) {
        while self.order.front().is_some_and(|(_, inserted)| inserted.elapsed() > self.keys) {
            if let Some((key, _)) = self.order.pop_front() {
                self.keyed.remove(&key);
            }
        }
    }
}

#[async_trait]
impl LongMemory for Memory {
    async fn recall(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let state = self.state();
        let long = &state.long;
        let entries = keys.iter().filter_map(|key| long.keyed.get(key)).cloned().collect();
        Ok(Known::new(entries).and_folded(keys.iter().filter(|key| long.is_folded(key)).copied()))
    }

    async fn moment(&self) -> Result<Moment, StoreError> {
        Ok(self.state().long.moment(Instant::now()))
    }

    async fn evict_keeping(&self, keep: &Keep<'_>) -> Result<Evicted, StoreError> {
        let mut state = self.state();
        let State { dedup, long, .. } = &mut *state;
        long.keys = long.keys.max(keep.keys);
        long.fold |= keep.fold;
        let shown = match keep.passed {
            Passed::Unasked => None,
            Passed::Waits => Some(None),
            Passed::Until(moment) => Some(Some(moment)),
        };
        if let Some(until) = shown {
            let known = long.shown.entry(keep.endpoint.clone()).or_default();
            *known = (*known).max(until);
        }
        Ok(dedup.evict(keep.retention, long))
    }

    async fn withdraw(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.state().long.shown.remove(endpoint);
        Ok(())
    }
}
