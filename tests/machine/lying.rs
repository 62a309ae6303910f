//! An honest store with one lie: what the machines have to find out.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
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
use hapax_tests::Backend;

/// What is not as the port says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each of the programs with this file uses some")]
pub(crate) enum Lie {
    None,
    /// "Not seen" is answered from a cache.
    RemembersNotSeen,
    /// A save wins whatever it expects.
    SavesBlindly,
    /// A save looks at the version first and writes then: right only if nobody comes in between.
    LooksThenSaves,
    /// An insert is confirmed, and made with the handle's next call.
    InsertsLater,
    /// What rides with a save that loses is marked all the same.
    MarksLosers,
    /// A finish whose clean-up loses marks nothing.
    LosesMarks,
    /// The last attempt's mark replaces the first's.
    LastMarkWins,
    /// An eviction removes what is younger than it was asked for.
    EvictsEarly,
    /// The version is answered from a cache.
    RemembersVersions,
    /// A completed entity with something to send is purged.
    PurgesUnsent,
    /// A load looks for marks first and for the entity then.
    LooksForMarksFirst,
    /// Some saves are said to have been refused, and are made.
    RefusesAndSaves,
}

/// A store that lies.
#[derive(Debug, Clone)]
pub(crate) struct Lying<B> {
    inner: B,
    lie: Lie,
    memo: Arc<Mutex<Memo>>,
}

#[derive(Debug, Default)]
struct Memo {
    not_seen: HashSet<DedupKey>,
    held: Vec<DedupEntry>,
    latest: HashMap<DedupKey, DedupEntry>,
    versions: HashMap<EntityKey, Option<Version>>,
    /// Saved, complete and with something to send.
    unsent: HashMap<EntityKey, (Version, Entity)>,
}

impl<B: Backend> Lying<B> {
    pub(crate) fn new(inner: B, lie: Lie) -> Self {
        Self { inner, lie, memo: Arc::default() }
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap()
    }

    /// What was confirmed some time ago.
    async fn make_good(&self) -> Result<(), StoreError> {
        let held = std::mem::take(&mut self.memo().held);
        if held.is_empty() { Ok(()) } else { self.inner.insert(&held).await }
    }

    fn known(&self, known: Known, keys: &[DedupKey]) -> Known {
        let mut memo = self.memo();
        match self.lie {
            Lie::RemembersNotSeen => {
                memo.not_seen.extend(keys.iter().filter(|key| known.entry(key).is_none()));
                let seen = keys.iter().filter(|key| !memo.not_seen.contains(*key));
                Known::new(seen.filter_map(|key| known.entry(key).cloned()).collect())
            }
            Lie::LastMarkWins => {
                let entry = |key: &DedupKey| memo.latest.get(key).or_else(|| known.entry(key)).cloned();
                Known::new(keys.iter().filter_map(entry).collect())
            }
            _ => known,
        }
    }
}

#[async_trait]
impl<B: Backend> EntityStore for Lying<B> {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let Loaded { mut stored, known } = self.inner.load(key, ids).await?;
        self.make_good().await?;
        if self.lie == Lie::LooksForMarksFirst {
            tokio::task::yield_now().await;
            stored = self.inner.load(key, ids).await?.stored;
        }
        let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        Ok(Loaded { known: known.map(|known| self.known(known, &keys)), stored })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let mut expected = expected.clone();
        if matches!(self.lie, Lie::SavesBlindly | Lie::LooksThenSaves) {
            let found = || async { Ok(self.inner.version(key).await?.map_or(Expected::Absent, Expected::Version)) };
            if self.lie == Lie::LooksThenSaves {
                if found().await? != expected {
                    return Ok(Saved::Conflict);
                }
                tokio::task::yield_now().await; // As a server answers, and is asked again.
            }
            expected = found().await?;
        }
        let saved = self.inner.save(key, &expected, entity, processed).await?;
        self.make_good().await?;
        if self.lie == Lie::RefusesAndSaves && entity.size().is_multiple_of(3) {
            return Err(StoreError::new(ErrorKind::Unavailable, "saving", "refused, as it says"));
        }
        if saved == Saved::Conflict && self.lie == Lie::MarksLosers {
            self.inner.insert(processed).await?;
        }
        if let Saved::At(version) = &saved
            && entity.completed
            && !entity.outbox.is_empty()
        {
            self.memo().unsent.insert(key.clone(), (version.clone(), entity.clone()));
        }
        Ok(saved)
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        if let Some((version, _)) = clean_up
            && self.lie == Lie::LosesMarks
            && self.inner.version(key).await?.as_ref() != Some(version)
        {
            return Ok(Some(Finished::Left));
        }
        let finished = self.inner.finish(key, done, clean_up).await;
        self.make_good().await?;
        finished
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        let version = self.inner.version(key).await?;
        self.make_good().await?;
        if self.lie != Lie::RemembersVersions {
            return Ok(version);
        }
        Ok(self.memo().versions.entry(key.clone()).or_insert(version).clone())
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
        if self.lie == Lie::PurgesUnsent {
            let unsent = std::mem::take(&mut self.memo().unsent);
            for (key, (version, entity)) in unsent {
                let empty = Entity { outbox: Vec::new(), ..entity };
                let _ = self.inner.save(&key, &Expected::Version(version), &empty, &[]).await?;
            }
        }
        self.inner.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl<B: Backend> DedupStore for Lying<B> {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.inner.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let known = self.inner.contains(keys).await?;
        self.make_good().await?;
        Ok(self.known(known, keys))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.make_good().await?;
        match self.lie {
            Lie::InsertsLater => {
                self.memo().held.extend_from_slice(entries);
                Ok(())
            }
            Lie::LastMarkWins => {
                self.memo().latest.extend(entries.iter().map(|entry| (entry.key, entry.clone())));
                self.inner.insert(entries).await
            }
            _ => self.inner.insert(entries).await,
        }
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let retention = if self.lie == Lie::EvictsEarly { Duration::ZERO } else { retention };
        self.inner.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl<B: Backend> DeadLetters for Lying<B> {
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

/// What is told may be about a write of some calls ago.
impl<B: Backend> Backend for Lying<B> {
    const EXACT: bool = false;

    fn dedup_entries(&self) -> Option<usize> {
        self.inner.dedup_entries()
    }
}
