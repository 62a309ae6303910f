//! Lies about dedup entries that go with the entity.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Version},
    ids::{DedupKey, EntityKey},
    ports::{DedupStore, EntityStore, Finished, Known, Loaded, Saved, StoreCapabilities, StoreError},
};
use tokio::{sync::Mutex, task::yield_now};

use crate::lie::{Lie, Save, entities_keep_all, rejected};

rejected! {
    marks_read_before_the_entity_are_rejected:
        entities_break "entity store 5, one snapshot", |memory| MarksFirst(memory);
    a_load_that_locks_is_rejected:
        entities_break "entity store 5, one snapshot", |memory, shared| LockingLoad(memory, shared);
    marks_of_a_save_that_lost_are_rejected:
        entities_break "entity store 6, only with the winner", |memory| MarksOfLosers(memory);
    marks_that_are_dropped_without_a_word_are_rejected:
        entities_break "entity store 6, only with the winner", |memory| DropsProcessed(memory);
    marks_of_a_winner_that_are_dropped_are_rejected:
        entities_break "entity store 5, one snapshot", |memory| ForgetsProcessed(memory);
    a_finish_without_marks_when_the_clean_up_loses_is_rejected:
        entities_break "entity store 7, finish marks first", |memory| MarksOnlyIfCleaned(memory);
    a_load_that_does_not_answer_for_the_entries_is_rejected:
        entities_break "entity store 14, complete", |memory| AnswersForIdsOnly(memory);
    a_load_without_marks_of_other_attempts_is_rejected:
        entities_break "entity store 14, complete", |memory| OmitsOtherAttempts(memory);
}

/// Load first, check after the load has returned: two reads, in the right order, are as good as a snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_read_after_the_entity_are_accepted() {
    let memory = Memory::new();
    entities_keep_all(move || MarksAfter(memory.clone())).await;
}

/// Others do something while a server is being asked.
async fn round_trip() {
    const TURNS: usize = 10;
    for _ in 0..TURNS {
        yield_now().await;
    }
}

async fn asked(memory: &Memory, keys: &[DedupKey], stored: &Loaded) -> Result<Known, StoreError> {
    let entries = stored.stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
    memory.contains(&keys.iter().copied().chain(entries).collect::<Vec<_>>()).await
}

#[derive(Debug)]
struct MarksAfter(Memory);

#[async_trait]
impl Lie for MarksAfter {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key, &[]).await?;
        round_trip().await;
        Ok(Loaded { known: Some(asked(&self.0, ids, &loaded).await?), ..loaded })
    }
}

/// Two statements in the wrong order (S01).
#[derive(Debug)]
struct MarksFirst(Memory);

#[async_trait]
impl Lie for MarksFirst {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let early = self.0.load(key, &[]).await?;
        let known = asked(&self.0, ids, &early).await?;
        round_trip().await;
        Ok(Loaded { known: Some(known), ..self.0.load(key, &[]).await? })
    }
}

type Lock = Arc<Mutex<()>>;

/// One statement that locks the entity: it waits for the writer and then reads the newest entity, but has joined the
/// marks of the snapshot from before it waited.
#[derive(Debug)]
struct LockingLoad(Memory, Lock);

#[async_trait]
impl Lie for LockingLoad {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let snapshot = self.0.load(key, ids).await?;
        let _row = self.1.lock().await;
        Ok(Loaded { known: snapshot.known, ..self.0.load(key, ids).await? })
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        let _row = self.1.lock().await;
        round_trip().await;
        save.to(&self.0, key).await
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let _row = self.1.lock().await;
        round_trip().await;
        self.0.finish(key, done, clean_up).await
    }
}

/// The rows of `processed` are written before it is known whether the save wins.
#[derive(Debug)]
struct MarksOfLosers(Memory);

#[async_trait]
impl Lie for MarksOfLosers {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        self.0.insert(save.processed).await?;
        save.to(&self.0, key).await
    }
}

/// Keeps entities only, and takes `processed` all the same.
#[derive(Debug)]
struct DropsProcessed(Memory);

#[async_trait]
impl Lie for DropsProcessed {
    fn honest(&self) -> &Memory {
        &self.0
    }
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { together: false, ..EntityStore::capabilities(&self.0) }
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        Ok(Loaded { known: None, ..self.0.load(key, ids).await? })
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        Save { processed: &[], ..save }.to(&self.0, key).await
    }
    async fn finish(
        &self,
        _key: &EntityKey,
        _done: &[DedupEntry],
        _clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        Ok(None)
    }
}

/// Keeps both, and does not write `processed`.
#[derive(Debug)]
struct ForgetsProcessed(Memory);

#[async_trait]
impl Lie for ForgetsProcessed {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn save(&self, key: &EntityKey, save: Save<'_>) -> Result<Saved, StoreError> {
        Save { processed: &[], ..save }.to(&self.0, key).await
    }
}

/// Marks and clean-up in one transaction, rolled back when the clean-up loses.
#[derive(Debug)]
struct MarksOnlyIfCleaned(Memory);

#[async_trait]
impl Lie for MarksOnlyIfCleaned {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        if let Some((version, _)) = clean_up
            && self.0.version(key).await?.as_ref() != Some(version)
        {
            return Ok(Some(Finished::Left));
        }
        self.0.finish(key, done, clean_up).await
    }
}

#[derive(Debug)]
struct AnswersForIdsOnly(Memory);

#[async_trait]
impl Lie for AnswersForIdsOnly {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key, ids).await?;
        let known = loaded.known.unwrap();
        let asked = ids.iter().filter_map(|id| known.entry(id).cloned());
        Ok(Loaded { known: Some(Known::new(asked.collect())), ..loaded })
    }
}

/// Joins entries and marks by attempt, so that a mark of another attempt is not found.
#[derive(Debug)]
struct OmitsOtherAttempts(Memory);

#[async_trait]
impl Lie for OmitsOtherAttempts {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key, ids).await?;
        let known = loaded.known.unwrap();
        let asked = ids.iter().filter_map(|id| known.entry(id));
        let entries = loaded.stored.iter().flat_map(|stored| &stored.entity.outbox);
        let same = entries.filter_map(|entry| known.entry(&entry.key).filter(|mark| mark.attempt == entry.attempt));
        let known = Known::new(asked.chain(same).cloned().collect());
        Ok(Loaded { known: Some(known), ..loaded })
    }
}
