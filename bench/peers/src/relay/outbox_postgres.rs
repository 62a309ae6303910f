//! outbox-postgres: its managers beside each other, which its locks allow; a transport of ours publishes.

use std::{process::ExitCode, sync::Arc};

use hapax_bench_peers::{
    AnyError,
    relay::{Backlog, Broker, Drained, POLLED, RELAYS, STORED, Sold, main as program},
};
use outbox_core::prelude::{
    Event, NoIdempotency, OutboxConfig, OutboxError, OutboxManagerBuilder, OutboxService, Transport,
};
use outbox_postgres::{PostgresOutbox, PostgresWriter};
use tokio::sync::watch;

/// The table that its statements need, which its users make.
const TABLE: &str = "
    CREATE TYPE status AS ENUM ('Pending', 'Processing', 'Sent');
    CREATE TABLE outbox_events (id uuid PRIMARY KEY, idempotency_token text UNIQUE, event_type text NOT NULL,
        payload jsonb NOT NULL, status status NOT NULL, created_at timestamptz NOT NULL, locked_until timestamptz NOT NULL);
    CREATE INDEX ON outbox_events (locked_until) WHERE status <> 'Sent';";

fn main() -> ExitCode {
    program(run)
}

struct Publish(Broker);

#[async_trait::async_trait]
impl Transport<Sold> for Publish {
    async fn publish(&self, event: Event<Sold>) -> Result<(), OutboxError> {
        let published = self.0.publish(event.id.as_uuid().to_string(), event.payload.as_value()).await;
        published.map_err(|error| OutboxError::BrokerError(error.to_string()))
    }
}

async fn run(backlog: Backlog) -> Result<Drained, AnyError> {
    let pool = backlog.pool().await?;
    sqlx_8::raw_sql(TABLE).execute(&pool).await?;
    let mut config = OutboxConfig::default();
    config.batch_size = POLLED;
    let config = Arc::new(config);
    let service: OutboxService<PostgresWriter, NoIdempotency, Sold> =
        OutboxService::new(Arc::new(PostgresWriter), config.clone());
    let mut next = 0;
    while next < backlog.count {
        let mut transaction = pool.begin().await?;
        let end = backlog.count.min(next + STORED);
        for order in next..end {
            service.add_event("bench.sold", Sold::new(order), None, &mut *transaction).await?;
        }
        transaction.commit().await?;
        next = end;
    }
    let broker = Broker::open(&backlog).await?;
    let begun = backlog.wait_for_start()?;
    let (stop, stopped) = watch::channel(false);
    let mut running = Vec::new();
    for _ in 0..RELAYS {
        let manager = OutboxManagerBuilder::new()
            .storage(Arc::new(PostgresOutbox::<Sold>::new(pool.clone(), config.clone())))
            .publisher(Arc::new(Publish(broker.clone())))
            .config(config.clone())
            .shutdown_rx(stopped.clone())
            .build()?;
        running.push(tokio::spawn(manager.run()));
    }
    let unsent = "SELECT count(*) FROM outbox_events WHERE status <> 'Sent'";
    let sent = "SELECT count(*) FROM outbox_events WHERE status = 'Sent'";
    let drained = backlog.drained(begun, &broker, &pool, [unsent, sent]).await?;
    stop.send(true)?;
    for manager in running {
        manager.await??;
    }
    Ok(drained)
}
