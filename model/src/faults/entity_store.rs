//! An entity store that fails.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Scope},
    ports::{EntityStore, Finished, Loaded, Pending, Saved, StoreCapabilities, StoreError, Stored},
};

use super::{Faulty, refused, unknown};
use crate::{Call, Fault, Seen, Side, World};

/// As a write, and a win that is answered as a loss.
const SAVE: &[Fault] =
    &[Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::Late, Fault::OwnConflict];
/// The same, and a clean-up that is left for later.
const FINISH: &[Fault] = &[
    Fault::Refused,
    Fault::UnknownApplied,
    Fault::UnknownNotApplied,
    Fault::Late,
    Fault::OwnConflict,
    Fault::CleanUpLeft,
];

#[async_trait]
impl<P: EntityStore + 'static> EntityStore for Faulty<P> {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.world.point(Call::Load, Side::Before).await;
        let fate = self.world.fate(Call::Load, &[Fault::Refused, Fault::Stale]).await;
        let loaded = match fate {
            Some(Fault::Refused) => return Err(refused("loading an entity")),
            Some(Fault::Stale) => self.load_stale(key, ids).await?,
            _ => self.inner.load(key, ids).await?,
        };
        if let Some(stored) = &loaded.stored {
            self.world.saw(key, &stored.version, &stored.entity);
        }
        self.see_what_it_knows_of(key, ids, &loaded).await?;
        self.world.silence(Call::Load, fate).await;
        self.world.point(Call::Load, Side::After).await;
        Ok(loaded)
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        const SAVING: &str = "saving an entity";
        self.world.point(Call::Save, Side::Before).await;
        let fate = self.world.fate(Call::Save, SAVE).await;
        let saved = match fate {
            Some(Fault::Refused) => return Err(refused(SAVING)),
            Some(Fault::UnknownNotApplied) => return Err(unknown(SAVING)),
            Some(Fault::Late) => {
                let (inner, world, key) = (self.inner.clone(), self.world.clone(), key.clone());
                let (expected, entity, processed) = (expected.clone(), entity.clone(), processed.to_vec());
                self.world.delay(Box::pin(async move {
                    drop(save(&*inner, &world, &key, &expected, &entity, &processed).await);
                }));
                return Err(unknown(SAVING));
            }
            _ => save(&*self.inner, &self.world, key, expected, entity, processed).await?,
        };
        self.world.silence(Call::Save, fate).await;
        self.world.point(Call::Save, Side::After).await;
        match fate {
            Some(Fault::UnknownApplied) => Err(unknown(SAVING)),
            Some(Fault::OwnConflict) => Ok(Saved::Conflict),
            _ => Ok(saved),
        }
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        const FINISHING: &str = "finishing outbox entries";
        self.world.point(Call::Finish, Side::Before).await;
        let possible = if clean_up.is_some() && self.capabilities().together { FINISH } else { SAVE };
        let fate = self.world.fate(Call::Finish, possible).await;
        let finished = match fate {
            Some(Fault::Refused) => return Err(refused(FINISHING)),
            Some(Fault::UnknownNotApplied) => return Err(unknown(FINISHING)),
            Some(Fault::Late) => {
                let (inner, world, key, done) = (self.inner.clone(), self.world.clone(), key.clone(), done.to_vec());
                let clean_up = clean_up.map(|(version, entity)| (version.clone(), entity.clone()));
                self.world.delay(Box::pin(async move {
                    let clean_up = clean_up.as_ref().map(|(version, entity)| (version, entity));
                    drop(finish(&*inner, &world, &key, &done, clean_up).await);
                }));
                return Err(unknown(FINISHING));
            }
            Some(Fault::CleanUpLeft) => {
                finish(&*self.inner, &self.world, key, done, None).await?.map(|_| Finished::Later)
            }
            _ => finish(&*self.inner, &self.world, key, done, clean_up).await?,
        };
        self.world.silence(Call::Finish, fate).await;
        self.world.point(Call::Finish, Side::After).await;
        match (fate, &finished) {
            (Some(Fault::UnknownApplied), _) => Err(unknown(FINISHING)),
            (Some(Fault::OwnConflict), Some(Finished::Cleaned(Some(_)))) => Ok(Some(Finished::Left)),
            _ => Ok(finished),
        }
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.world.point(Call::Version, Side::Before).await;
        let fate = self.world.fate(Call::Version, &[Fault::Refused]).await;
        if fate == Some(Fault::Refused) {
            return Err(refused("reading a version"));
        }
        let version = self.inner.version(key).await?;
        self.world.silence(Call::Version, fate).await;
        self.world.point(Call::Version, Side::After).await;
        Ok(version)
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.world.point(Call::Pending, Side::Before).await;
        let fate = self.world.fate(Call::Pending, &[Fault::Refused]).await;
        if fate == Some(Fault::Refused) {
            return Err(refused("listing pending entities"));
        }
        let pending = self.inner.pending(scope, older_than, after, limit).await?;
        self.world.point(Call::Pending, Side::After).await;
        Ok(pending)
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.world.point(Call::Purge, Side::Before).await;
        let purged = self.inner.purge(scope, older_than, limit).await?;
        self.world.point(Call::Purge, Side::After).await;
        Ok(purged)
    }
}

