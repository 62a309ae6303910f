//! Lies about what waits, what may go, and what fits.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax::{
    Memory,
    ids::{DedupKey, EntityKey, Scope},
    ports::{DedupStore, EntityStore, Loaded, Pending, PendingEntry, Saved, StoreCapabilities, StoreError},
};

use crate::lie::{Ask, Lie, Save, rejected};

rejected! {
    young_entries_among_the_pending_are_rejected:
        entities_break "entity store 10, pending", |memory| ListsYoung(memory);
    a_last_page_that_is_forgotten_is_rejected:
        entities_break "entity store 10, pending", |memory| FirstPageOnly(memory);
    entries_that_every_save_makes_younger_are_rejected:
        entities_break "entity store 10, pending", |memory, shared| Rejuvenates(memory, shared);
    a_purge_of_young_tombstones_is_rejected:
        entities_break "entity store 11, purge spares", |memory| PurgesYoung(memory);
    a_purge_of_unsent_messages_is_rejected:
        entities_break "entity store 11, purge spares", |memory, shared| PurgesUnsent(memory, shared);
    a_limit_below_the_truth_is_rejected:
        entities_break "entity store 12, limits before writing", |memory| SaysOtherwise(memory, 1 << 20);
    a_limit_above_the_truth_is_rejected:
        entities_break "entity store 12, limits before writing", |memory| SaysOtherwise(memory, 32 << 20);
    marks_of_what_is_too_large_are_rejected:
        entities_break "entity store 12, limits before writing", |memory| MarksTooLarge(memory);
}

#[derive(Debug)]
struct ListsYoung(Memory);

#[async_trait]
impl Lie for ListsYoung {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn pending(&self, scope: &Arc<Scope>, ask: Ask<'_>) -> Result<Vec<Pending>, StoreError> {
        self.0.pending(scope, Duration::ZERO, ask.after, ask.limit).await
    }
}

#[derive(Debug)]
struct FirstPageOnly(Memory);

#[async_trait]
impl Lie for FirstPageOnly {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn pending(&self, scope: &Arc<Scope>, ask: Ask<'_>) -> Result<Vec<Pending>, StoreError> {
        if ask.after.is_some() {
            return Ok(Vec::new());
        }
        self.0.pending(scope, ask.older_than, None, ask.limit).await
    }
}

type Saves = Arc<Mutex<HashMap<EntityKey, Instant>>>;
type Keys = Arc<Mutex<HashSet<EntityKey>>>;

/// One time for the entity: that of its last save.
#[derive(Debug)]
struct Rejuvenates(Memory, Saves);

#[async_trait]
impl Lie for Rejuvenates {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        self.1.lock().unwrap().insert(key.clone(), Instant::now());
        save.to(&self.0, key).await
    }
    async fn pending(&self, scope: &Arc<Scope>, ask: Ask<'_>) -> Result<Vec<Pending>, StoreError> {
        let all = self.0.pending(scope, Duration::ZERO, ask.after, usize::MAX).await?;
        let saved = self.1.lock().unwrap();
        let aged = all.into_iter().map(|Pending { key, entries }| {
            let age = saved.get(&key).map_or(Duration::ZERO, Instant::elapsed);
            let entries = entries.into_iter().map(|entry| PendingEntry { age, ..entry }).collect();
            (age, Pending { key, entries })
        });
        let old = aged.filter(|(age, _)| *age >= ask.older_than).map(|(_, pending)| pending);
        Ok(old.take(ask.limit).collect())
    }
}

#[derive(Debug)]
struct PurgesYoung(Memory);

#[async_trait]
impl Lie for PurgesYoung {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn purge(&self, scope: &Arc<Scope>, _older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(scope, Duration::ZERO, limit).await
    }
}

/// Takes "completed" for "over", though there is something to be sent.
#[derive(Debug)]
struct PurgesUnsent(Memory, Keys);

impl PurgesUnsent {
    async fn is_purged(&self, key: &EntityKey) -> bool {
        let unsent = self.0.load(key, &[]).await.unwrap().stored;
        let unsent = unsent.is_some_and(|s| s.entity.completed && !s.entity.outbox.is_empty());
        unsent && self.1.lock().unwrap().contains(key)
    }
}

#[async_trait]
impl Lie for PurgesUnsent {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key, ids).await?;
        let gone = self.is_purged(key).await;
        Ok(Loaded { stored: loaded.stored.filter(|_| !gone), ..loaded })
    }
    async fn version(&self, key: &EntityKey) -> Result<Option<hapax::entity::Version>, StoreError> {
        if self.is_purged(key).await { Ok(None) } else { self.0.version(key).await }
    }
    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        let waiting = self.0.pending(scope, older_than, None, limit).await?;
        self.1.lock().unwrap().extend(waiting.into_iter().map(|pending| pending.key));
        self.0.purge(scope, older_than, limit).await
    }
}

/// Claims a limit that is not its own.
#[derive(Debug)]
struct SaysOtherwise(Memory, usize);

#[async_trait]
impl Lie for SaysOtherwise {
    fn honest(&self) -> &Memory {
        &self.0
    }
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { entity_bytes_max: self.1, ..EntityStore::capabilities(&self.0) }
    }
}

/// Refuses what is too large when half of it is written.
#[derive(Debug)]
struct MarksTooLarge(Memory);

#[async_trait]
impl Lie for MarksTooLarge {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        if save.entity.size() > self.capabilities().entity_bytes_max {
            self.0.insert(save.processed).await?;
        }
        save.to(&self.0, key).await
    }
}
