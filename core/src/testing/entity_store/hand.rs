//! Calls of a store as the checks make them: made again while the store is busy, and what is wrong is told as the promise that is broken.

use std::sync::Arc;

use super::{Broken, Builder, KEPT};
use crate::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey},
    ports::{DedupStore, EntityStore, Finished, Known, Loaded, Saved, Stored},
    testing::wait::{eventually, insistently},
};

/// One handle of the store under test, and the promise that is being checked with it.
#[derive(Clone)]
pub(super) struct Hand {
    pub(super) store: Arc<dyn EntityStore>,
    pub(super) promise: &'static str,
}

impl Hand {
    pub(super) async fn new(builder: &dyn Builder, promise: &'static str) -> Self {
        Self { store: builder.entities().await, promise }
    }

    /// As many handles as different processes would have.
    pub(super) async fn several(builder: &dyn Builder, promise: &'static str, count: usize) -> Vec<Self> {
        let mut hands = Vec::with_capacity(count);
        for _ in 0..count {
            hands.push(Self::new(builder, promise).await);
        }
        hands
    }

    pub(super) fn broken(&self, what: impl Into<String>) -> Broken {
        Broken::new(self.promise, what)
    }

    pub(super) async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, Broken> {
        insistently(self.promise, "saving an entity", || self.store.save(key, expected, entity, processed)).await
    }

    /// A save that nothing speaks against.
    pub(super) async fn put(&self, key: &EntityKey, expected: &Expected, entity: &Entity) -> Result<Version, Broken> {
        match self.save(key, expected, entity, &[]).await? {
            Saved::At(version) => Ok(version),
            Saved::Conflict => {
                // Nobody else has written, so what was confirmed before is not what is stored.
                let promise = if *expected == Expected::Absent { self.promise } else { KEPT };
                Err(Broken::new(promise, format!("a save that expected {expected:?}, as it has to be, is a conflict")))
            }
        }
    }

    /// Saves an entity that was not there.
    pub(super) async fn create(&self, key: &EntityKey, entity: &Entity) -> Result<Version, Broken> {
        self.put(key, &Expected::Absent, entity).await
    }

    pub(super) async fn replace(&self, key: &EntityKey, version: &Version, entity: &Entity) -> Result<Version, Broken> {
        self.put(key, &Expected::Version(version.clone()), entity).await
    }

    /// A save that has to lose.
    pub(super) async fn lose(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        why: &str,
    ) -> Result<(), Broken> {
        match self.save(key, expected, entity, &[]).await? {
            Saved::Conflict => Ok(()),
            Saved::At(version) => {
                Err(self.broken(format!("a save that expected {expected:?} {why} won, as version {version:?}")))
            }
        }
    }

    pub(super) async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, Broken> {
        insistently(self.promise, "loading an entity", || self.store.load(key, ids)).await
    }

    /// The entity as it was saved at `version`. `load` may lag behind, so it is asked until it has caught up.
    pub(super) async fn load_at(&self, key: &EntityKey, version: &Version) -> Result<Stored, Broken> {
        let never = || Broken::new(KEPT, format!("`load` never showed the confirmed version {version:?}"));
        let look = || async {
            let stored = self.load(key, &[]).await?.stored;
            Ok(stored.filter(|stored| stored.version == *version))
        };
        eventually(never, look).await
    }

    pub(super) async fn version(&self, key: &EntityKey) -> Result<Option<Version>, Broken> {
        insistently(self.promise, "asking for a version", || self.store.version(key)).await
    }

    pub(super) async fn expect_version(
        &self,
        key: &EntityKey,
        version: Option<&Version>,
        when: &str,
    ) -> Result<(), Broken> {
        let seen = self.version(key).await?;
        if seen.as_ref() == version {
            return Ok(());
        }
        Err(self.broken(format!("`version` is {seen:?} {when}, not {version:?}")))
    }

    pub(super) async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, Broken> {
        insistently(self.promise, "finishing", || self.store.finish(key, done, clean_up)).await
    }

    /// A finish by a store that says it can.
    pub(super) async fn finish_together(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Finished, Broken> {
        let none = || self.broken("`finish` is `None` although the store says that it keeps both");
        self.finish(key, done, clean_up).await?.ok_or_else(none)
    }

    /// Removes tombstones until the entity is gone.
    pub(super) async fn purge(&self, key: &EntityKey) -> Result<(), Broken> {
        const LIMIT: usize = 10;
        let never = || self.broken("a completed entity with an empty outbox was never purged");
        let look = || async {
            let purging = || self.store.purge(key.scope(), std::time::Duration::ZERO, LIMIT);
            insistently(self.promise, "purging", purging).await?;
            Ok(self.version(key).await?.is_none().then_some(()))
        };
        eventually(never, look).await
    }
}

/// The dedup entries of the store under test.
#[derive(Clone)]
pub(super) struct Marks {
    store: Arc<dyn DedupStore>,
    promise: &'static str,
}

impl Marks {
    /// `None` for a store that keeps entities only.
    pub(super) async fn of(builder: &dyn Builder, promise: &'static str) -> Option<Self> {
        Some(Self { store: builder.dedup().await?, promise })
    }

    /// Whether they are added without their entity, too.
    pub(super) fn alone(&self) -> bool {
        self.store.dedup_capabilities().alone
    }

    pub(super) async fn known(&self, marks: &[DedupEntry]) -> Result<Known, Broken> {
        let keys: Vec<DedupKey> = marks.iter().map(|mark| mark.key).collect();
        insistently(self.promise, "asking the dedup store", || self.store.contains(&keys)).await
    }

    pub(super) async fn insert(&self, marks: &[DedupEntry]) -> Result<(), Broken> {
        insistently(self.promise, "inserting dedup entries", || self.store.insert(marks)).await
    }

    pub(super) async fn expect(&self, mark: &DedupEntry, when: &str) -> Result<(), Broken> {
        let known = self.known(std::slice::from_ref(mark)).await?;
        if known.attempt(&mark.key, &mark.attempt) {
            return Ok(());
        }
        Err(Broken::new(self.promise, format!("the dedup entry is missing {when}")))
    }

    pub(super) async fn expect_none(&self, mark: &DedupEntry, when: &str) -> Result<(), Broken> {
        let known = self.known(std::slice::from_ref(mark)).await?;
        if known.entry(&mark.key).is_none() {
            return Ok(());
        }
        Err(Broken::new(self.promise, format!("there is a dedup entry {when}")))
    }
}
