//! Relaying from the server's log (logical replication), as an alternative to claiming rows from the table.
//!
//! [`LogOptions::rows`]: messages are rows of the table as ever, and whoever relays reads them from the log in the order of their
//! commits instead of claiming them. The table stays the truth: a row belongs to the log's reader for a lease from its birth, and
//! whatever the log does not bring in that time (nobody has read it, the reader has died, the transport was away) is claimed like
//! any other row. So the slot is a temporary one, which goes with its reader: it never keeps log that nobody reads, and a standby
//! that takes over lacks nothing.
//!
//! [`LogOptions::messages`]: there is no row at all (`pg_logical_emit_message`); a message costs the transaction some bytes of log,
//! and nobody has to clean up behind it. The log is the truth then, and the slot stays, and keeps the server's log until what is
//! in it was sent. The table is for the exceptions: what has a due time or may expire, what could not be sent and is to be tried
//! again, what has failed, and what was in the way of the server's disk ([`LogOptions::lag_bytes_max`]).
//!
//! One relay reads at a time, and another takes over when it ends. No order is promised, as without the log.
//!
//! # Source
//! Transaction log tailing (C. Richardson, *Microservices Patterns*, chapter 3); the server's manual, chapters 49 and 55.

mod decode;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod ledger;
mod place;
mod reader;
mod storing;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz_log;
use hapax_core::{
    ports::{ErrorKind, OutboxState, StoreError},
    relay::PushLine,
};
use ledger::Ledger;
use place::Place;
use sqlx::{Row as _, postgres::PgArguments};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    task::AbortHandle,
};

use super::super::{
    arguments::Bind,
    wire::{Fault, Server, Wire},
};

/// How long a row is left to whoever reads the log, before it is claimed. Default 30 s: many times what a log that is read takes,
/// and no more than that is waited for when nobody reads it.
const LEASE: Duration = Duration::from_secs(30);
/// How often to look how far behind the reader is. Default 10 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Longer times are as good as never.
const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How much log may be kept for the reader. Default 1 GiB: the log of minutes, on a disk that has more.
const LAG_MAX: u64 = 1 << 30;

/// How an outbox is relayed from the server's log: see [`PostgresOutboxOptions::log`](super::PostgresOutboxOptions::log).
///
/// The server must be PostgreSQL 14 or later with `wal_level = logical`, a free replication slot and a free sender
/// (`max_replication_slots`, `max_wal_senders`), and the role must have the attribute `REPLICATION`. Not behind a connection
/// pooler. The connection that the log comes by has no TLS: a URL that asks for it is refused, and so is a server on another
/// machine unless the URL says `sslmode=disable`, which is taken with
/// [`danger_unverified_tls`](super::super::PostgresOptions::danger_unverified_tls) alone.
#[derive(Debug, Clone)]
#[must_use]
pub struct LogOptions {
    keeps_rows: bool,
    slot: Option<String>,
    lease: Duration,
    heartbeat: Duration,
    lag_bytes_max: u64,
}

const fn shorter(one: Duration, other: Duration) -> Duration {
    if one.as_secs() < other.as_secs() { one } else { other }
}

impl LogOptions {
    const fn new(keeps_rows: bool) -> Self {
        Self { keeps_rows, slot: None, lease: LEASE, heartbeat: HEARTBEAT, lag_bytes_max: LAG_MAX }
    }

    /// Messages are rows of the table, and are read from the log.
    pub const fn rows() -> Self {
        Self::new(true)
    }

    /// Messages are in the log only.
    ///
    /// They are as safe as the log: what is thrown away of it unread (the slot was dropped, the server was told to keep less than
    /// what has gathered, a standby without the slot took over) is lost. That is found out, said as an error and counted as
    /// [`OutboxState::log_gaps`]. Two messages of one id are not noticed. After a crash of the server, or of the relay, what was
    /// sent in the last second may be sent again, and what stands in the log behind a message whose confirmation took longer.
    pub const fn messages() -> Self {
        Self::new(false)
    }

