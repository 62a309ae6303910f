//! The relay: sends what transactions have stored in an outbox table.
//!
//! ```text
//!  your transaction ── enqueue ──▶ ┌──────────────┐
//!        │                         │ outbox table │ ◀── claim, status: one call a tick ──┐
//!        └─ committed ──▶ push ────┴──────────────┴───────▶ relay ──▶ transport          │
//!                       (in memory)                           └── confirmations ─────────┘
//! ```
//!
//! A row that is stored by the relay's own process belongs to it from birth; once it is committed it goes through memory to the
//! transport, and the table is not read. What did not come that way (another process has stored it, there was no room, somebody
//! has died) is claimed from the table when its lease is over. A message is sent at least once, always under the same id, and is
//! never forgotten: it is sent, or waits, or stays as failed until a person decides. What its receiver does not want twice it
//! recognises by the id.
//!
//! Between a confirmation and its stored status lies up to a second ([`RelayOptions::status_batch`]): what a crash finds there is
//! sent again.
//!
//! A transport that takes nothing at all is not hammered: one message at a time is tried, after 1 s and then less and less often,
//! until one goes through, and the attempts of the others do not count.
//!
//! # Source
//! The transactional outbox with a push queue beside the table: the polling publisher and its reviver are what remains when the
//! push is lost (C. Richardson, *Microservices Patterns*, chapter 3).

mod care;
#[cfg(all(test, shuttle))]
mod interleaved;
mod line;
mod options;
mod pause;
mod table;
mod ticket;
mod waiting;

use std::{fmt, future::Future, sync::Arc};

pub use line::{PushLine, Pushed};
pub use options::RelayOptions;
use table::TableRelay;
pub use ticket::{Stored, Tell, Ticket};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    ports::{Dispatcher, Instance, OutboxState, OutboxTable},
    sync::atomic::{AtomicU64, Ordering},
    trace::{Sends, Spans, Traces},
};

/// Sends what was stored in outbox tables to one transport.
///
/// In the process that stores it, or in one of its own; any number of them share a table.
#[must_use = "a relay does nothing until it is started"]
pub struct Relay {
    dispatcher: Arc<dyn Dispatcher>,
    tables: Vec<(Arc<dyn OutboxTable>, RelayOptions)>,
    service: String,
    metrics: Arc<dyn RelayMetrics>,
}

/// Observes relays.
pub trait RelayMetrics: fmt::Debug + Send + Sync {
    /// What waits in `table`, and what its relay here has done since it was started; as often as
    /// [`RelayOptions::care`] says. It must not block.
    ///
    /// Nothing is said while the table cannot be reached, and a gauge keeps its value meanwhile: export also when this was called
    /// last (`hapax_outbox_observed_timestamp_seconds` in `docs/alerts/outbox.yml`), so that its age is seen.
    fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts);
}

impl<M: RelayMetrics + ?Sized> RelayMetrics for Arc<M> {
    fn observe(&self, table: &str, state: &OutboxState, counts: &RelayCounts) {
        (**self).observe(table, state, counts);
    }
}

/// Observes nothing.
#[derive(Debug)]
struct Unobserved;

impl RelayMetrics for Unobserved {
    fn observe(&self, _: &str, _: &OutboxState, _: &RelayCounts) {}
}

/// Why a relay does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// There is nothing to relay.
    #[error("the relay was given no table: add one with `table`")]
    NoTable,
    /// One handle's messages cannot go to two relays, and what Debezium sends to none.
    #[error(
        "`{table}` takes no relay: one is running already for this handle (stop it first, or open the outbox again), or the \
         outbox is sent by Debezium"
    )]
    Attached {
        /// Its name.
        table: String,
    },
    /// There is no runtime to run on.
    #[error("there is no tokio runtime: start the relay within one")]
    NoRuntime,
    /// A relay has ended by itself, which is a defect of its transport or its table.
    #[error("the relay has panicked: {0}")]
    Panicked(String),
}

impl Relay {
    /// A relay to `transport`, for no table yet. One that others use as well is given as an `Arc`.
    pub fn to(transport: impl Dispatcher + 'static) -> Self {
        Self { dispatcher: Arc::new(transport), tables: Vec::new(), service: program(), metrics: Arc::new(Unobserved) }
    }

    /// Also what is stored in `table`, with the usual numbers.
    pub fn table(self, table: impl OutboxTable + 'static) -> Self {
        self.table_with(table, RelayOptions::default())
    }

    /// Also what is stored in `table`, with numbers of its own.
    pub fn table_with(mut self, table: impl OutboxTable + 'static, options: RelayOptions) -> Self {
        self.tables.push((Arc::new(table), options));
        self
    }

    /// What people find in the table as the name of this program. Default the executable's.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Tells `metrics` what waits and what was done.
    pub fn metrics(mut self, metrics: impl RelayMetrics + 'static) -> Self {
        self.metrics = Arc::new(metrics);
        self
    }

