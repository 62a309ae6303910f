//! graphile_worker: a queue that gives each job at least once, and a transaction written by hand.

use std::{process::ExitCode, sync::Arc, time::Duration};

use graphile_worker::{IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions};
use hapax_bench_peers::{
    AnyError, Deposit, Order, Progress, Report, WORKERS, distinct_gone,
    driver_9::{audit, handle, open},
};
use serde::{Deserialize, Serialize};
use sqlx_9::{PgPool, Row};
use uuid::Uuid;

/// Jobs that the worker fetches at once, and the pause in which it gathers what is done: with both it is fastest.
const LOCAL_QUEUE: usize = 500;
const COMPLETED_WITHIN: Duration = Duration::from_millis(1);
/// Jobs of one call that fills the queue.
const CHUNK: usize = 1000;

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

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "deposit";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let Some(Shared { pool, progress }) = context.get_ext::<Shared>() else {
            return Err("the worker has no database".to_owned());
        };
        let done = handle(pool, self.id, &self.deposit).await;
        progress.note(&done);
        done.map_err(|error| error.to_string())
    }
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let pool = open(&order).await?;
    let progress = Arc::new(Progress::default());
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .concurrency(WORKERS)
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
        .complete_job_batch_delay(COMPLETED_WITHIN)
        .add_extension(Shared { pool: pool.clone(), progress: progress.clone() })
        .define_job::<Job>()
        .init()
        .await?;
    let (utils, spec) = (worker.create_utils(), JobSpec::default());
    for chunk in order.deliveries.chunks(CHUNK) {
        let job = |delivery: &hapax_bench_peers::Delivery| Job { id: delivery.id, deposit: delivery.deposit.clone() };
        let jobs: Vec<(Job, &JobSpec)> = chunk.iter().map(|delivery| (job(delivery), &spec)).collect();
        utils.add_jobs(&jobs).await?;
    }
    sqlx_9::raw_sql("VACUUM ANALYZE").execute(&pool).await?;
    order.wait_for_start()?;
    let worker = Arc::new(worker);
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    let sample = progress.window(&order).await;
    worker.request_shutdown();
    running.await??;
    progress.undisturbed()?;
    let left =
        sqlx_9::query("SELECT (payload ->> 'id')::uuid FROM graphile_worker._private_jobs").fetch_all(&pool).await?;
    let left: Vec<Uuid> = left.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let distinct = distinct_gone(&order.deliveries, &left)?;
    let books = audit(&pool, distinct, "SELECT count(*) FROM dedup", "SELECT count(*) FROM outgoing").await?;
    Ok(Report { sample, books })
}
