//! Lies about what is stored and at which version.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, SagaKey},
    ports::{EntityStore, Finished, Loaded, Saved, StoreCapabilities, StoreError, Stored},
};
use tokio::task::yield_now;

use crate::lie::{Lie, Save, rejected};

rejected! {
    a_load_of_two_moments_is_rejected: entities_break "entity store 1, whole", |memory| Torn(memory);
    a_save_that_drops_timeouts_is_rejected: entities_break "entity store 1, whole", |memory| DropsTimeouts(memory);
    a_blind_write_is_rejected: entities_break "entity store 2, guarded", |memory| BlindWrite(memory);
    an_upsert_on_absent_is_rejected: entities_break "entity store 2, guarded", |memory| UpsertOnAbsent(memory);
    a_save_that_revives_the_missing_is_rejected:
        entities_break "entity store 2, guarded", |memory| RevivesMissing(memory);
    a_version_that_starts_anew_after_a_purge_is_rejected:
        entities_break "entity store 3, never again", |memory, shared| VersionReset(memory, shared);
    a_lost_save_is_rejected: entities_break "entity store 4, kept", |memory| LosesSaves(memory, AtomicUsize::new(0));
    a_cached_version_is_rejected:
        entities_break "entity store 9, current", |memory| CachedVersion(memory, Mutex::default());
    keys_without_trailing_spaces_are_rejected: entities_break "entity store 15, apart", |memory| TrimsKeys(memory);
    keys_without_case_are_rejected: entities_break "entity store 15, apart", |memory| CaseBlind(memory);
    a_claim_to_keep_both_is_rejected:
        entities_break "entity store, capabilities", |memory| ClaimsTogether(memory);
}

/// `load` reads the state, and the rest a moment later.
#[derive(Debug)]
struct Torn(Memory);

#[async_trait]
impl Lie for Torn {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let early = self.0.load(key, ids).await?;
        for _ in 0..10 {
            yield_now().await; // Others do something while a server is being asked.
        }
        let late = self.0.load(key, ids).await?;
        let stored = early.stored.zip(late.stored).map(|(early, late)| Stored {
            version: early.version,
            entity: Entity { outbox: late.entity.outbox, ..early.entity },
        });
        Ok(Loaded { stored, ..late })
    }
}

#[derive(Debug)]
struct DropsTimeouts(Memory);

#[async_trait]
impl Lie for DropsTimeouts {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        let entity = Entity { timeouts: Vec::new(), ..save.entity.clone() };
        Save { entity: &entity, ..save }.to(&self.0, key).await
    }
}

/// Writes over whatever is there.
#[derive(Debug)]
struct BlindWrite(Memory);

#[async_trait]
impl Lie for BlindWrite {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        write_over(&self.0, key, save).await
    }
}

async fn write_over(memory: &Memory, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
    loop {
        let expected = memory.version(key).await?.map_or(Expected::Absent, Expected::Version);
        if let at @ Saved::At(_) = (Save { expected: &expected, ..save }).to(memory, key).await? {
            return Ok(at);
        }
    }
}

/// Insert-if-absent as insert-or-replace (S28).
#[derive(Debug)]
struct UpsertOnAbsent(Memory);

#[async_trait]
impl Lie for UpsertOnAbsent {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        if *save.expected == Expected::Absent {
            write_over(&self.0, key, save).await
        } else {
            save.to(&self.0, key).await
        }
    }
}

/// A save that expects a version of an entity that is not there makes one (S50).
#[derive(Debug)]
struct RevivesMissing(Memory);

#[async_trait]
impl Lie for RevivesMissing {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        if self.0.version(key).await?.is_none() {
            return Save { expected: &Expected::Absent, ..save }.to(&self.0, key).await;
        }
        save.to(&self.0, key).await
    }
}

type Shown = Arc<tokio::sync::Mutex<HashMap<EntityKey, i64>>>;

/// Counts the versions of an entity from 1, also of one that is made anew (S49).
#[derive(Debug)]
struct VersionReset(Memory, Shown);

impl VersionReset {
    /// What is stored, if its number is the one expected.
    async fn meant(&self, shown: &HashMap<EntityKey, i64>, key: &EntityKey, version: &Version) -> Option<Version> {
        let stored = self.0.version(key).await.unwrap();
        stored.filter(|_| shown.get(key).copied() == version.as_number())
    }