    /// Makes a span of each call to the transport, which is called `system` in it (for example `rabbitmq`), and joins it by `traces`
    /// to the traces in which the messages were created.
    pub fn traces_as(mut self, system: &'static str, traces: impl Traces + 'static) -> Self {
        self.dispatcher = Arc::new(Sends::new(self.dispatcher, Spans::new(system, Some(Arc::new(traces)))));
        self
    }

    /// Begins. What is stored through the same handles from now on goes to the transport as soon as it is committed.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn start(self) -> Result<RelayHandle, RelayError> {
        let Self { dispatcher, tables, service, metrics } = self;
        if tables.is_empty() {
            return Err(RelayError::NoTable);
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| RelayError::NoRuntime)?;
        let (stop, stopped) = watch::channel(false);
        let (mut tasks, mut counted, host) = (JoinSet::new(), Vec::new(), host());
        for (table, options) in tables {
            let id = fastrand::i64(1..);
            let instance = Instance { id, service: service.clone(), host: host.clone(), process: std::process::id() };
            let name = table.name().to_owned();
            let options = options.bounded();
            let (cared, care) = (table.clone(), options.clone());
            let attached = TableRelay::attach(table, dispatcher.clone(), options, instance);
            let relay = attached.ok_or(RelayError::Attached { table: name })?;
            counted.push(relay.counted());
            let care = care::run(cared, care, relay.counted(), metrics.clone(), stopped.clone());
            tasks.spawn_on(care, &runtime);
            tasks.spawn_on(relay.run(stopped.clone()), &runtime);
        }
        Ok(RelayHandle { stop, tasks, counted })
    }

    /// Runs until `stop` is done, and stops as [`RelayHandle::stop`] does.
    ///
    /// # Errors
    /// [`RelayError`].
    pub async fn run_until(self, stop: impl Future) -> Result<(), RelayError> {
        let mut handle = self.start()?;
        tokio::select! {
            Err(error) = handle.ended() => Err(error),
            _ = stop => handle.stop().await,
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("service", &self.service).field("tables", &self.tables).finish_non_exhaustive()
    }
}

/// A relay that runs. Dropping it ends it at once: what it holds is free when its leases are over.
#[must_use = "dropping it ends the relay at once"]
#[derive(Debug)]
pub struct RelayHandle {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    counted: Vec<Arc<Counted>>,
}

impl RelayHandle {
    /// Waits for what is being sent, stores all statuses, gives back what was not sent, and ends; within
    /// [`RelayOptions::stop_limit`].
    ///
    /// # Errors
    /// [`RelayError::Panicked`].
    pub async fn stop(mut self) -> Result<(), RelayError> {
        self.stop.send_replace(true);
        self.ended().await
    }

    /// What it has done so far, for all its tables.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.counted.iter().fold(RelayCounts::default(), |sum, counted| counted.add_to(sum))
    }

    /// Done when all its tasks are: after a stop, or early by a defect of the transport or the table. For who has started it and
    /// wants to know.
    ///
    /// # Errors
    /// [`RelayError::Panicked`].
    pub async fn ended(&mut self) -> Result<(), RelayError> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| RelayError::Panicked(error.to_string()))?;
        }
        Ok(())
    }
}

/// What a relay has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Messages that the transport has confirmed.
    pub sent: u64,
    /// Attempts that are made again later.
    pub later: u64,
    /// Messages that have failed for good.
    pub failed: u64,
    /// Messages that were no longer worth sending.
    pub expired: u64,
    /// Committed messages that found no room in memory.
    pub dropped: u64,
    /// Messages whose lease was over before they could be sent: somebody else has them.
    pub overdue: u64,
    /// Messages that were sent, or not, when somebody else had them already.
    pub overtaken: u64,
    /// Calls to the tables.
    pub ticks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counted {
    sent: AtomicU64,
    later: AtomicU64,
    failed: AtomicU64,
    expired: AtomicU64,
    dropped: AtomicU64,
    overdue: AtomicU64,
    overtaken: AtomicU64,
    ticks: AtomicU64,
}

impl Counted {
    fn add_to(&self, sum: RelayCounts) -> RelayCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RelayCounts {
            sent: sum.sent + of(&self.sent),
            later: sum.later + of(&self.later),
            failed: sum.failed + of(&self.failed),
            expired: sum.expired + of(&self.expired),
            dropped: sum.dropped + of(&self.dropped),
            overdue: sum.overdue + of(&self.overdue),
            overtaken: sum.overtaken + of(&self.overtaken),
            ticks: sum.ticks + of(&self.ticks),
        }
    }
}

fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default()
}

/// For people who read the table: nothing rests on it.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned()).unwrap_or_default()
}
