//! An endpoint whose schedule is in the store's file, on queues in the process that hold nothing back.

use std::{path::Path, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Endpoint, InProcess, Sqlite,
    envelope::Outgoing,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Schedule, Transport, TransportCapabilities, TransportError},
    stores::sqlite::Synchronous,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{
    audit,
    endpoint::{Commits, ENDPOINT, Producer, run_built},
    queue::pending,
    write_back,
};
use crate::{
    AnyError,
    run::{Run, Shape},
    workload::Later,
};

/// Messages of one call, and calls at a time.
const CHUNK: usize = 1000;
const AT_A_TIME: usize = 16;

/// Makes the file that a run of `shape` needs at `path`, with `shape.pending` in the schedule. The disk is not waited for at every commit:
/// nobody measures.
pub(crate) async fn prepare(path: &Path, shape: &Shape) -> Result<(), AnyError> {
    let options = Sqlite::options(path).create_if_missing(true).migrate(true);
    let store = options.synchronous(Synchronous::Normal).open().await?;
    let endpoint = EndpointName::parse(ENDPOINT)?;
    let mut messages = pending(shape)?;
    let chunks = std::iter::from_fn(|| {
        let chunk: Vec<Outgoing> = messages.by_ref().take(CHUNK).collect();
        (!chunk.is_empty()).then_some(chunk)
    });
    let puts = chunks.map(|chunk| {
        let (store, endpoint) = (&store, &endpoint);
        async move { store.put(endpoint, &chunk).await }
    });
    stream::iter(puts).buffered(AT_A_TIME).try_collect::<()>().await?;
    store.close().await;
    write_back(path).await
}

/// Runs on the file that [`prepare`] made. Each message that is handled puts one more into the schedule.
pub(crate) async fn run(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    let (store, hub) = (Sqlite::open(path).await?, InProcess::new(ENDPOINT));
    let counted = store.clone();
    let commits: Commits = Box::new(move || Some(counted.commits()));
    let endpoint = Endpoint::builder(ENDPOINT).store(store.clone()).schedule(store.clone());
    // What goes into the schedule does not go through the transport, where it would be counted as sent.
    let shape = Shape { outgoing: false, ..*shape };
    let done = run_built(endpoint, Arc::new(HoldsNothingBack(hub.clone())), &shape, async move |progress| {
        Producer::new(hub, progress, commits, shape)?.of::<Later>()?.produce(true).await
    })
    .await?;
    store.close().await;
    let books = audit(path, &shape, done.books).await?;
    let (left, due) = (left(path).await?, shape.pending + books.effects);
    if left != due {
        return Err(format!("void: of {due} messages that are not due, {left} are left").into());
    }
    Ok(Run { books, ..done })
}

async fn left(path: &Path) -> Result<u64, AnyError> {
    let options = SqliteConnectOptions::new().filename(path).disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM hapax_schedule").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(left.try_into()?)
}

/// Queues of the process as a broker has them that knows no delay: so what is due later goes into the schedule.
#[derive(Debug)]
struct HoldsNothingBack(InProcess);

#[async_trait::async_trait]
impl Transport for HoldsNothingBack {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: Delays::Never, ..self.0.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.connect(endpoint, types).await
    }
}
