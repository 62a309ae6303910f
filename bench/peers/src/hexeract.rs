//! hexeract: its outbox in a transaction that is written by hand, its worker beside it.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hapax_bench_peers::{
    AnyError, Changed, Delivery, Order, Outbox, Report, WORKERS,
    driver_8::{audit, change, count, mark, open},
    fed,
};
use hexeract::{
    core::HandlerContext,
    outbox::{Event, Handler, OutboxError, OutboxPublisher},
    outbox_sql::{PgOutboxPublisher, PgOutboxWorkerBuilder, postgres::ensure_schema},
};
use serde::{Deserialize, Serialize};
use sqlx_8::PgPool;
use tokio_util::sync::CancellationToken;

const TABLE: &str = "sending";
/// Events of one poll of the worker.
const POLLED: usize = 100;
/// Workers beside each other, which its locks allow: one confirms event by event.
const RELAYS: usize = 4;
/// After a poll that found nothing.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    hapax_bench_peers::main(run)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Sending(Changed);

impl Event for Sending {
    const EVENT_TYPE: &'static str = "bench.changed";
}

/// The sending itself is nothing.
#[derive(Clone, Default)]
struct Nothing(Arc<AtomicU64>);

impl Handler<Sending> for Nothing {
    type Error = OutboxError;

    async fn handle(&self, _event: Sending, _context: &HandlerContext) -> Result<(), OutboxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct Hexeract {
    pool: PgPool,
    publisher: PgOutboxPublisher,
    sending: Nothing,
}

impl Outbox for Hexeract {
    async fn handle(&self, delivery: &Delivery) -> Result<bool, AnyError> {
        let mut transaction = self.pool.begin().await?;
        let is_new = mark(&mut transaction, delivery.id).await?;
        if is_new {
            let changed = change(&mut transaction, &delivery.deposit).await?;
            self.publisher.publish_in_tx(&mut transaction, &Sending(changed)).await?;
        }
        transaction.commit().await?;
        Ok(is_new)
    }

    fn sent(&self) -> u64 {
        self.sending.0.load(Ordering::Relaxed)
    }

    async fn unsent(&self) -> Result<i64, AnyError> {
        count(&self.pool, "SELECT count(*) FROM sending WHERE delivered_at IS NULL").await
    }
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let pool = open(&order).await?;
    ensure_schema(&pool, TABLE).await?;
    let publisher = PgOutboxPublisher::new(pool.clone(), TABLE)?;
    let (cancel, sending) = (CancellationToken::new(), Nothing::default());
    let mut running = Vec::new();
    for _ in 0..RELAYS {
        let worker = PgOutboxWorkerBuilder::new(pool.clone())
            .table_name(TABLE)
            .register_handler::<Sending, _>(sending.clone())
            .batch_size(POLLED)
            .poll_interval(PAUSE)
            .build()?;
        running.push(tokio::spawn(worker.run(cancel.clone())));
    }
    let (sample, distinct) = fed(order, WORKERS, Arc::new(Hexeract { pool: pool.clone(), publisher, sending })).await?;
    cancel.cancel();
    for worker in running {
        worker.await??;
    }
    let sent = "SELECT count(*) FROM sending WHERE delivered_at IS NOT NULL";
    Ok(Report { sample, books: audit(&pool, distinct, "SELECT count(*) FROM dedup", sent).await? })
}
