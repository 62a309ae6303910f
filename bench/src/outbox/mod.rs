//! An outbox over the user's own tables on PostgreSQL and its relay to RabbitMQ, beside the same by hand.

mod by_hand;
mod cases;
mod options;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use hapax::{
    Message, PostgresOutbox, RabbitMq,
    envelope::Outgoing,
    ids::MessageId,
    ports::{DispatchError, Dispatcher, Refused, Transport},
};
pub(crate) use options::{HELP, Options, parse};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor, PgPool, postgres::PgPoolOptions};
use tokio::sync::Notify;

use crate::{AnyError, figure::Figure, measure::Machine, sql::near::new_name};

/// Where messages go.
const SINK: &str = "bench-sink";

#[derive(Debug, Serialize, Deserialize)]
struct Sold {
    order: i64,
    /// As much as a usual message says.
    note: String,
}

impl Sold {
    fn new(order: i64) -> Self {
        Self { order, note: "x".repeat(200) }
    }
}

impl Message for Sold {
    const TYPE: &'static str = "bench.sold";
}

/// Whether no bar is missed, or none is judged.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let judged = options.judged();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Vec::new();
    for name in &options.only {
        eprintln!("{name}");
        let found = runtime.block_on(cases::measure(name, options))?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(judged)));
        figures.extend(found);
    }
    println!("{}", machine.line());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        std::fs::write(file, serde_json::to_vec_pretty(&json)?)
            .map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
}

/// A schema of one run with the shop's own table and an outbox, and the broker.
struct Place {
    pool: PgPool,
    schema: String,
    outbox: PostgresOutbox,
    broker: RabbitMq,
}

impl Place {
    async fn new(options: &Options) -> Result<Self, AnyError> {
        let schema = new_name("outbox");
        let database = hapax::Postgres::options(&options.postgres).schema(&schema);
        let outbox = PostgresOutbox::options().migrate(true).route(Sold::TYPE, SINK).open_database(database).await?;
        let path = format!("SET search_path = {schema}");
        let pool = PgPoolOptions::new().max_connections(4).after_connect(move |connection, _| {
            let path = path.clone();
            Box::pin(async move { connection.execute(sqlx::raw_sql(AssertSqlSafe(path))).await.map(drop) })
        });
        let pool = pool.connect(&options.postgres).await?;
        pool.execute("CREATE TABLE shop_order (id bigint PRIMARY KEY, note text NOT NULL)").await?;
        let broker = RabbitMq::open(&options.rabbitmq).await?;
        broker.connect(&SINK.parse()?, &[]).await?;
        Ok(Self { pool, schema, outbox, broker })
    }

    async fn remove(self) -> Result<(), AnyError> {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        self.pool.execute(sqlx::raw_sql(AssertSqlSafe(drop))).await?;
        Ok(())
    }

    /// Stores a backlog, in one transaction for each thousand.
    async fn store(&self, count: u32) -> Result<(), AnyError> {
        let orders: Vec<i64> = (0..i64::from(count)).collect();
        for orders in orders.chunks(1000) {
            let messages = orders.iter().map(|order| self.outbox.outgoing(&Sold::new(*order)));
            let messages = messages.collect::<Result<Vec<Outgoing>, _>>()?;
            let mut tx = self.pool.begin().await?;
            let ticket = self.outbox.enqueue_all(&mut tx, &messages).await?;
            self.outbox.commit(tx, ticket).await?;
        }
        Ok(())
    }

    async fn count(&self, sql: &'static str) -> Result<i64, AnyError> {
        let (count,): (i64,) = sqlx::query_as(sql).fetch_one(&self.pool).await?;
        Ok(count)
    }
}

/// The broker, and when it has confirmed what.
#[derive(Debug, Clone)]
struct Timed {
    broker: RabbitMq,
    confirmed: Arc<(Mutex<HashMap<MessageId, Instant>>, Notify)>,
}

impl Timed {
    fn new(broker: RabbitMq) -> Self {
        Self { broker, confirmed: Arc::default() }
    }

    /// When `id` was confirmed, once it is.
    async fn confirmation(&self, id: &MessageId) -> Instant {
        loop {
            let more = self.confirmed.1.notified();
            if let Some(at) = self.confirmed.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
                return at;
            }
            more.await;
        }
    }
}

#[async_trait]
impl Dispatcher for Timed {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.broker.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let results = self.broker.dispatch(outgoing).await;
        let now = Instant::now();
        let mut confirmed = self.confirmed.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (outgoing, result) in outgoing.iter().zip(&results) {
            if result.is_ok() {
                confirmed.insert(outgoing.envelope.message_id.clone(), now);
            }
        }
        drop(confirmed);
        self.confirmed.1.notify_one();
        results
    }
}
