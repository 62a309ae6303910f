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
    sqlite::{SqliteArguments, SqliteRow},
};
use tokio::sync::oneshot;

use super::{
    super::{
        group::Changed,
        rows::{DedupRow, as_i64, millis_of},
    },
    Sqlite,
    arguments::Bind,
    connection::Ran,
    error::malformed,
    read::{self, Load, Read},
    rows::{self, EntityRow, before, now},
    statements,
    write::{self, Change, Write},
};

/// Largest entity, in bytes: SQLite takes more, but each save writes the whole of it, so a runaway one must be noticed.
const ENTITY_BYTES_MAX: usize = 16 << 20;
/// Dedup entries that one `evict` may always remove: less than a millisecond of writing, which is what others wait behind
/// it.
const EVICT_MIN: u64 = 500;
/// So many for each entry that was inserted since the last: more go than come, however busy the store is.
const EVICTED_PER_ENTRY: u64 = 2;
/// And never more at a time: some ten milliseconds.
const EVICT_MAX: u64 = 10_000;

const SAVING: &str = "saving an entity";
const FINISHING: &str = "finishing messages";

#[async_trait]
impl EntityStore for Sqlite {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "sqlite",
            entity_bytes_max: ENTITY_BYTES_MAX,
            together: true,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        loop {
            let entity = self.scope(key.scope()).await?.map(|scope| (scope, key.key().clone()));
            let named = entity.is_some();
            let loaded = self.look_up("loading an entity", entity, ids).await?;
            // A name that was not there yet is an entity that was not; marks that are there by now are of a later moment.
            let marked = |known: &Known| ids.iter().any(|id| known.entry(id).is_some());
            if named || !loaded.known.as_ref().is_some_and(marked) {
                return Ok(loaded);
            }
            // A mark alone says nothing about the name: if it is still not there, this is one moment.
            if self.scope(key.scope()).await?.is_none() {
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
        let saved = self.change(SAVING, Some(row), false, DedupRow::all(processed)?, true).await?;
        Ok(match saved {
            Changed::At(version) => Saved::At(Version::number(version)),
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
        let mut arguments = SqliteArguments::default();
        arguments.bind(scope).bind(key.key().as_str());
        let rows = self.read_alone(OPERATION, statements::VERSION, arguments).await?;
        let version = rows.first().map(|row| row.try_get(0)).transpose();
        version
            .map(|version| version.map(Version::number))
            .map_err(|e| malformed(OPERATION, self.file(), "an entity's version").caused_by(e))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        let after = match after {
            Some(after) if after.scope() > scope => return Ok(Vec::new()),
            Some(after) if after.scope() == scope => after.key().as_str(),
            _ => "", // Before every key: none is empty.
        };
        let Some(id) = self.scope(scope).await? else { return Ok(Vec::new()) };
        let now = now();
        let saved_before = before(now, older_than);
        let mut found = Vec::new();
        let (mut after, mut skip) = (after.to_owned(), 0);
        // Rows with nothing to list are made up for by the next ones: to the sweeper, a short page is the last.
        while found.len() < limit {
            let missing = limit - found.len();
            let mut arguments = SqliteArguments::default();
            arguments.bind(id).bind(&*after).bind(saved_before).bind(as_i64(missing)).bind(as_i64(skip));
            let rows = self.read_alone("listing pending entities", statements::PENDING, arguments).await?;
            for row in &rows {
                skip += 1;
                let key = row.try_get(0).ok().and_then(|key: &str| key.parse::<SagaKey>().ok());
                let entries = row.try_get(1).ok().and_then(|json| rows::pending_entries(json, now, saved_before));
                if let Some(key) = &key {
                    (after, skip) = (key.as_str().to_owned(), 0);
                }
                match (key, entries) {
                    (Some(_), Some(entries)) if entries.is_empty() => {}
                    (Some(key), Some(entries)) => {
                        found.push(Pending { key: EntityKey::new(scope.clone(), key), entries });
                    }
                    (key, _) => self.log_damaged(scope, key.as_ref()),
                }
            }
            if rows.len() < missing {
                break;
            }
        }
        Ok(found)
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        let Some(id) = self.scope(scope).await? else { return Ok(0) };
        let mut arguments = SqliteArguments::default();
        arguments.bind(id).bind(before(now(), older_than)).bind(as_i64(limit));
        let ran = self.write_alone("purging tombstones", statements::PURGE, 4, arguments).await?;
        Ok(ran.changed.get(2).map_or(0, |purged| usize::try_from(*purged).unwrap_or(usize::MAX)))
    }
}

#[async_trait]
impl DedupStore for Sqlite {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "sqlite",
            keeps: None,
            alone: true,
            durable: true,
            consistent: true,
            reply_bytes_max: ENTITY_BYTES_MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let loaded = self.look_up("checking dedup entries", None, keys).await?;
        Ok(loaded.known.unwrap_or_default())
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

impl Sqlite {
    /// Removes what may go by all that was ever asked for.
    pub(super) async fn evict_all(&self, retention: Duration) -> Result<Evicted, StoreError> {
        const OPERATION: &str = "evicting dedup entries";
        let retention = millis_of(retention);
        let put_by = self.put_by(retention).await?;
        let mut arguments = SqliteArguments::default();
        arguments.bind(now()).bind(retention);
        let old = self.read_alone(OPERATION, statements::LATEST_IF_OLD, arguments).await?;
        let latest = old.first().map(|row| row.try_get::<Option<i64>, _>(0)).transpose();
        let latest = latest.map_err(|_| malformed(OPERATION, self.file(), "the time of a dedup entry"))?.flatten();

        let quota = (self.0.generations.since_evicted() * EVICTED_PER_ENTRY).clamp(EVICT_MIN, EVICT_MAX);
        let mut arguments = SqliteArguments::default();
        arguments.bind(now()).bind(retention).bind(i64::try_from(quota).unwrap_or(i64::MAX)).bind(latest);
        let ran = self.write_alone(OPERATION, &statements::EVICT, statements::EVICT_STATEMENTS, arguments).await?;
        self.0.generations.look();
        let entries = ran.changed.get(5).copied().unwrap_or_default();
        Ok(Evicted { entries: entries + put_by.entries, more: entries >= quota || put_by.more })
    }

    /// An entity that is left out so that others are listed.
    fn log_damaged(&self, scope: &Scope, key: Option<&SagaKey>) {
        tracing::error!(
            file = self.file(),
            endpoint = %scope.endpoint,
            saga = %scope.saga,
            key = key.map_or("unreadable", |key| key.as_str()),
            "the list of this entity's outbox entries cannot be read, so what it has to send is not swept: restore its \
             row of hapax_entity (key, pending) from a backup"
        );
    }

    async fn entity_row(
        &self,
        operation: &'static str,
        key: &EntityKey,
        expected: Option<i64>,
        entity: &Entity,
    ) -> Result<EntityRow, StoreError> {
        let bytes = entity.size();
        if bytes > ENTITY_BYTES_MAX {
            let why = format!("{key} has {bytes} bytes, more than the {ENTITY_BYTES_MAX} that the store takes");
            return Err(StoreError::new(ErrorKind::TooLarge, operation, why));
        }
        let pending = rows::pending(entity, now());
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
        let change = Change { operation, entity, gives_way, done, only_if_won, answer };
        self.write(operation, Write::Change(change), answered).await
    }

    pub(super) async fn write_alone(
        &self,
        operation: &'static str,
        sql: &'static str,
        statements: usize,
        arguments: SqliteArguments,
    ) -> Result<Ran, StoreError> {
        let (answer, answered) = oneshot::channel();
        let alone = write::Alone { operation, sql, statements, arguments, answer };
        self.write(operation, Write::Alone(alone), answered).await
    }

    async fn look_up(
        &self,
        operation: &'static str,
        entity: Option<(i64, SagaKey)>,
        ids: &[DedupKey],
    ) -> Result<Loaded, StoreError> {
        let (answer, answered) = oneshot::channel();
        let load = Load { operation, entity, ids: ids.to_vec(), answer };
        self.load(load, answered).await
    }

    pub(super) async fn read_alone(
        &self,
        operation: &'static str,
        sql: &'static str,
        arguments: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.read(operation, Read::Alone(read::Alone { operation, sql, arguments, answer }), answered).await
    }
}
