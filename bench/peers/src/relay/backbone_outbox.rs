//! backbone-outbox: its relay, pass after pass. Only one, since it takes no lock.

use std::process::ExitCode;

use backbone_outbox::{OutboxError, OutboxRecord, outbox, relay};
use chrono::Utc;
use hapax_bench_peers::{
    AnyError,
    relay::{Backlog, Broker, Drained, POLLED, STORED, Sold, main as program},
};
use uuid::Uuid;

const SCHEMA: &str = "bench";

fn main() -> ExitCode {
    program(run)
}

async fn run(backlog: Backlog) -> Result<Drained, AnyError> {
    let pool = backlog.pool().await?;
    outbox::migrate(&pool, SCHEMA).await?;
    let mut next = 0;
    while next < backlog.count {
        let mut transaction = pool.begin().await?;
        let end = backlog.count.min(next + STORED);
        for order in next..end {
            let payload = serde_json::to_value(Sold::new(order))?;
            let record = OutboxRecord::new("Sold", "Shop", order.to_string(), Uuid::from_u128(1), payload, Utc::now());
            outbox::stage(&mut *transaction, SCHEMA, &record).await?;
        }
        transaction.commit().await?;
        next = end;
    }
    let broker = Broker::open(&backlog).await?;
    let begun = backlog.wait_for_start()?;
    let to = &broker;
    let send = |record: OutboxRecord| async move {
        let published = to.publish(record.id.to_string(), &record.payload).await;
        published.map_err(|error| OutboxError::Publish(error.to_string()))
    };
    while relay::drain_once(&pool, SCHEMA, POLLED.into(), send).await? > 0 {}
    let unsent = "SELECT count(*) FROM bench.outbox_events WHERE published_at IS NULL";
    let sent = "SELECT count(*) FROM bench.outbox_events WHERE published_at IS NOT NULL";
    backlog.drained(begun, &broker, &pool, [unsent, sent]).await
}
