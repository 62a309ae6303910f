//! outbox-postgres: its writer in a transaction that is written by hand, its manager beside it.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use hapax_bench_peers::{
    AnyError, Changed, Delivery, Order, Outbox, Report, WORKERS,
    driver_8::{audit, change, count, mark, open},
    fed,
};
use outbox_core::prelude::{
    Event, NoIdempotency, OutboxConfig, OutboxError, OutboxManagerBuilder, OutboxService, Transport,
};
use outbox_postgres::{PostgresOutbox, PostgresWriter};
use sqlx_8::PgPool;
use tokio::sync::watch;

/// The table that its statements need, which its users make. Its signal is given once a statement.
const TABLE: &str = "
    CREATE TYPE status AS ENUM ('Pending', 'Processing', 'Sent');
    CREATE TABLE outbox_events (id uuid PRIMARY KEY, idempotency_token text UNIQUE, event_type text NOT NULL,
        payload jsonb NOT NULL, status status NOT NULL, created_at timestamptz NOT NULL, locked_until timestamptz NOT NULL);
    CREATE INDEX ON outbox_events (locked_until) WHERE status <> 'Sent';
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NOTIFY outbox_event; RETURN NULL; END $$;
    CREATE TRIGGER tell AFTER INSERT ON outbox_events FOR EACH STATEMENT EXECUTE FUNCTION tell();";

fn main() -> ExitCode {
    hapax_bench_peers::main(run)
}

/// The sending itself is nothing.
#[derive(Clone, Default)]
struct Nothing(Arc<AtomicU64>);

#[async_trait::async_trait]
impl Transport<Changed> for Nothing {
    async fn publish(&self, _event: Event<Changed>) -> Result<(), OutboxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct Oxide {
    pool: PgPool,
    service: OutboxService<PostgresWriter, NoIdempotency, Changed>,
    sending: Nothing,
}

impl Outbox for Oxide {
    async fn handle(&self, delivery: &Delivery) -> Result<bool, AnyError> {
        let mut transaction = self.pool.begin().await?;
        let is_new = mark(&mut transaction, delivery.id).await?;
        if is_new {
            let changed = change(&mut transaction, &delivery.deposit).await?;
            self.service.add_event("bench.changed", changed, None, &mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(is_new)
    }

    fn sent(&self) -> u64 {
        self.sending.0.load(Ordering::Relaxed)
    }

    async fn unsent(&self) -> Result<i64, AnyError> {
        count(&self.pool, "SELECT count(*) FROM outbox_events WHERE status <> 'Sent'").await
    }
}

async fn run(order: Order) -> Result<Report, AnyError> {
    let pool = open(&order).await?;
    sqlx_8::raw_sql(TABLE).execute(&pool).await?;
    let config = Arc::new(OutboxConfig::default());
    let sending = Nothing::default();
    let (stop, stopped) = watch::channel(false);
    let manager = OutboxManagerBuilder::new()
        .storage(Arc::new(PostgresOutbox::<Changed>::new(pool.clone(), config.clone())))
        .publisher(Arc::new(sending.clone()))
        .config(config.clone())
        .shutdown_rx(stopped)
        .build()?;
    let running = tokio::spawn(manager.run());
    let service = OutboxService::new(Arc::new(PostgresWriter), config);
    let (sample, distinct) = fed(order, WORKERS, Arc::new(Oxide { pool: pool.clone(), service, sending })).await?;
    stop.send(true)?;
    running.await??;
    let sent = "SELECT count(*) FROM outbox_events WHERE status = 'Sent'";
    Ok(Report { sample, books: audit(&pool, distinct, "SELECT count(*) FROM dedup", sent).await? })
}
