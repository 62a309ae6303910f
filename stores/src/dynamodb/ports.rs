//! The entity store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Scope},
    ports::{EntityStore, Finished, Loaded, Pending, Saved, StoreCapabilities, StoreError},
};

use super::{
    DynamoDb, NAME,
    call::Doing,
    dedup,
    entity::{self, Before, ENTITY_BYTES_MAX, version_of},
    keys::{Place, VERSION},
    write::ACTIONS_MAX,
};

/// Dedup entries that fit into one transaction with an entity in a single item. With as many chunks as an entity may have, written and
/// removed, some 80 fit: then a pass is halved.
const PROCESSED_MAX: usize = ACTIONS_MAX - 1;

#[async_trait]
impl EntityStore for DynamoDb {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: NAME,
            entity_bytes_max: ENTITY_BYTES_MAX,
            together: true,
            processed_max: PROCESSED_MAX,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let doing = Doing::reading("loading an entity");
        let stored = self.stored(doing, key).await?;
        // Only now: a message that the entity no longer tells of is in the dedup entries since before.
        let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let known = self.known(doing, ids.iter().copied().chain(entries)).await?;
        Ok(Loaded { stored, known: Some(known) })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let doing = Doing::writing("saving an entity");
        let before = match expected {
            Expected::Absent => None,
            Expected::Version(version) => match Before::of(version) {
                Some(before) => Some(before),
                None => return Ok(Saved::Conflict), // Never one of ours.
            },
        };
        dedup::check_replies(doing, entity)?;
        let written = entity::write(doing, key, before, entity, false, self.0.clock.now())?;
        self.save_with(doing, written, self.marks(doing, processed)?).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let doing = Doing::writing("finishing messages");
        let marks = self.marks(doing, done)?;
        let Some((version, entity)) = clean_up else {
            self.put_marks(doing, marks).await?;
            return Ok(Some(Finished::Cleaned(None)));
        };
        let Some(before) = Before::of(version) else {
            self.put_marks(doing, marks).await?;
            return Ok(Some(Finished::Left)); // Never one of ours.
        };
        let written = entity::write(doing, key, Some(before), entity, true, self.0.clock.now())?;
        if !Self::fits(&written, &marks) {
            self.put_marks(doing, marks).await?;
            return Ok(Some(match self.finish_with(doing, written, Vec::new()).await {
                Ok(Saved::At(version)) => Finished::Cleaned(Some(version)),
                Ok(Saved::Conflict) => Finished::Left,
                Err(e) => return Err(after_marks(doing, e)),
            }));
        }
        Ok(Some(match self.finish_with(doing, written, marks.clone()).await? {
            Saved::At(version) => Finished::Cleaned(Some(version)),
            Saved::Conflict => {
                self.put_marks(doing, marks).await?;
                Finished::Left
            }
        }))
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        let doing = Doing::reading("reading a version");
        let place = Place::entity(key);
        let Some(item) = self.get(doing, &place, Some(VERSION)).await? else { return Ok(None) };
        let version = version_of(&item).ok_or_else(|| entity::damaged(doing, &place))?;
        Ok(Some(Version::text(version)))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.list_pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.purge_tombstones(scope, older_than, limit).await
    }
}

/// An error of a clean-up whose dedup entries are in: something was written.
fn after_marks(doing: Doing, error: StoreError) -> StoreError {
    if error.is_unknown_outcome() {
        return error;
    }
    doing
        .error(hapax_core::ports::ErrorKind::UnknownOutcome, "the dedup entries are written, the clean-up is not")
        .caused_by(error)
}
