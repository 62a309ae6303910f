//! An outbox over the user's own tables and its relay to RabbitMQ, beside the same by hand, and beside other libraries.

mod by_hand;
mod cases;
mod log;
mod options;
mod partitions;
mod peers;
mod place;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use hapax::{
    Message, RabbitMq,
    envelope::Outgoing,
    ids::MessageId,
    ports::{DispatchError, Dispatcher, Refused},
};
use options::{Database, LOG, PARTITIONS, PEERS};
pub(crate) use options::{HELP, Options, parse};
use place::{MySqlPlace, PostgresPlace, SqlitePlace};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, sync::Notify};

use crate::{AnyError, Scratch, figure::Figure, measure::Machine, mysql, postgres};

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
        eprintln!("{name} on {}", options.database.title());
        let found = measure(&runtime, name, options)?;
        found.iter().for_each(|figure| eprintln!("{}", figure.line(judged)));
        figures.extend(found);
    }
    println!("{}; the outbox is on {}", machine.line(), options.database.title());
    figures.iter().for_each(|figure| println!("{}", figure.line(judged)));
    if let Some(file) = &options.json {
        let json = serde_json::json!({ "machine": machine, "settings": options, "judged": judged, "figures": figures });
        std::fs::write(file, serde_json::to_vec_pretty(&json)?)
            .map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(!judged || figures.iter().all(Figure::is_met))
}

fn measure(runtime: &Runtime, name: &str, options: &Options) -> Result<Vec<Figure>, AnyError> {
    match options.database {
        Database::Postgres if [PEERS, LOG].contains(&name) && !postgres::is_logical(&options.postgres)? => {
            let scratch = Scratch::within(&options.dir)?;
            let (_server, url) = postgres::run(&scratch.0)?;
            eprintln!("  on a PostgreSQL of its own with wal_level=logical, for all sides");
            measure(runtime, name, &Options { postgres: url, ..options.clone() })
        }
        Database::Postgres if name == PEERS => runtime.block_on(peers::measure(options)),
        Database::Postgres if name == PARTITIONS => runtime.block_on(partitions::measure(options)),
        Database::Postgres if name == LOG => runtime.block_on(log::measure(options)),
        Database::Postgres => runtime.block_on(cases::measure::<PostgresPlace>(name, options)),
        Database::MySql if options.mysql.is_none() => {
            let scratch = Scratch::within(&options.dir)?;
            let (_server, url) = mysql::run(&scratch.0)?;
            let options = Options { mysql: Some(url), ..options.clone() };
            runtime.block_on(cases::measure::<MySqlPlace>(name, &options))
        }
        Database::MySql => runtime.block_on(cases::measure::<MySqlPlace>(name, options)),
        Database::Sqlite => runtime.block_on(cases::measure::<SqlitePlace>(name, options)),
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

    /// What nobody waits for.
    fn forget(&self) {
        self.confirmed.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