    fn count(shown: &mut HashMap<EntityKey, i64>, key: &EntityKey) -> Version {
        let number = shown.entry(key.clone()).or_insert(0);
        *number += 1;
        Version::number(*number)
    }
}

#[async_trait]
impl Lie for VersionReset {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let shown = self.1.lock().await;
        let loaded = self.0.load(key, ids).await?;
        let stored = loaded.stored.map(|stored| Stored { version: Version::number(shown[key]), ..stored });
        Ok(Loaded { stored, ..loaded })
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        let mut shown = self.1.lock().await;
        let expected = match save.expected {
            Expected::Absent => Expected::Absent,
            Expected::Version(version) => match self.meant(&shown, key, version).await {
                Some(stored) => Expected::Version(stored),
                None => return Ok(Saved::Conflict),
            },
        };
        if (Save { expected: &expected, ..save }).to(&self.0, key).await? == Saved::Conflict {
            return Ok(Saved::Conflict);
        }
        if expected == Expected::Absent {
            shown.remove(key);
        }
        Ok(Saved::At(Self::count(&mut shown, key)))
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let mut shown = self.1.lock().await;
        let Some((version, entity)) = clean_up else { return self.0.finish(key, done, None).await };
        let stored = self.meant(&shown, key, version).await.unwrap_or_else(|| Version::number(-1));
        Ok(match self.0.finish(key, done, Some((&stored, entity))).await? {
            Some(Finished::Cleaned(Some(_))) => Some(Finished::Cleaned(Some(Self::count(&mut shown, key)))),
            other => other,
        })
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        let shown = self.1.lock().await;
        Ok(self.0.version(key).await?.map(|_| Version::number(shown[key])))
    }
}

/// Confirms every save and makes most of them.
#[derive(Debug)]
struct LosesSaves(Memory, AtomicUsize);

#[async_trait]
impl Lie for LosesSaves {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        const LOST: usize = 3;
        if self.1.fetch_add(1, Ordering::Relaxed) % LOST == LOST - 1 {
            return Ok(Saved::At(Version::number(i64::MAX)));
        }
        save.to(&self.0, key).await
    }
}

/// Answers `version` as it was when it was asked first.
#[derive(Debug)]
struct CachedVersion(Memory, Mutex<HashMap<EntityKey, Option<Version>>>);

#[async_trait]
impl Lie for CachedVersion {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        let now = self.0.version(key).await?;
        Ok(self.1.lock().unwrap().entry(key.clone()).or_insert(now).clone())
    }
}

/// Keys as a fixed-width text column has them.
#[derive(Debug)]
struct TrimsKeys(Memory);

/// Keys as a case-insensitive collation has them.
#[derive(Debug)]
struct CaseBlind(Memory);

fn rekeyed(key: &EntityKey, text: String) -> EntityKey {
    EntityKey::new(key.scope().clone(), SagaKey::parse(text).unwrap())
}

macro_rules! rekeys {
    ($liar:ident, $rekey:expr) => {
        impl $liar {
            fn key(key: &EntityKey) -> EntityKey {
                let rekey: fn(&str) -> String = $rekey;
                rekeyed(key, rekey(key.key().as_str()))
            }
        }

        #[async_trait]
        impl Lie for $liar {
            fn honest(&self) -> &Memory {
                &self.0
            }
            async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
                self.0.load(&Self::key(key), ids).await
            }
            async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
                save.to(&self.0, &Self::key(key)).await
            }
            async fn finish(
                &self,
                key: &EntityKey,
                done: &[DedupEntry],
                clean_up: Option<(&Version, &Entity)>,
            ) -> Result<Option<Finished>, StoreError> {
                self.0.finish(&Self::key(key), done, clean_up).await
            }
            async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
                self.0.version(&Self::key(key)).await
            }
        }
    };
}
rekeys!(TrimsKeys, |key| key.trim_end().to_owned());
rekeys!(CaseBlind, str::to_lowercase);

/// Says that it keeps both and does not answer for the dedup entries.
#[derive(Debug)]
struct ClaimsTogether(Memory);

#[async_trait]
impl Lie for ClaimsTogether {
    fn honest(&self) -> &Memory {
        &self.0
    }
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { together: true, ..EntityStore::capabilities(&self.0) }
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        Ok(Loaded { known: None, ..self.0.load(key, ids).await? })
    }
}
