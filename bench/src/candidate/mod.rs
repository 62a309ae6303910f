//! hapax itself: an endpoint on the store in question, and what the store holds afterwards.

pub(crate) mod endpoint;
pub(crate) mod entries;
pub(crate) mod queue;
pub(crate) mod schedule;

use std::{path::Path, sync::Arc};

use endpoint::{Commits, ENDPOINT, fed};
use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Memory, Saga, Sqlite,
    codec::{Codec, FRAME_BYTES},
    entity::{Entity, Expected},
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{EntityStore, Saved},
    stores::sqlite::Synchronous,
};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    AnyError,
    backlog::Backlog,
    books::Books,
    run::{Run, Shape},
    workload::{Account, key_of},
};

/// More accounts than this are saved beforehand instead of being sent a message each, to save time.
pub(crate) const WARMED_BY_MESSAGES_MAX: u32 = 10_000;

/// hapax on the reference store.
pub(crate) async fn memory(shape: &Shape) -> Result<Run, AnyError> {
    let store = Memory::new();
    let done = fed(store.clone(), Box::new(|| None), shape, true).await?;
    in_books(&store, done)
}

/// `done` with what the store knows of it.
pub(crate) fn in_books(store: &Memory, done: Run) -> Result<Run, AnyError> {
    let (mut effects, mut versions, mut outbox_left) = (0, 0, 0);
    for (_, entity) in store.entities() {
        effects += effects_of(&entity.state)?;
        versions += entity.commits;
        outbox_left += entity.outbox.len() as u64;
    }
    let (versions, dedup_entries) = (Some(versions), Some(store.dedup_entries() as u64));
    Ok(Run { sample: done.sample, books: Books { effects, versions, dedup_entries, outbox_left, ..done.books } })
}

/// hapax on the SQLite file at `path`, which is what [`prepare`] made for `shape`, or not there.
pub(crate) async fn sqlite(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let store = Sqlite::open(path).await?;
    let counted = store.clone();
    let commits: Commits = Box::new(move || Some(counted.commits()));
    let done = if shape.queued > 0 {
        queue::run(&store, commits, shape).await?
    } else {
        let many = shape.entities > WARMED_BY_MESSAGES_MAX;
        if many {
            preload(&store, shape.entities).await?;
        }
        fed(store.clone(), commits, shape, !many).await?
    };
    store.close().await;
    let books = audit(path, shape, done.books).await?;
    Ok(Run { sample: done.sample, books })
}

/// Makes the file that a run of `shape` needs at `path`. The disk is not waited for at every commit: nobody measures.
pub(crate) async fn prepare(path: &Path, shape: &Shape) -> Result<(), AnyError> {
    let options = Sqlite::options(path).create_if_missing(true).migrate(true);
    let store = options.synchronous(Synchronous::Normal).open().await?;
    if shape.entries > 0 {
        entries::insert(&store, shape).await?;
    }
    if shape.queued > 0 {
        preload(&store, shape.entities).await?;
        queue::fill(&store, shape).await?;
    }
    store.close().await;
    write_back(path).await
}

/// Whose connection ends last decides whether the log is written back; a copy needs it to be.
async fn write_back(path: &Path) -> Result<(), AnyError> {
    let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Of a saga of the endpoint.
fn scope() -> Result<Arc<Scope>, AnyError> {
    Ok(Arc::new(Scope { endpoint: EndpointName::parse(ENDPOINT)?, saga: SagaName::parse(Account::NAME)? }))
}

/// Saves all accounts through the store's port, many at a time.
pub(crate) async fn preload(store: &impl EntityStore, entities: u32) -> Result<(), AnyError> {
    const AT_A_TIME: usize = 1024;
    let scope = scope()?;
    let mut state = vec![Codec::Json.id(), Account::SCHEMA];
    serde_json::to_writer(&mut state, &Account::usual())?;
    let entity = Entity { state: state.into(), ..Entity::default() };
    let (scope, entity) = (&scope, &entity);
    let saves = (0..entities).map(|number| async move {
        let key = EntityKey::new(scope.clone(), SagaKey::parse(key_of(number))?);
        match store.save(&key, &Expected::Absent, entity, &[]).await? {
            Saved::At(_) => Ok::<_, AnyError>(()),
            Saved::Conflict => Err("an account was there already".into()),
        }
    });
    stream::iter(saves).buffer_unordered(AT_A_TIME).try_collect().await
}

/// Reads what an endpoint has left in the file itself, not through the store.
async fn audit(path: &Path, shape: &Shape, books: Books) -> Result<Books, AnyError> {
    let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let mut effects = 0;
    {
        let mut states = sqlx::query("SELECT state FROM hapax_entity").fetch(&mut connection);
        while let Some(row) = states.try_next().await? {
            effects += effects_of(row.try_get(0)?)?;
        }
    }
    let counts = "SELECT (SELECT count(*) FROM hapax_dedup), (SELECT count(*) FROM hapax_entity WHERE pending_since IS NOT NULL)";
    let row = sqlx::query(counts).fetch_one(&mut connection).await?;
    let count = |column: usize| -> Result<u64, AnyError> { Ok(row.try_get::<i64, _>(column)?.try_into()?) };
    // One that was there beforehand and is gone is as bad as one that is missing.
    let (dedup_entries, outbox_left) = (Some(count(0)?.saturating_sub(shape.entries)), count(1)?);
    let distinct = if shape.queued > 0 {
        let (left, pending) = queue::left(&mut connection).await?;
        if pending != shape.pending {
            return Err(format!("of {} messages that are not due, {pending} are left", shape.pending).into());
        }
        Backlog::of(shape).handled(left)?
    } else {
        books.distinct
    };
    connection.close().await?;
    Ok(Books { distinct, effects, dedup_entries, outbox_left, ..books })
}

pub(crate) fn effects_of(state: &[u8]) -> Result<u64, AnyError> {
    let json = state.get(FRAME_BYTES..).ok_or("a state without a frame")?;
    Ok(serde_json::from_slice::<Account>(json)?.effects)
}
