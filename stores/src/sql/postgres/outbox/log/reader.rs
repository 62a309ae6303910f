//! Reading the log, for the relay in the same process.

use std::{future::ready, sync::Arc, time::Duration};

use bytes::Bytes;
use hapax_core::{
    codec::{CodecError, record},
    envelope::{Destination, Envelope, Outgoing},
    ids::{MessageId, TypeName},
    ports::{Claim, StoreError},
    relay::{PushLine, Pushed},
};
use pgwire_replication::{Lsn, PgWireError, ReplicationClient, ReplicationEvent};
use sha2::{Digest, Sha256};
use sqlx::{Row as _, postgres::PgArguments};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use super::{
    super::super::{super::outbox::claim, arguments::Bind, wire::Wire},
    Log,
    decode::{Decoder, LoggedRow},
    place::Found,
    storing::{self, Kept},
};

/// Before the log is read again after that has failed, or somebody else was reading it.
const AGAIN: Duration = Duration::from_secs(2);
/// How long the server may take to begin: it waits for transactions that are under way.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often the server is told how far it was read. Default of the driver is 10 s, after which a reader that has ended has told
/// nothing of what it did last.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Changes that wait in memory between the driver and this. They are as large as messages.
const BUFFER: usize = 256;
/// Messages in the log have no lease: nobody else can have them.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Messages that are put into the table in one call.
const KEPT_AT_ONCE: usize = 256;
/// Bytes of them.
const KEPT_BYTES: usize = 4 << 20;
/// The type of what was written as a message of this outbox, and is none.
const UNREADABLE: &str = "hapax.unreadable";
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// `$1` slot: the server's time, and how much log it keeps for the slot.
const BEAT: &str = "\
    SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint, \
      (SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1::name)";
/// By which the server's answer is known that somebody else has the slot (`duplicate_object`, `object_in_use`).
const TAKEN: [&str; 2] = ["42710", "55006"];

/// Why the log is not read any more.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Stream(#[from] PgWireError),
    #[error(transparent)]
    Server(#[from] StoreError),
    #[error("the log cannot be read: {0}")]
    Malformed(String),
    #[error("it did not begin within {START_LIMIT:?}; is a transaction open for as long?")]
    Slow,
    #[error("{0} bytes of log have gathered for it")]
    Behind(i64),
    #[error("the server has ended it")]
    Ended,
    #[error("another relay reads it")]
    Taken,
}

/// Reads until it is aborted, or the relay behind `line` has ended.
pub(super) async fn read(log: Arc<Log>, line: Arc<PushLine>) {
    let (mut said, mut waits) = (false, false);
    loop {
        let mut reader = Reader::new(&log, &line);
        let Err(broken) = reader.run(&mut said).await else { return };
        let place = log.server.place();
        // What it held is claimed, or is read again.
        line.wake();
        match broken {
            Broken::Taken if waits => {}
            Broken::Taken => {
                waits = true;
                tracing::info!(%place, slot = log.place.slot, "another relay reads the log; this one takes over when that ends");
            }
            broken if std::mem::replace(&mut said, true) => tracing::debug!(%place, error = %broken, "still not read"),
            broken => {
                waits = false;
                tracing::warn!(%place, slot = log.place.slot, error = %broken, "the log is not read; it is tried again");
            }
        }
        sleep(AGAIN).await;
    }
}

/// The server's clock by this process's: never behind it.
#[derive(Debug, Clone, Copy)]
struct ServerClock {
    at: Instant,
    millis: i64,
}

impl ServerClock {
    /// When the server's clock says `millis`, at the latest. `None`: that is over.
    fn until(&self, millis: i64, now: Instant) -> Option<Instant> {
        let after = u64::try_from(millis.saturating_sub(self.millis)).ok()?;
        self.at.checked_add(Duration::from_millis(after)).filter(|until| *until > now)
    }
}

