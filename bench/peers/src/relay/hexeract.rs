//! hexeract: its workers beside each other, which its locks allow; a handler of each event publishes it.

use std::{process::ExitCode, time::Duration};

use hapax_bench_peers::{
    AnyError,
    relay::{Backlog, Broker, Drained, POLLED, RELAYS, STORED, Sold, main as program},
};
use hexeract::{
    core::HandlerContext,
    outbox::{Event, Handler, OutboxError, OutboxPublisher},
    outbox_sql::{PgOutboxPublisher, PgOutboxWorkerBuilder, postgres::ensure_schema},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

const TABLE: &str = "sending";
/// After a poll that found nothing.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    program(run)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Sending(Sold);

impl Event for Sending {
    const EVENT_TYPE: &'static str = "bench.sold";
}

#[derive(Clone)]
struct Publish(Broker);

impl Handler<Sending> for Publish {
    type Error = OutboxError;

    async fn handle(&self, event: Sending, context: &HandlerContext) -> Result<(), OutboxError> {
        // The only one of its kinds of errors that takes another one.
        self.0.publish(context.message_id.to_string(), &event).await.map_err(OutboxError::Database)
    }
}

async fn run(backlog: Backlog) -> Result<Drained, AnyError> {
    let pool = backlog.pool().await?;
    ensure_schema(&pool, TABLE).await?;
    let publisher = PgOutboxPublisher::new(pool.clone(), TABLE)?;
    let mut next = 0;
    while next < backlog.count {
        let mut transaction = pool.begin().await?;
        let end = backlog.count.min(next + STORED);
        for order in next..end {
            publisher.publish_in_tx(&mut transaction, &Sending(Sold::new(order))).await?;
        }
        transaction.commit().await?;
        next = end;
    }
    let broker = Broker::open(&backlog).await?;
    let begun = backlog.wait_for_start()?;
    let (cancel, mut running) = (CancellationToken::new(), Vec::new());
    for _ in 0..RELAYS {
        let worker = PgOutboxWorkerBuilder::new(pool.clone())
            .table_name(TABLE)
            .register_handler::<Sending, _>(Publish(broker.clone()))
            .batch_size(POLLED as usize)
            .poll_interval(PAUSE)
            .build()?;
        running.push(tokio::spawn(worker.run(cancel.clone())));
    }
    let unsent = "SELECT count(*) FROM sending WHERE delivered_at IS NULL";
    let sent = "SELECT count(*) FROM sending WHERE delivered_at IS NOT NULL";
    let drained = backlog.drained(begun, &broker, &pool, [unsent, sent]).await?;
    cancel.cancel();
    for worker in running {
        worker.await??;
    }
    Ok(drained)
}
