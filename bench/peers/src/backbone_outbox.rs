//! backbone-outbox: its inbox and its outbox in one transaction, its relay beside it.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backbone_outbox::{OutboxRecord, inbox, outbox, relay};
use chrono::Utc;
use hapax_bench_peers::{
    AnyError, Delivery, Order, Outbox, Report, WORKERS,
    driver_8::{audit, change, open},
    fed,
};
use sqlx_8::PgPool;
use uuid::Uuid;

const SCHEMA: &str = "bench";
const CONSUMER: &str = "account";
/// Records of one pass of the relay.
const RELAYED: i64 = 100;
/// After a pass that found nothing; a host of the relay has a schedule.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    hapax_bench_peers::main(run)
}

struct Backbone {
    pool: PgPool,
    company: Uuid,
    sent: Arc<AtomicU64>,
}

impl Outbox for Backbone {
    async fn handle(&self, delivery: &Delivery) -> Result<bool, AnyError> {
        let mut transaction = self.pool.begin().await?;
        let is_new = inbox::once(&mut *transaction, SCHEMA, CONSUMER, delivery.id).await?;
        if is_new {
            let changed = change(&mut transaction, &delivery.deposit).await?;
            let payload = serde_json::to_value(&changed)?;
            let record = OutboxRecord::new("Changed", "Account", changed.account, self.company, payload, Utc::now());
            outbox::stage(&mut *transaction, SCHEMA, &record).await?;
        }
        transaction.commit().await?;
        Ok(is_new)
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    async fn unsent(&self) -> Result<i64, AnyError> {
        Ok(outbox::pending_count(&self.pool, SCHEMA).await?)
    }
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let pool = open(&order).await?;
    outbox::migrate(&pool, SCHEMA).await?;
    let sent = Arc::new(AtomicU64::default());
    let relaying = tokio::spawn({
        let (pool, sent) = (pool.clone(), sent.clone());
        async move {
            // The sending itself is nothing.
            let send = |_| {
                sent.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            };
            loop {
                match relay::drain_once(&pool, SCHEMA, RELAYED, send).await {
                    Ok(0) => tokio::time::sleep(PAUSE).await,
                    Ok(_) => {}
                    Err(error) => eprintln!("the relay failed: {error}"),
                }
            }
        }
    });
    let peer = Arc::new(Backbone { pool: pool.clone(), company: Uuid::from_u128(1), sent });
    let (sample, distinct) = fed(order, WORKERS, peer).await?;
    relaying.abort();
    let entries = "SELECT count(*) FROM bench.inbox_consumed";
    let sent = "SELECT count(*) FROM bench.outbox_events WHERE published_at IS NOT NULL";
    Ok(Report { sample, books: audit(&pool, distinct, entries, sent).await? })
}