struct Reader<'l> {
    log: &'l Log,
    line: &'l Arc<PushLine>,
    wire: Wire,
    clock: ServerClock,
    decoder: Decoder,
    /// In the middle of a transaction.
    within: bool,
    /// Too much has gathered: messages go into the table.
    too_much: bool,
    keeping: Vec<(i64, Outgoing)>,
    keeping_bytes: usize,
    beats: Interval,
}

impl<'l> Reader<'l> {
    fn new(log: &'l Log, line: &'l Arc<PushLine>) -> Self {
        let mut beats = interval(log.options.heartbeat.max(HEARTBEAT_MIN));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            log,
            line,
            wire: log.server.wire(),
            clock: ServerClock { at: Instant::now(), millis: 0 },
            decoder: Decoder::default(),
            within: false,
            too_much: false,
            keeping: Vec::new(),
            keeping_bytes: 0,
            beats,
        }
    }

    /// `Ok`: the relay has ended.
    async fn run(&mut self, said: &mut bool) -> Result<(), Broken> {
        let mut client = timeout(START_LIMIT, self.start()).await.map_err(|_| Broken::Slow)??;
        if std::mem::take(said) {
            tracing::info!(place = %self.log.server.place(), slot = self.log.place.slot, "the log is read again");
        }
        // What was stored before is not told.
        self.line.wake();
        loop {
            tokio::select! {
                biased;
                () = self.log.moved.notified() => {}
                _ = self.beats.tick() => self.beat().await?,
                event = client.recv() => {
                    let event = event?.ok_or(Broken::Ended)?;
                    if !self.take(event, &client).await? {
                        return Ok(());
                    }
                }
                // Nothing else is there at the moment.
                () = ready(()), if !self.keeping.is_empty() => self.keep().await?,
            }
            client.update_applied_lsn(Lsn::from_u64(self.log.ledger().reached()));
        }
    }

    async fn start(&mut self) -> Result<ReplicationClient, Broken> {
        let (log, slot) = (self.log, &self.log.place.slot);
        let keeps_rows = log.options.keeps_rows;
        let mut config = log.place.config().with_status_interval(TELL_EVERY);
        config = config.with_buffer_size(BUFFER).with_binary(true).with_application_name("hapax");
        let mut from = 0;
        let mut system = 0;
        if !keeps_rows {
            match log.place.keep_slot(&log.server).await? {
                Found::Taken => return Err(Broken::Taken),
                Found::Free => (from, system) = self.read_before().await?,
                Found::New => {}
            }
            config = config.with_start_lsn(Lsn::from_u64(from));
        }
        let mut client = ReplicationClient::connect_gated(config).await?;
        let identity = client.identify_system().await?;
        let this = identity.system_id.parse::<u64>().map_err(|e| Broken::Malformed(e.to_string()))?;
        let this = log_of(this, identity.timeline);
        if from != 0 && (system != this || identity.xlogpos.as_u64() < from) {
            // What is stored is of another log, as after a restore, or when a standby was promoted: a place in it means nothing
            // here, and would skip what was not read.
            self.forget().await?;
            return Err(Broken::Malformed(
                "what is stored of it is of another server, or of before this one was promoted; it is read from its slot's \
                 place on"
                    .into(),
            ));
        }
        if keeps_rows {
            let create = format!("CREATE_REPLICATION_SLOT \"{slot}\" TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT");
            client.simple_query(&create).await.map_err(of_slot)?;
        }
        client.start().await?;
        client.wait_started().await.map_err(of_slot)?;
        log.ledger().begin(from, this);
        self.beat().await?;
        Ok(client)
    }

    /// How far, and of which server.
    async fn read_before(&mut self) -> Result<(u64, i64), Broken> {
        let rows = self.wire.read(&self.log.server.text(storing::READ), PgArguments::default()).await;
        let rows = rows.map_err(|fault| self.log.error("reading the log", &fault))?;
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.try_get::<&str, _>(0).ok() == Some(name));
            row.and_then(|row| row.try_get::<i64, _>(1).ok()).unwrap_or_default()
        };
        Ok((value("log_read").cast_unsigned(), value("log_system")))
    }

    async fn forget(&mut self) -> Result<(), Broken> {
        let forgotten = self.wire.write(&self.log.server.text(storing::FORGET), PgArguments::default()).await;
        forgotten.map(drop).map_err(|fault| self.log.error("reading the log", &fault).into())
    }

    /// Whether the relay goes on.
    async fn take(&mut self, event: ReplicationEvent, client: &ReplicationClient) -> Result<bool, Broken> {
        match event {
            ReplicationEvent::Begin { .. } => self.within = true,
            ReplicationEvent::XLogData { data, .. } if self.log.options.keeps_rows => {
                return self.row(data, client).await;
            }
            ReplicationEvent::Message { transactional: true, prefix, content, lsn }
                if !self.log.options.keeps_rows && prefix == self.log.place.prefix =>
            {
                return self.message(&content, lsn, client).await;
            }
            ReplicationEvent::Commit { end_lsn, .. } => {
                self.within = false;
                self.log.ledger().end(end_lsn.as_u64());
            }
            // The server says how far it is, and that nothing of it is for this outbox: what others write need not be kept.
            ReplicationEvent::KeepAlive { wal_end, .. } if !self.within => self.log.ledger().end(wal_end.as_u64()),
            _ => {}
        }
        Ok(true)
    }

    async fn row(&mut self, data: Bytes, client: &ReplicationClient) -> Result<bool, Broken> {
        let Some(LoggedRow { row, token, until }) = self.decoder.read(data).map_err(Broken::Malformed)? else {
            return Ok(true);
        };
        // What comes too late is claimed by now, and what cannot be read has failed once it is claimed.
        let Some(until) = self.clock.until(until, Instant::now()) else { return Ok(true) };
        let claim = claim(row.id, token);
        let Ok(outgoing) = row.outgoing() else { return Ok(true) };
        self.hand(Pushed { claim, until, outgoing }, client).await
    }

    async fn message(&mut self, content: &[u8], lsn: Lsn, client: &ReplicationClient) -> Result<bool, Broken> {
        let outgoing = match record::decode_outgoing(content) {
            Ok(outgoing) => outgoing,
            // Of a newer version of this program: it waits for one that can read it, as long as the log may be kept.
            Err(error @ CodecError::UnknownSchema { .. }) if !self.too_much => {
                return Err(Broken::Malformed(format!("at {lsn}: {error}")));
            }
            Err(error) => return self.set_aside(content, lsn, &error.to_string()).await,
        };
        let id = outgoing.envelope.message_id.clone();
        if id.as_uuid().is_none() {
            return self.set_aside(content, lsn, &format!("its id `{id}` is not a UUID")).await;
        }
        let number = self.log.ledger().open(&outgoing);
        if self.too_much {
            self.keeping_bytes += outgoing.envelope.size();
            self.keeping.push((number, outgoing));
            if self.keeping.len() >= KEPT_AT_ONCE || self.keeping_bytes >= KEPT_BYTES {
                self.keep().await?;
            }
            return Ok(true);
        }
        let claim = Claim { id, token: -number };
        self.hand(Pushed { claim, until: Instant::now() + FOR_EVER, outgoing }, client).await
    }

    /// What is no message of hapax's, in whoever's name it was written: its bytes are in the table as a message that has failed, until a
    /// person decides, and what comes behind it goes on. Read again, it is the same one.
    async fn set_aside(&mut self, content: &[u8], lsn: Lsn, why: &str) -> Result<bool, Broken> {
        let place = self.log.server.place();
        let hash = Sha256::new().chain_update(lsn.as_u64().to_be_bytes()).chain_update(content).finalize();
        let id = hash.first_chunk::<16>().map(|bytes| uuid::Builder::from_custom_bytes(*bytes).into_uuid());
        let (Some(id), Ok(unreadable)) = (id, TypeName::parse(UNREADABLE)) else { return Ok(true) };
        let reason = format!("in the server's log at {lsn}, and cannot be read: {why}");
        tracing::error!(%place, message_id = %id, reason, "a message is set aside as failed");
        let envelope = Envelope::new(MessageId::from(id), unreadable.clone(), content.to_vec());
        let outgoing = Outgoing { destination: Destination::Topic(unreadable), envelope: envelope.into() };
        let number = self.log.ledger().open(&outgoing);
        self.log.keep(&[number], &[Kept::failed(outgoing, &reason)]).await?;
        Ok(true)
    }

    /// Waits for room. Meanwhile the server is told how far the log was read, and looked after.
    async fn hand(&mut self, pushed: Pushed, client: &ReplicationClient) -> Result<bool, Broken> {
        let line = self.line.clone();
        let hand = line.hand(pushed);
        tokio::pin!(hand);
        loop {
            tokio::select! {
                biased;
                _ = &mut hand => return Ok(!line.is_closed()),
                () = self.log.moved.notified() => {
                    client.update_applied_lsn(Lsn::from_u64(self.log.ledger().reached()));
                }
                _ = self.beats.tick() => {
                    self.beat().await?;
                    if self.too_much {
                        return Ok(true); // It was put into the table.
                    }
                }
            }
        }
    }

    /// Looks at the server's clock, and how much log is kept.
    async fn beat(&mut self) -> Result<(), Broken> {
        let (log, at) = (self.log, Instant::now());
        let mut arguments = PgArguments::default();
        arguments.bind(log.place.slot.clone());
        let rows = self.wire.read(&log.server.text(BEAT), arguments).await;
        let rows = rows.map_err(|fault| log.error("looking at the server's log", &fault))?;
        let number = |at: usize| rows.first().and_then(|row| row.try_get::<Option<i64>, _>(at).ok().flatten());
        let millis = number(0).ok_or_else(|| Broken::Malformed("the server has no clock".into()))?;
        self.clock = ServerClock { at, millis };
        let lag = number(1).unwrap_or_default();
        let most = i64::try_from(log.options.lag_bytes_max).unwrap_or(i64::MAX);
        if lag <= most {
            self.too_much &= lag > most / 2;
            return Ok(());
        }
        if log.options.keeps_rows {
            return Err(Broken::Behind(lag));
        }
        if !std::mem::replace(&mut self.too_much, true) {
            let place = log.server.place();
            tracing::warn!(%place, lag, "too much log has gathered: messages are put into the table until it is read");
            // Those that the relay has as well: where it sends them after all, they are sent twice.
            self.keeping = log.ledger().all();
            self.keep().await?;
        }
        Ok(())
    }

    /// Puts what was gathered into the table.
    async fn keep(&mut self) -> Result<(), Broken> {
        let keeping = std::mem::take(&mut self.keeping);
        self.keeping_bytes = 0;
        for part in keeping.chunks(KEPT_AT_ONCE) {
            let numbers: Vec<i64> = part.iter().map(|(number, _)| *number).collect();
            let kept: Vec<Kept> = part.iter().map(|(_, outgoing)| Kept::waiting(outgoing.clone())).collect();
            self.log.keep(&numbers, &kept).await?;
        }
        self.line.wake();
        Ok(())
    }
}

/// By which a server's log is known. A standby that is promoted has the system identifier of the server before it, and another
/// timeline: its log goes on where it had got to, and the old server may have been further.
const fn log_of(system: u64, timeline: u32) -> i64 {
    (system ^ timeline as u64).cast_signed()
}

/// Whether somebody else has the slot.
fn of_slot(error: PgWireError) -> Broken {
    let text = error.to_string();
    if TAKEN.iter().any(|state| text.contains(state)) { Broken::Taken } else { Broken::Stream(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use tokio::time::Instant;

    use super::ServerClock;

    #[test]
    fn a_lease_is_over_here_before_it_is_on_the_server() {
        let now = Instant::now();
        let clock = ServerClock { at: now, millis: 1_000 };
        assert_eq!(clock.until(1_500, now), Some(now + Duration::from_millis(500)));
        assert_eq!(clock.until(1_500, now + Duration::from_millis(500)), None, "over");
        assert_eq!([clock.until(900, now), clock.until(i64::MIN, now)], [None, None], "over before it was looked at");
    }
}
