//! apalis-postgres: a queue that gives each task at least once, and a transaction written by hand.

use std::{process::ExitCode, sync::Arc};

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use hapax_bench_peers::{
    AnyError, Deposit, Order, Progress, Report, WORKERS, distinct_gone,
    driver_9::{audit, handle, open},
};
use serde::{Deserialize, Serialize};
use sqlx_9::{PgPool, Row};
use uuid::Uuid;

/// Tasks that the worker fetches at once.
const FETCHED: usize = 500;
/// Tasks of one call that fills the queue.
const CHUNK: usize = 1000;
const QUEUE: &str = "deposits";

fn main() -> ExitCode {
    hapax_bench_peers::main(run)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    id: Uuid,
    deposit: Deposit,
}

#[derive(Debug, Clone)]
struct Shared {
    pool: PgPool,
    progress: Arc<Progress>,
}

async fn deposit(job: Job, shared: Data<Shared>) -> Result<(), BoxDynError> {
    let done = handle(&shared.pool, job.id, &job.deposit).await;
    shared.progress.note(&done);
    done
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let pool = open(&order).await?;
    PostgresStorage::setup(&pool).await?;
    let progress = Arc::new(Progress::default());
    let mut storage =
        PostgresStorage::<Job>::new(&pool).with_config(Config::default().queue(QUEUE).batch_size(FETCHED));
    for chunk in order.deliveries.chunks(CHUNK) {
        let job = |delivery: &hapax_bench_peers::Delivery| Job { id: delivery.id, deposit: delivery.deposit.clone() };
        storage.push_bulk(chunk.iter().map(job).collect()).await?;
    }
    sqlx_9::raw_sql("VACUUM ANALYZE").execute(&pool).await?;
    order.wait_for_start()?;
    let context = WorkerContext::new("bench");
    let worker = WorkerBuilder::new(&context)
        .backend(storage)
        .data(Shared { pool: pool.clone(), progress: progress.clone() })
        .concurrency(WORKERS)
        .build(deposit);
    let running = tokio::spawn(worker.run());
    let sample = progress.window(&order).await;
    context.stop()?;
    running.await??;
    progress.undisturbed()?;
    let left = "SELECT (convert_from(job, 'UTF8')::jsonb ->> 'id')::uuid FROM apalis.jobs WHERE status <> 'Done'";
    let left = sqlx_9::query(left).fetch_all(&pool).await?;
    let left: Vec<Uuid> = left.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let distinct = distinct_gone(&order.deliveries, &left)?;
    let books = audit(&pool, distinct, "SELECT count(*) FROM dedup", "SELECT count(*) FROM outgoing").await?;
    Ok(Report { sample, books })
}
