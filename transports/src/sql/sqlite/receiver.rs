//! Giving messages under a lease, and settling them.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    codec::record,
    ids::EndpointName,
    ports::{Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, StoreError, TransportError},
};
use hapax_stores::sql::sqlite::ride::{self, Rows};
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{errors::transport_error, millis, order::Unplaced},
    SqliteQueue,
    arguments::{Bind, as_i64},
    signals::Signal,
    statements::{FAMILY, LOOK, kind},
};

/// Most messages that one claim gives: more would keep the others of its commit waiting, and other processes idle.
const CLAIM_MAX: usize = 512;
/// Bytes that one claim gives, the last message aside: all of them are in memory at once.
const CLAIM_BYTES_MAX: usize = 16 << 20;

const RECEIVING: &str = "receiving messages";
const EXTENDING: &str = "extending leases";
const SETTLING: &str = "settling a message";

/// One endpoint's end of a queue.
#[derive(Clone)]
pub(super) struct EndpointQueue {
    pub(super) queue: SqliteQueue,
    endpoint: EndpointName,
    pub(super) signal: Arc<Signal>,
    unplaced: Arc<Unplaced>,
}

/// What a receipt says: `ID:TOKEN` or, where order is kept, `ID:TOKEN:KEY`.
struct Lease<'r> {
    id: i64,
    token: i64,
    key: Option<&'r str>,
}

impl<'r> Lease<'r> {
    /// `None` for a receipt that is none of ours.
    fn of(receipt: &'r Receipt) -> Option<Self> {
        let (id, rest) = receipt.as_text()?.split_once(':')?;
        let (token, key) = rest.split_once(':').map_or((rest, None), |(token, key)| (token, Some(key)));
        Some(Self { id: id.parse().ok()?, token: token.parse().ok()?, key })
    }
}

/// Messages on their way to who asked for them. If nobody is there any more, they are given back.
struct Handover {
    end: EndpointQueue,
    deliveries: Vec<Delivery>,
}

impl Handover {
    fn take(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        if !deliveries.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let end = self.end.clone();
            runtime.spawn(async move { end.give_back(deliveries).await });
        }
    }
}

/// When something may be given.
enum When {
    Now,
    After(Duration),
    Unknown,
}

impl EndpointQueue {
    pub(super) fn new(queue: SqliteQueue, endpoint: EndpointName, signal: Arc<Signal>) -> Self {
        Self { queue, endpoint, signal, unplaced: Arc::default() }
    }

    fn lease_ms(&self) -> i64 {
        millis(self.queue.0.options.lease)
    }

