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
    postgres::{PgArguments, PgRow},
};
use tokio::sync::oneshot;

use super::{
    super::{
        group::{self, Changed},
        rows::{DedupRow, as_i64, millis_of},
    },
    Postgres,
    arguments::Bind,
    error::malformed,
    read::{Alone, Load, Read},
    rows::{self, EntityRow},
    upkeep,
    write::{Change, Write},
};

/// Largest entity, in bytes: PostgreSQL takes more, but each save writes the whole of it, so a runaway one must be noticed.
const ENTITY_BYTES_MAX: usize = 16 << 20;
/// Entities that are looked at in the first step of a sweep, in one of the next that has found nothing, and at most: where a
/// million wait, and none for long, 512 at a time took a seventh of the processors. As many rows may be locked for some 30 ms.
const PENDING_PAGE: usize = 1000;
const PENDING_PAGE_GROWS: usize = 2;
const PENDING_PAGE_MAX: usize = 4000;

const LOADING: &str = "loading an entity";
const SAVING: &str = "saving an entity";
const FINISHING: &str = "finishing messages";

#[async_trait]
impl EntityStore for Postgres {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "postgres",
            entity_bytes_max: ENTITY_BYTES_MAX,
            together: true,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let loaded = self.load_shown(key, ids).await?;
        let is_marked = loaded.known.as_ref().is_some_and(|known| ids.iter().any(|id| known.entry(id).is_some()));
        if is_marked || loaded.stored.as_ref().is_some_and(|stored| !stored.entity.outbox.is_empty()) {
            self.settle(LOADING).await?; // It may be acted on without another write.
        }
        Ok(loaded)
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
        let scope = self.scope_to_write(key).await?;
        let row = self.entity_row(SAVING, key, scope, expected, entity)?;
        let saved = self.change(SAVING, Some(row), false, DedupRow::all(processed)?, true).await?;
        Ok(match saved {
            Changed::At(version) => {
                self.0.clean_ups.saved(scope, key.key());
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
                Some(version) => {
                    Some(self.entity_row(FINISHING, key, self.scope_to_write(key).await?, Some(version), entity)?)
                }
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
            Changed::At(version) => Finished::Cleaned(Some(Version::number(version))),
            Changed::NoEntity => Finished::Cleaned(None),
            Changed::Lost => Finished::Left,
        }))
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        const OPERATION: &str = "reading a version";
        let Some(scope) = self.scope(key.scope()).await? else { return Ok(None) };
        let mut arguments = PgArguments::default();
        arguments.bind(scope).bind(key.key().as_str());
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
        // What the statement writes is a note of where nothing waits: whatever became of it, no entity and no entry was changed.
        let unlisted = |e: StoreError| match e.is_unknown_outcome() {
            true => {
                let why = format!("{}: the answer was lost, no entity was changed: list again", self.place());
                let error = StoreError::new(ErrorKind::Unavailable, OPERATION, why);
                match std::error::Error::source(&e) {
                    Some(cause) => error.caused_by(cause.to_string()),
                    None => error,
                }
            }
            false => e,
        };
        let (mut found, mut look) = (Vec::new(), PENDING_PAGE.min(2 * limit));
        // Rows with nothing to list are made up for by the next ones: to the sweeper, a short page is the last.
        while found.len() < limit {
            let wanted = limit - found.len();
            let mut arguments = PgArguments::default();
            arguments.bind(id).bind(after.as_str()).bind(as_i64(look)).bind(age).bind(as_i64(wanted));
            let rows = self.rare(OPERATION, &self.0.texts.pending_page, arguments).await.map_err(unlisted)?;
            let damaged = |e| malformed(OPERATION, self.place(), "an entity's key").caused_by(e);
            let mut listed = 0;
            for row in &rows {
                let Some(key) = row.try_get::<Option<&str>, _>(0).map_err(damaged)? else { break };
                after = key.to_owned();
                listed += 1;
                found.extend(self.pending_row(scope, row, age)?);
            }
            if listed == wanted {
                continue; // There may be more among those that were looked at.
            }
            let Some(row) = rows.last() else { break };
            let last: Option<&str> = row.try_get(3).map_err(damaged)?;
            match last {
                Some(last) if row.try_get::<i64, _>(4).map_err(damaged)? == as_i64(look) => after = last.to_owned(),
                _ => break,
            }
            look = (look * PENDING_PAGE_GROWS).min(PENDING_PAGE_MAX);
        }
        Ok(found)
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        const OPERATION: &str = "purging tombstones";
        let Some(id) = self.scope(scope).await? else { return Ok(0) };
        let (begin, names) = (self.0.begin.clone(), self.0.names.clone());
        let (age, limit) = (millis_of(older_than), as_i64(limit));
        self.rarely(OPERATION, move |connection| {
            let (begin, names) = (begin.clone(), names.clone());
            Box::pin(async move { upkeep::purge(connection, &begin, &names, id, age, limit).await })
        })
        .await
    }
}

