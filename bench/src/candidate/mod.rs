//! hapax itself: an endpoint on the store in question, and what the store holds afterwards.

mod endpoint;

use std::{path::Path, sync::Arc};

use endpoint::{ENDPOINT, run};
use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Memory, Saga, Sqlite,
    codec::{Codec, FRAME_BYTES},
    entity::{Entity, Expected},
    ids::{EndpointName, EntityKey, SagaKey, SagaName, Scope},
    ports::{EntityStore, Saved},
};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    AnyError,
    books::Books,
    run::{Run, Shape},
    workload::{Account, key_of},
};

/// More accounts than this are saved beforehand instead of being sent a message each, to save time.
const WARMED_BY_MESSAGES_MAX: u32 = 10_000;

/// hapax on the reference store.
pub(crate) async fn memory(shape: &Shape) -> Result<Run, AnyError> {
    let store = Memory::new();
    let done = run(store.clone(), Box::new(|| None), shape, true).await?;
    let (mut effects, mut outbox_left) = (0, 0);
    for (_, entity) in store.entities() {
        effects += effects_of(&entity.state)?;
        outbox_left += entity.outbox.len() as u64;
    }
    let dedup_entries = Some(store.dedup_entries() as u64);
    Ok(Run { sample: done.sample, books: Books { effects, dedup_entries, outbox_left, ..done.books } })
}

/// hapax on a fresh SQLite file at `path`.
pub(crate) async fn sqlite(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let store = Sqlite::open(path).await?;
    let many = shape.entities > WARMED_BY_MESSAGES_MAX;
    if many {
        preload(&store, shape.entities).await?;
    }
    let counted = store.clone();
    let done = run(store.clone(), Box::new(move || Some(counted.commits())), shape, !many).await?;
    store.close().await;
    Ok(Run { sample: done.sample, books: audit(path, done.books).await? })
}

/// Saves all accounts through the store's port, many at a time.
async fn preload(store: &Sqlite, entities: u32) -> Result<(), AnyError> {
    const AT_A_TIME: usize = 1024;
    let scope = Arc::new(Scope { endpoint: EndpointName::parse(ENDPOINT)?, saga: SagaName::parse(Account::NAME)? });
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
async fn audit(path: &Path, books: Books) -> Result<Books, AnyError> {
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
    let (dedup_entries, outbox_left) = (Some(count(0)?), count(1)?);
    connection.close().await?;
    Ok(Books { effects, dedup_entries, outbox_left, ..books })
}

fn effects_of(state: &[u8]) -> Result<u64, AnyError> {
    let json = state.get(FRAME_BYTES..).ok_or("a state without a frame")?;
    Ok(serde_json::from_slice::<Account>(json)?.effects)
}