    /// Claims up to `max` messages that are available. If the caller goes away in the middle of it, what is claimed all
    /// the same is given back.
    async fn claim(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let end = self.clone();
        let claim = tokio::spawn(async move {
            let deliveries = end.claimed(max).await?;
            Ok(Handover { end, deliveries })
        });
        match claim.await {
            Ok(handover) => handover.map(Handover::take),
            Err(stopped) => {
                let why = "the runtime is stopping";
                Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why).caused_by(stopped))
            }
        }
    }

    async fn claimed(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let ordered = self.queue.0.options.ordered_keys;
        let token = self.queue.token();
        let mut rows = Rows::default();
        let row = (self.signal.queue, as_i64(max), token, self.lease_ms(), as_i64(CLAIM_BYTES_MAX));
        rows.push(Some((0, token)), &row, &[]);
        let kind = if ordered { kind::TAKE_ORDERED } else { kind::TAKE };
        let given = self.queue.0.file.ride(RECEIVING, &FAMILY, kind, rows).await;
        let mut given = given.map_err(|e| transport_error(RECEIVING, e))?;
        given.sort_by_cached_key(|row| row.try_get::<i64, _>(2).unwrap_or_default());
        if given.len() >= max {
            self.signal.give(); // For another receiver of this queue, or the next call.
        }
        let deliveries = given.iter().filter_map(|row| match delivery(row, ordered) {
            Ok(delivery) => {
                if ordered && !matches!(row.try_get::<Option<&str>, _>(4), Ok(Some(_))) {
                    self.unplaced.came(self.queue.0.file.file_name(), &self.endpoint, &delivery.envelope);
                }
                Some(delivery)
            }
            Err(error) => {
                // It stays under its lease: a program that can read it may be given it next time.
                let file = self.queue.0.file.file_name();
                tracing::error!(%error, file, endpoint = %self.endpoint, "a message cannot be read by this version");
                None
            }
        });
        Ok(deliveries.collect())
    }

    /// Ends leases as if they had never begun.
    async fn give_back(&self, deliveries: Vec<Delivery>) {
        let mut rows = Rows::default();
        for Lease { id, token, .. } in deliveries.iter().filter_map(|delivery| Lease::of(&delivery.receipt)) {
            rows.push(None, &(id, token, self.queue.token(), 0, 1), &[]);
        }
        if let Err(error) = self.queue.0.file.ride(RECEIVING, &FAMILY, kind::RETRY, rows).await {
            tracing::debug!(%error, endpoint = %self.endpoint, "giving messages back failed; their leases will run out");
        }
        self.signal.give();
    }

    /// Looks for what other processes have sent and for what comes due, for all who wait in this process. Ends with an
    /// error only.
    async fn look_out(&self) -> Result<(), StoreError> {
        let signals = &self.queue.0.signals;
        let _looking = match signals.looking.try_lock() {
            Ok(looking) => looking,
            Err(_) => {
                // Somebody else looks, and does not know yet that it is for this queue, too.
                signals.sooner.notify_one();
                signals.looking.lock().await
            }
        };
        loop {
            let mut rest = signals.interval();
            match self.look().await? {
                When::Now => {
                    signals.came();
                    rest = signals.interval();
                }
                When::After(time) => rest = rest.min(time),
                When::Unknown => {}
            }
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = signals.sooner.notified() => {}
            }
        }
    }

    /// Gives the signals of queues that have something, and tells when the next one will.
    async fn look(&self) -> Result<When, StoreError> {
        let signals = &self.queue.0.signals;
        let waiting = signals.waiting();
        if signals.was_set_back(ride::now()) {
            for queue in &waiting {
                self.queue.shorten(*queue).await;
            }
        }
        let queues = serde_json::Value::from(waiting).to_string();
        let mut arguments = SqliteArguments::default();
        arguments.bind(queues);
        let rows = self.queue.0.file.read_text(RECEIVING, LOOK, arguments).await?;
        let now = ride::now();
        let mut next = None;
        let mut found = false;
        for row in &rows {
            let damaged = |e: sqlx::Error| self.queue.damaged(RECEIVING, "a queue").caused_by(e);
            let (queue, available): (i64, Option<i64>) =
                (row.try_get(0).map_err(damaged)?, row.try_get(1).map_err(damaged)?);
            match available {
                Some(at) if at <= now => {
                    signals.give(queue);
                    found = true;
                }
                Some(at) => next = Some(next.map_or(at, |next: i64| next.min(at))),
                None => {}
            }
        }
        Ok(match next {
            _ if found => When::Now,
            Some(at) => When::After(Duration::from_millis(u64::try_from(at - now).unwrap_or_default())),
            None => When::Unknown,
        })
    }

    /// Writes what ends one lease, or begins it anew; whether the lease was still held.
    async fn end(&self, kind: usize, rows: Rows) -> Result<Settled, TransportError> {
        let ended = self.queue.0.file.ride(SETTLING, &FAMILY, kind, rows).await;
        let ended = ended.map_err(|e| transport_error(SETTLING, e))?;
        Ok(if ended.is_empty() { Settled::LeaseLost } else { Settled::Done })
    }

    /// Lets the next messages of a key come, in the same commit if it can be. If it fails they come when they would have
    /// come with the lease's end.
    async fn release(&self, key: Option<&str>) {
        let Some(key) = key else { return };
        let mut rows = Rows::default();
        rows.push(None, &(self.signal.queue, key), &[]);
        if let Err(error) = self.queue.0.file.ride(SETTLING, &FAMILY, kind::RELEASE, rows).await {
            tracing::debug!(%error, endpoint = %self.endpoint, "releasing the next messages of a key failed");
        }
        self.signal.give();
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let max = max.clamp(1, CLAIM_MAX);
        loop {
            if self.signal.take() {
                let given = self.claim(max).await?;
                if !given.is_empty() {
                    self.queue.0.signals.came();
                    return Ok(given);
                }
            }
            let _waiting = self.signal.wait();
            tokio::select! {
                biased;
                () = self.signal.given.notified() => {}
                failed = self.look_out() => failed.map_err(|e| transport_error(RECEIVING, e))?,
            }
        }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        let mut rows = Rows::default();
        for Lease { id, token, .. } in receipts.iter().filter_map(Lease::of) {
            rows.push(None, &(id, token, self.lease_ms()), &[]);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let extended = self.queue.0.file.ride(EXTENDING, &FAMILY, kind::EXTEND, rows).await;
        extended.map(drop).map_err(|e| transport_error(EXTENDING, e))
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let Some(Lease { id, token, key }) = Lease::of(receipt) else { return Ok(Settled::LeaseLost) };
        let mut rows = Rows::default();
        let kind = match &settlement {
            Settlement::Ack => {
                rows.push(Some((id, token)), &(id, token), &[]);
                kind::ACK
            }
            Settlement::Retry { delay, counts } => {
                let next = self.queue.token();
                // Now is cut to a millisecond, so that a delay needs one more to be no shorter than asked for.
                let delay = if delay.is_zero() { 0 } else { millis(*delay).saturating_add(2) };
                rows.push(Some((id, next)), &(id, token, next, delay, i32::from(!counts)), &[]);
                kind::RETRY
            }
            Settlement::DeadLetter { reason } => {
                rows.push(Some((id, token)), &(id, token, self.endpoint.as_str(), reason.as_str()), &[]);
                kind::SET_ASIDE
            }
        };
        let settled = match (&settlement, key) {
            (_, None) => self.end(kind, rows).await?,
            // Together, so that both get into the same commit, the release after what it rests on.
            (_, Some(_)) => futures_util::future::join(self.end(kind, rows), self.release(key)).await.0?,
        };
        if let Settlement::Retry { delay, .. } = settlement {
            if delay.is_zero() {
                self.signal.give();
            }
            self.queue.0.signals.sooner.notify_one();
        }
        Ok(settled)
    }
}

fn delivery(row: &SqliteRow, ordered: bool) -> Result<Delivery, Box<dyn std::error::Error + Send + Sync>> {
    let (token, id): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    let deliveries: i64 = row.try_get(3)?;
    let key: Option<&str> = if ordered { row.try_get(4)? } else { None };
    let receipt = match key {
        Some(key) => format!("{id}:{token}:{key}"),
        None => format!("{id}:{token}"),
    };
    Ok(Delivery {
        envelope: Arc::new(record::decode_envelope(row.try_get(5)?)?),
        receipt: Receipt::text(receipt),
        attempts: u32::try_from(deliveries)?,
    })
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.queue.0.file.file_name();
        f.debug_struct("EndpointQueue").field("file", &file).field("endpoint", &self.endpoint).finish()
    }
}
