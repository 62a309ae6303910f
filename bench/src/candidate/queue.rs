//! An endpoint on a durable queue in the store's file, which is full beforehand.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use hapax::{
    Message, Sqlite, SqliteQueue,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    ports::Dispatcher,
    time::Timestamp,
};
use sqlx::{Row, SqliteConnection};
use tokio::time::timeout;
use uuid::Uuid;

use super::endpoint::{Commits, ENDPOINT, outgoing, run as run_endpoint};
use crate::{AnyError, backlog::Backlog, measure::Window, run::Run, run::Shape, workload::Deposit};

/// Messages of one call, and calls at a time.
const CHUNK: usize = 1000;
const AT_A_TIME: usize = 16;
/// What a queue takes by default, and room beyond the backlog where that is more: how often messages are counted depends
/// on it.
const MESSAGES_MAX: u64 = 1_000_000;
/// How far away that is which is not due.
const PENDING_FOR: Duration = Duration::from_secs(24 * 3600);

/// Puts the backlog into the queue of the endpoint.
pub(super) async fn fill(store: &Sqlite, shape: &Shape) -> Result<(), AnyError> {
    let queue = open(store, shape).await?;
    let (endpoint, message_type) = (EndpointName::parse(ENDPOINT)?, TypeName::parse(Deposit::TYPE)?);
    let ready = Backlog::of(shape).deliveries().map(|message| outgoing(&endpoint, &message_type, message));
    let mut messages = pending(shape)?.chain(ready);
    let chunks = std::iter::from_fn(|| {
        let chunk: Vec<Outgoing> = messages.by_ref().take(CHUNK).collect();
        (!chunk.is_empty()).then_some(chunk)
    });
    let sends = chunks.map(|chunk| {
        let queue = &queue;
        async move { queue.dispatch(&chunk).await.into_iter().collect::<Result<(), _>>() }
    });
    Ok(stream::iter(sends).buffered(AT_A_TIME).try_collect().await?)
}

/// What is not due before long after a run.
pub(crate) fn pending(shape: &Shape) -> Result<impl Iterator<Item = Outgoing>, AnyError> {
    /// Of every round, and of no round's deliveries.
    const SEED: u64 = u64::MAX - 1;
    let (endpoint, message_type) = (EndpointName::parse(ENDPOINT)?, TypeName::parse(Deposit::TYPE)?);
    let mut workload = Shape { seed: SEED, repeats: 0.0, ..*shape }.workload();
    let due = Timestamp::now().after(PENDING_FOR);
    Ok((0..shape.pending).map(move |_| {
        let outgoing = outgoing(&endpoint, &message_type, workload.next());
        let envelope = Envelope { due: Some(due), ..(*outgoing.envelope).clone() };
        Outgoing { envelope: Arc::new(envelope), ..outgoing }
    }))
}

/// Runs an endpoint until the window is over or the queue has hardly anything left.
pub(super) async fn run(store: &Sqlite, commits: Commits, shape: &Shape) -> Result<Run, AnyError> {
    let queue = Arc::new(open(store, shape).await?);
    let shape = *shape;
    // All that is still to be claimed would be in flight by then.
    let low = shape.queued.saturating_sub(2 * shape.in_flight as u64);
    run_endpoint(store.clone(), queue, &shape, async move |progress| {
        // An error is the end of the time.
        let _ = timeout(shape.warm_up(), progress.reaches(low)).await;
        let (before, committed) = (progress.done(), commits());
        let window = Window::open();
        let _ = timeout(shape.time, progress.reaches(low)).await;
        let mut sample = window.close(progress.done() - before);
        sample.commits = commits().zip(committed).map(|(now, then)| now - then);
        Ok((sample, 0)) // How many were handled is seen by what is left.
    })
    .await
}

/// Ids of the deliveries that still are in the queue, and how many there are that are not due for long.
pub(super) async fn left(connection: &mut SqliteConnection) -> Result<(Vec<[u8; 16]>, u64), AnyError> {
    // What is ready or under a lease is available much sooner.
    let long = i64::try_from(Timestamp::now().after(PENDING_FOR / 2).as_millis())?;
    let mut left = Vec::new();
    {
        let ready = "SELECT message_id FROM hapax_queue_message WHERE available_at < $1";
        let mut rows = sqlx::query(ready).bind(long).fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            left.push(Uuid::parse_str(row.try_get(0)?)?.into_bytes());
        }
    }
    let pending = "SELECT count(*) FROM hapax_queue_message WHERE available_at >= $1";
    let pending: i64 = sqlx::query_scalar(pending).bind(long).fetch_one(connection).await?;
    Ok((left, u64::try_from(pending)?))
}

async fn open(store: &Sqlite, shape: &Shape) -> Result<SqliteQueue, AnyError> {
    let options = SqliteQueue::options().messages_max(MESSAGES_MAX.max(2 * shape.queued) + shape.pending);
    Ok(options.on(store).await?)
}
