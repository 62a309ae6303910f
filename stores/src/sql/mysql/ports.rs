//! The entity store and the dedup store, on the queues.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, SagaKey, Scope},
    ports::{
        DedupCapabilities, DedupStore, EntityStore, ErrorKind, Evicted, Finished, Known, Loaded, LongMemory, Pending,
        Saved, StoreCapabilities, StoreError,
    },
};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};
use tokio::sync::oneshot;

use super::{
    super::{
        group::{self, Changed},
        rows::{DedupRow, as_i64, millis_of},
    },
    MySql,
    arguments::Bind,
    error::malformed,
    read::{Alone, Load, Read},
    rows::{self, Columns, EntityRow},
    start::ENTITY_BYTES_MAX,
    upkeep,
    write::{Change, Write},
};

/// Entities that are looked at in the first step of a sweep, in one of the next, and at most: where a million wait, and none
/// for long, it is the steps that cost.
const PENDING_PAGE: usize = 1000;
const PENDING_PAGE_GROWS: usize = 2;
const PENDING_PAGE_MAX: usize = 4000;

const LOADING: &str = "loading an entity";
const SAVING: &str = "saving an entity";
const FINISHING: &str = "finishing messages";

#[async_trait]
impl EntityStore for MySql {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "mysql",
            entity_bytes_max: self.0.entity_bytes_max,
            together: true,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        loop {
            let entity = self.scope(key.scope()).await?.map(|scope| (scope, key.key().clone()));
            let named = entity.is_some();
            let loaded = self.look_up(LOADING, entity, ids).await?;
            // A name that was not there yet is an entity that was not; marks that are there by now are of a later moment.
            let marked = |known: &Known| ids.iter().any(|id| known.entry(id).is_some());
            let is_marked = loaded.known.as_ref().is_some_and(marked);
            // A mark alone says nothing about the name: if it is still not there, this is one moment.
            if named || !is_marked || self.scope(key.scope()).await?.is_none() {
                if is_marked || !self.0.confirmed.holds(key, loaded.stored.as_ref()) {
                    self.settle(LOADING).await?;
                }
                return Ok(loaded);
            }
        }
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let expected = match expected {
            Expected::Absent => None,
            Expected::Version(version) => match version.as_number() {
                Some(number) => Some(number),
                None => return Ok(Saved::Conflict), // Never one of ours.
            },
        };
        let row = self.entity_row(SAVING, key, expected, entity).await?;
        let scope = row.scope;
        let saved = self.change(SAVING, Some(row), false, DedupRow::all(processed)?, true).await?;
        Ok(match saved {
            Changed::At(version) => {
                self.0.clean_ups.saved(scope, key.key());
                self.0.confirmed.add(key, entity, version);
                Saved::At(Version::number(version))
            }
            Changed::Lost | Changed::NoEntity => Saved::Conflict,
        })
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let row = match clean_up {
            Some((version, entity)) => match version.as_number() {
                Some(version) => Some(self.entity_row(FINISHING, key, Some(version), entity).await?),
                None => None,
            },
            None => None,
        };
        if let Some(row) = &row
            && self.0.clean_ups.takes(row, done.len())
        {
            let since = self.0.clean_ups.since();
            self.change(FINISHING, None, false, DedupRow::all(done)?, false).await?;
            self.0.clean_ups.add(since, row.clone());
            return Ok(Some(Finished::Later));
        }
        let finished = self.change(FINISHING, row, clean_up.is_some(), DedupRow::all(done)?, false).await?;
        Ok(Some(match finished {
            Changed::At(version) => {
                if let Some((_, entity)) = clean_up {
                    self.0.confirmed.add(key, entity, version);
                }
                Finished::Cleaned(Some(Version::number(version)))
            }
            Changed::NoEntity => Finished::Cleaned(None),
            Changed::Lost => Finished::Left,
        }))
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        const OPERATION: &str = "reading a version";
        let Some(scope) = self.scope(key.scope()).await? else { return Ok(None) };
        let mut arguments = MySqlArguments::default();
        arguments.bind(scope).bind(key.key().as_str().as_bytes());
        let rows = self.read_alone(OPERATION, &self.0.texts.version, arguments).await?;
        self.settle(OPERATION).await?; // It is asked for where a message's fate hangs on it.
        let version = rows.first().map(|row| row.try_get(0)).transpose();
        version
            .map(|version| version.map(Version::number))
            .map_err(|e| malformed(OPERATION, self.place(), "an entity's version").caused_by(e))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        const OPERATION: &str = "listing pending entities";
        let mut after = match after {
            Some(after) if after.scope() > scope => return Ok(Vec::new()),
            Some(after) if after.scope() == scope => after.key().as_str().to_owned(),
            _ => String::new(), // Before every key: none is empty.
        };
        let Some(id) = self.scope(scope).await? else { return Ok(Vec::new()) };
        let age = millis_of(older_than);
        let (mut found, mut look) = (Vec::new(), PENDING_PAGE.min(2 * limit));
        // Rows with nothing to list are made up for by the next ones: to the sweeper, a short page is the last.
        while found.len() < limit {
            let mut arguments = MySqlArguments::default();
            arguments.bind(age).bind(age).bind(id).bind(after.as_bytes()).bind(as_i64(look));
            let rows = self.read_alone(OPERATION, &self.0.texts.pending_page, arguments).await?;
            self.unwatch(OPERATION, id, &rows, age).await?;
            for row in &rows {
                let damaged = |e| malformed(OPERATION, self.place(), "an entity's key").caused_by(e);
                after = rows::text(row, 0).map_err(damaged)?.to_owned();
                if found.len() < limit
                    && let Some(pending) = self.pending_row(scope, row, age)?
                {
                    found.push(pending);
                }
                if found.len() == limit {
                    break;
                }
            }
            if rows.len() < look {
                break;
            }
            look = (look * PENDING_PAGE_GROWS).min(PENDING_PAGE_MAX);
        }
        Ok(found)
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        const OPERATION: &str = "purging tombstones";
        let Some(id) = self.scope(scope).await? else { return Ok(0) };
        let (age, mut purged) = (millis_of(older_than), 0);
        while purged < limit {
            let page = as_i64(limit - purged).min(upkeep::PAGE);
            let names = self.0.names.clone();
            let work = self.rarely(OPERATION, move |link| {
                let names = names.clone();
                Box::pin(async move { upkeep::purge(link, &names, id, age, page).await })
            });
            let gone = work.await?;
            purged += gone;
            if gone == 0 {
                break;
            }
        }
        Ok(purged)
    }
}