    /// The slot's name. Default: made of the names of database, schema and tables. Lower-case ASCII letters, digits and `_`, at
    /// most 60.
    pub fn slot(mut self, name: impl Into<String>) -> Self {
        self.slot = Some(name.into());
        self
    }

    /// How long a row is left to whoever reads the log, from when it was stored, before it is claimed. Default 30 s. Of no account
    /// without rows.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = shorter(lease, TIME_MAX);
        self
    }

    /// How often the reader looks how far behind it is, and at the server's clock. Default 10 s; at least 100 ms.
    pub const fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = shorter(heartbeat, TIME_MAX);
        self
    }

    /// How many bytes of log may be kept for the reader. Default 1 GiB. Beyond it, with rows, it begins anew at the log's end and
    /// what lies between is claimed; without, messages are put into the table until the log is read again, whether or not they can
    /// be sent. While no relay runs nobody looks: the server's own `max_slot_wal_keep_size`, which then throws messages away,
    /// should be far above this.
    pub const fn lag_bytes_max(mut self, bytes: u64) -> Self {
        self.lag_bytes_max = bytes;
        self
    }
}

/// The log of one outbox.
#[derive(Debug)]
pub(super) struct Log {
    options: LogOptions,
    place: Place,
    server: Server,
    ledger: Mutex<Ledger>,
    /// The log may be forgotten further.
    moved: Notify,
    reading: Mutex<Option<AbortHandle>>,
    /// What is read from the log is not over before this is through.
    wire: AsyncMutex<Wire>,
}

impl Log {
    /// Looks whether the server lets its log be read, and makes what that needs.
    pub(super) async fn open(options: LogOptions, server: &Server, may_create: bool) -> Result<Arc<Self>, StoreError> {
        let place = Place::find(&options, server).await?;
        let wire = AsyncMutex::new(server.wire());
        let log = Self {
            place,
            server: server.clone(),
            ledger: Mutex::default(),
            moved: Notify::new(),
            reading: Mutex::default(),
            wire,
            options,
        };
        log.place.publish(server, may_create).await?;
        if !log.options.keeps_rows {
            // Before the first message: what is in the log before there is a slot, nobody reads.
            log.place.keep_slot(server).await?;
        }
        Ok(Arc::new(log))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads for the relay behind `line`, until it is told to rest.
    pub(super) fn attach(self: &Arc<Self>, line: &Arc<PushLine>) {
        let reading = tokio::spawn(reader::read(self.clone(), line.clone()));
        if let Some(before) = self.reading().replace(reading.abort_handle()) {
            before.abort();
        }
    }

    /// Nothing is read any more. What was read is still told of.
    pub(super) fn rest(&self) {
        if let Some(reading) = self.reading().take() {
            reading.abort();
        }
    }

    fn reading(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far behind it is, and how often something of it was lost.
    pub(super) async fn state(&self, state: &mut OutboxState) -> Result<(), StoreError> {
        const OPERATION: &str = "looking at the server's log";
        let mut arguments = PgArguments::default();
        arguments.bind(self.place.slot.clone());
        let mut wire = self.wire.lock().await;
        let rows = wire.read(&self.server.text(storing::STATE), arguments).await;
        drop(wire);
        let rows = rows.map_err(|fault| self.error(OPERATION, &fault))?;
        let number = |at: usize| rows.first().and_then(|row| row.try_get::<Option<i64>, _>(at).ok().flatten());
        state.log_lag = number(0).and_then(|lag| u64::try_from(lag).ok());
        state.log_gaps = number(1).and_then(|gaps| u64::try_from(gaps).ok()).unwrap_or_default();
        Ok(())
    }

    fn error(&self, operation: &'static str, fault: &Fault) -> StoreError {
        fault.store_error(operation, self.server.place())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.rest();
    }
}

fn misconfigured(server: &Server, why: String) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, place::OPENING, format!("{}: {why}", server.place()))
}