impl<P: EntityStore> Faulty<P> {
    /// Where the entity is read first and then what is known, a write may come in between whose answer nobody has heard, for example
    /// since its caller was dropped: what is known is then of a state that this load does not show. It is stored, so it can
    /// be seen; what is known of no state at all is found out all the same.
    async fn see_what_it_knows_of(&self, key: &EntityKey, ids: &[DedupKey], loaded: &Loaded) -> Result<(), StoreError> {
        let Some(known) = &loaded.known else { return Ok(()) };
        let entries: Vec<&DedupEntry> = ids.iter().filter_map(|id| known.entry(id)).collect();
        let heard = self.world.ghost(|ghost| Ok(ghost.exact || entries.iter().all(|entry| ghost.has_mark(entry))));
        if heard != Some(false) {
            return Ok(());
        }
        if let Some(stored) = self.inner.load(key, &[]).await?.stored {
            self.world.saw(key, &stored.version, &stored.entity);
        }
        Ok(())
    }

    /// Some older version of the entity, with what is known now: as a replica may answer.
    async fn load_stale(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let older = self.world.older(key);
        let entries = older.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let ids: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        let loaded = self.inner.load(key, &ids).await?;
        if let Some(fresh) = &loaded.stored {
            self.world.saw(key, &fresh.version, &fresh.entity); // What is known may speak of it.
        }
        Ok(Loaded { stored: older, known: loaded.known })
    }
}

impl World {
    /// A state of an entity that has been seen, or that it was not there yet.
    fn older(&self, key: &EntityKey) -> Option<Stored> {
        let states = self.ghost(|ghost| Ok(ghost.states(key))).unwrap_or_default();
        let index = self.below(states + 1);
        self.ghost(|ghost| Ok(ghost.state(key, index))).flatten()
    }
}

async fn save<P: EntityStore + ?Sized>(
    store: &P,
    world: &World,
    key: &EntityKey,
    expected: &Expected,
    entity: &Entity,
    processed: &[DedupEntry],
) -> Result<Saved, StoreError> {
    let saved = store.save(key, expected, entity, processed).await?;
    match &saved {
        Saved::At(version) => {
            world.marked(processed);
            world.saw(key, version, entity);
        }
        Saved::Conflict => world.count(Seen::Conflict),
    }
    Ok(saved)
}

async fn finish<P: EntityStore + ?Sized>(
    store: &P,
    world: &World,
    key: &EntityKey,
    done: &[DedupEntry],
    clean_up: Option<(&Version, &Entity)>,
) -> Result<Option<Finished>, StoreError> {
    let finished = store.finish(key, done, clean_up).await?;
    if finished.is_some() {
        world.marked(done);
    }
    if let (Some(Finished::Cleaned(Some(version))), Some((_, entity))) = (&finished, clean_up) {
        world.saw(key, version, entity);
    }
    Ok(finished)
}