#[async_trait]
impl DedupStore for MySql {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "mysql",
            keeps: None,
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: self.0.entity_bytes_max,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const OPERATION: &str = "checking dedup entries";
        let known = self.look_up(OPERATION, None, keys).await?.known.unwrap_or_default();
        if keys.iter().any(|key| known.entry(key).is_some()) {
            self.settle(OPERATION).await?;
        }
        Ok(known)
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.change("inserting dedup entries", None, false, DedupRow::all(entries)?, false).await?;
        Ok(())
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.evict_all(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        Some(self)
    }
}

impl MySql {
    /// What waits in an entity; `None` where nothing does, or where it cannot be read: then others are listed all the same.
    fn pending_row(&self, scope: &Arc<Scope>, row: &MySqlRow, age: i64) -> Result<Option<Pending>, StoreError> {
        let damaged = |e| malformed("listing pending entities", self.place(), "a row").caused_by(e);
        let key = rows::text(row, 0).map_err(damaged)?;
        let Some(waiting) = row.try_get::<Option<&[u8]>, _>(1).map_err(damaged)? else { return Ok(None) };
        let now = row.try_get(2).map_err(damaged)?;
        match (key.parse::<SagaKey>().ok(), rows::pending_entries(waiting, now, age)) {
            (Some(_), Some(entries)) if entries.is_empty() => Ok(None),
            (Some(key), Some(entries)) => Ok(Some(Pending { key: EntityKey::new(scope.clone(), key), entries })),
            _ => {
                tracing::error!(
                    place = self.place(),
                    endpoint = %scope.endpoint,
                    saga = %scope.saga,
                    key,
                    "the list of this entity's outbox entries cannot be read, so what it has to send is not swept: restore \
                     its row of `entity` (key, pending) from a backup"
                );
                Ok(None)
            }
        }
    }

    async fn entity_row(
        &self,
        operation: &'static str,
        key: &EntityKey,
        expected: Option<i64>,
        entity: &Entity,
    ) -> Result<EntityRow, StoreError> {
        let (bytes, most) = (entity.size(), self.0.entity_bytes_max);
        if bytes > most {
            let remedy = match most < ENTITY_BYTES_MAX {
                true => ": raise the server's `max_allowed_packet`, and open the store again",
                false => "",
            };
            let why = format!("{key} has {bytes} bytes, more than the {most} that the store takes{remedy}");
            return Err(StoreError::new(ErrorKind::TooLarge, operation, why));
        }
        let pending = rows::pending(entity);
        EntityRow::new(self.scope_to_write(key.scope()).await?, key.key(), expected, entity, pending)
    }

    async fn change(
        &self,
        operation: &'static str,
        entity: Option<EntityRow>,
        gives_way: bool,
        done: Vec<DedupRow>,
        only_if_won: bool,
    ) -> Result<Changed, StoreError> {
        let (answer, answered) = oneshot::channel();
        let writer = group::writer_of(self.0.writers.len(), entity.as_ref(), &done);
        let change = Change { operation, entity, gives_way, done, only_if_won, answer };
        self.write(operation, writer, Write::Change(change), answered).await
    }

    /// Takes entities with nothing in their outboxes, which have not been changed for long, from the sweeper's list.
    async fn unwatch(
        &self,
        operation: &'static str,
        scope: i64,
        page: &[MySqlRow],
        age: i64,
    ) -> Result<(), StoreError> {
        let damaged = |e| malformed(operation, self.place(), "a row").caused_by(e);
        let mut quiet = Vec::new();
        for row in page {
            if row.number(3).map_err(damaged)? != 0 {
                quiet.push(row.bytes(0).map_err(damaged)?.unwrap_or_default().to_vec());
            }
        }
        if quiet.is_empty() {
            return Ok(());
        }
        let names = self.0.names.clone();
        self.rarely(operation, move |link| {
            let (names, quiet) = (names.clone(), quiet.clone());
            Box::pin(async move { upkeep::unwatch(link, &names, scope, &quiet, age).await })
        })
        .await
    }

    async fn look_up(
        &self,
        operation: &'static str,
        entity: Option<(i64, SagaKey)>,
        ids: &[DedupKey],
    ) -> Result<Loaded, StoreError> {
        let (answer, answered) = oneshot::channel();
        let over = entity.as_ref().and_then(|(scope, key)| self.0.clean_ups.over(*scope, key));
        let load = Load { operation, entity, over, ids: ids.to_vec(), answer };
        self.read(operation, Read::Load(load), answered).await
    }

    pub(super) async fn read_alone(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: MySqlArguments,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let alone = Alone { operation, sql: sql.clone(), arguments, answer };
        self.read(operation, Read::Alone(alone), answered).await
    }
}