#[async_trait]
impl DedupStore for Postgres {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "postgres",
            keeps: None,
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: ENTITY_BYTES_MAX,
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
        const OPERATION: &str = "inserting dedup entries";
        self.change(OPERATION, None, false, DedupRow::all(entries)?, false).await?;
        self.settle(OPERATION).await // Those that were known already were not written, nor waited for.
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.evict_all(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        Some(self)
    }
}

impl Postgres {
    /// What the server shows, which may be on no standby yet.
    async fn load_shown(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        loop {
            let scope = match self.known_scope(key.scope()) {
                None => Box::pin(self.scope(key.scope())).await?,
                known => known,
            };
            let named = scope.is_some();
            let entity = scope.map(|scope| (scope, key.key().clone()));
            let loaded = self.look_up(LOADING, entity, ids).await?;
            // A name that was not there yet is an entity that was not; marks that are there by now are of a later moment.
            let marked = |known: &Known| ids.iter().any(|id| known.entry(id).is_some());
            if named || !loaded.known.as_ref().is_some_and(marked) {
                return Ok(loaded);
            }
            // A mark alone says nothing about the name: if it is still not there, this is one moment.
            if Box::pin(self.scope(key.scope())).await?.is_none() {
                return Ok(loaded);
            }
        }
    }

    /// What waits in an entity; `None` where nothing does, or where it cannot be read: then others are listed all the same.
    fn pending_row(&self, scope: &Arc<Scope>, row: &PgRow, age: i64) -> Result<Option<Pending>, StoreError> {
        let damaged = |e| malformed("listing pending entities", self.place(), "a row").caused_by(e);
        let key: &str = row.try_get(0).map_err(damaged)?;
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

    fn entity_row(
        &self,
        operation: &'static str,
        key: &EntityKey,
        scope: i64,
        expected: Option<i64>,
        entity: &Entity,
    ) -> Result<EntityRow, StoreError> {
        let bytes = entity.size();
        if bytes > ENTITY_BYTES_MAX {
            let why = format!("{key} has {bytes} bytes, more than the {ENTITY_BYTES_MAX} that the store takes");
            return Err(StoreError::new(ErrorKind::TooLarge, operation, why));
        }
        let pending = rows::pending(entity);
        EntityRow::new(scope, key.key(), expected, entity, pending)
    }

    /// The change is queued before this returns, so that what waits for the answer holds nothing of it.
    fn change(
        &self,
        operation: &'static str,
        entity: Option<EntityRow>,
        gives_way: bool,
        done: Vec<DedupRow>,
        only_if_won: bool,
    ) -> impl Future<Output = Result<Changed, StoreError>> + Send {
        let (answer, answered) = oneshot::channel();
        let writer = group::writer_of(self.0.writers.len(), entity.as_ref(), &done);
        let change = Change { operation, entity, gives_way, done, only_if_won, answer };
        self.write(operation, writer, Write::Change(change), answered)
    }

    /// The request is queued before this returns.
    fn look_up(
        &self,
        operation: &'static str,
        entity: Option<(i64, SagaKey)>,
        ids: &[DedupKey],
    ) -> impl Future<Output = Result<Loaded, StoreError>> + Send {
        let (answer, answered) = oneshot::channel();
        let over = entity.as_ref().and_then(|(scope, key)| self.0.clean_ups.over(*scope, key));
        let load = Load { operation, entity, over, ids: ids.to_vec(), answer };
        self.read(operation, Read::Load(load), answered)
    }

    pub(super) async fn read_alone(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let alone = Alone { operation, sql: sql.clone(), arguments, answer };
        self.read(operation, Read::Alone(alone), answered).await
    }
}
