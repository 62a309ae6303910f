//! Storing messages for whoever reads the log, and telling what has become of those that are in it alone.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    codec::record,
    envelope::Outgoing,
    ports::{Ended, Outcome, StoreError},
    relay::Ticket,
};
use sqlx::{PgConnection, postgres::PgArguments};

use super::{
    super::{
        super::{
            super::outbox::{Births, EnqueueError, Row, cut_reason, millis, status},
            arguments::Bind,
        },
        PostgresOutbox, columns, many, one,
        statements::{COLUMNS, columns_of},
    },
    Log,
};

/// `$1` slot: bytes that are kept for it; how often something was lost.
pub(super) const STATE: &str = "\
    SELECT (SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1::name), \
      (SELECT value FROM hapax.outbox_meta WHERE name = 'log_gaps')";

/// A slot was made. A gap, if there was one before: a row then. What was read lies in a log that is no more. That there was a slot
/// is kept apart from what was read: of one that is lost before the first message was sent nothing else would tell.
pub(super) const GAP: &str = "\
    WITH was AS (DELETE FROM hapax.outbox_meta WHERE name IN ('log_read', 'log_system') RETURNING name), \
    made AS (SELECT FROM hapax.outbox_meta WHERE name = 'log_slot'), \
    mark AS (INSERT INTO hapax.outbox_meta (name, value) VALUES ('log_slot', 1) ON CONFLICT (name) DO NOTHING) \
    INSERT INTO hapax.outbox_meta AS m (name, value) SELECT 'log_gaps', 1 \
    WHERE EXISTS (SELECT FROM was) OR EXISTS (SELECT FROM made) \
    ON CONFLICT (name) DO UPDATE SET value = m.value + 1 RETURNING 1";

/// How far it was read, and of which log.
pub(super) const READ: &str = "SELECT name, value FROM hapax.outbox_meta WHERE name IN ('log_read', 'log_system')";

/// What was read is of another log.
pub(super) const FORGET: &str = "DELETE FROM hapax.outbox_meta WHERE name IN ('log_read', 'log_system')";

/// `$1` a message, `$2` prefix. No rows: it is in the log when the transaction is committed.
const EMIT: &str = "SELECT pg_logical_emit_message(true, $2::text, $1::bytea)";
/// `$1` messages, `$2` prefix.
const EMIT_MANY: &str =
    "SELECT count(pg_logical_emit_message(true, $2::text, r.message)) FROM unnest($1::bytea[]) AS r (message)";

/// What became of messages that are in the log alone: those that are not over become rows, and the log is read up to here, as one.
/// [`COLUMNS`] as arrays, `$15` statuses, `$16` attempts, `$17` delays, `$18` errors, `$19` place, `$20` of which log.
pub(super) fn tell() -> String {
    format!(
        "WITH n AS MATERIALIZED (SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now), \
         i AS (INSERT INTO hapax.outbox ({COLUMNS}, status, attempts, ready_at, token, stored_at, ended_at, last_error) \
           SELECT {}, r.status, r.attempts, greatest(n.now + r.delay, r.due_at), 0, n.now, \
             CASE WHEN r.status <> 0 THEN n.now END, r.error \
           FROM n, unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
             $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bytea[], $15::smallint[], $16::int[], \
             $17::bigint[], $18::text[]) AS r ({COLUMNS}, status, attempts, delay, error) ON CONFLICT (id) DO NOTHING) \
         INSERT INTO hapax.outbox_meta AS m (name, value) VALUES ('log_read', $19::bigint), ('log_system', $20::bigint) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        columns_of("r")
    )
}

/// A message that becomes a row.
pub(super) struct Kept {
    pub(super) outgoing: Outgoing,
    pub(super) status: i16,
    pub(super) attempts: i32,
    pub(super) delay: Duration,
    pub(super) error: Option<String>,
}

impl Kept {
    /// One that was not tried.
    pub(super) const fn waiting(outgoing: Outgoing) -> Self {
        Self { outgoing, status: status::WAITS, attempts: 0, delay: Duration::ZERO, error: None }
    }

    /// One that will never be sent.
    pub(super) fn failed(outgoing: Outgoing, why: &str) -> Self {
        Self { status: status::FAILED, attempts: 1, error: Some(cut_reason(why)), ..Self::waiting(outgoing) }
    }

    /// `None`: it is over.
    fn of(outgoing: &Outgoing, outcome: &Outcome) -> Option<Self> {
        let kept = Self::waiting(outgoing.clone());
        match outcome {
            Outcome::Sent | Outcome::Expired => None,
            Outcome::GivenBack => Some(kept),
            Outcome::Later(delay, reason) => {
                Some(Self { attempts: 1, delay: *delay, error: Some(cut_reason(reason)), ..kept })
            }
            Outcome::Failed(reason) => Some(Self::failed(kept.outgoing, reason)),
        }
    }
}

impl PostgresOutbox {
    /// As [`PostgresOutbox::enqueue_all`], for whoever reads `log`.
    pub(in super::super) async fn enqueue_for_log(
        &self,
        log: &Log,
        tx: &mut PgConnection,
        messages: &[Outgoing],
    ) -> Result<Ticket, EnqueueError> {
        let line = self.line();
        let rows = messages.iter().map(|outgoing| self.0.writes.row(outgoing, line.as_deref()));
        let rows = rows.collect::<Result<Vec<Row>, EnqueueError>>()?;
        // What waits, or may expire, is claimed from the table when it is time.
        let (now, later): (Vec<_>, Vec<_>) =
            messages.iter().zip(rows).partition(|(outgoing, _)| Births::is_timeless(outgoing));
        let waits = !later.is_empty();
        let token = fastrand::i64(1..);
        let mut stored: Vec<(Row, i64)> = later.into_iter().map(|(_, row)| (row, 0)).collect();
        if log.options.keeps_rows {
            stored.extend(now.into_iter().map(|(_, row)| (row, token)));
        } else if !now.is_empty() {
            let now: Vec<&Outgoing> = now.into_iter().map(|(outgoing, _)| outgoing).collect();
            self.emit(log, tx, &now).await?;
        }
        if !stored.is_empty() {
            let (rows, tokens): (Vec<Row>, Vec<i64>) = stored.into_iter().unzip();
            let (text, mut arguments) = match &rows[..] {
                [row] => (&self.0.texts.enqueue_one, one(row, tokens[0])),
                rows => (&self.0.texts.enqueue_many, many(rows, &tokens)),
            };
            arguments.bind(millis(log.options.lease)).bind(None::<i64>);
            self.run(tx, text, arguments).await?;
        }
        // Nobody has to be told of what the log tells.
        let teller = waits.then(|| self.0.teller.clone() as Arc<dyn hapax_core::relay::Tell>);
        Ok(Ticket::waiting(line.filter(|_| waits), teller).storing(self.in_table()))
    }

    async fn emit(&self, log: &Log, tx: &mut PgConnection, messages: &[&Outgoing]) -> Result<(), EnqueueError> {
        let encoded = messages.iter().map(|outgoing| record::encode_outgoing(outgoing));
        let mut encoded = encoded.collect::<Result<Vec<_>, _>>().map_err(|e| EnqueueError::Refused(e.to_string()))?;
        let mut arguments = PgArguments::default();
        let text = if encoded.len() == 1 {
            arguments.bind(encoded.swap_remove(0));
            EMIT
        } else {
            arguments.bind(encoded);
            EMIT_MANY
        };
        arguments.bind(log.place.prefix.clone());
        self.run(tx, &text.into(), arguments).await
    }
}

impl Log {
    /// Numbers of messages in the log are told as tokens less than zero.
    pub(in super::super) fn is_of_log(&self, ended: &Ended) -> bool {
        !self.options.keeps_rows && ended.claim.token < 0
    }

    /// What has become of messages in the log. Those that are not known any more are over.
    pub(in super::super) async fn tell(&self, ended: &[&Ended]) -> Result<(), StoreError> {
        if ended.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = ended.iter().map(|ended| -ended.claim.token).collect();
        let kept: Vec<Kept> = {
            let ledger = self.ledger();
            ended.iter().filter_map(|e| Kept::of(ledger.get(-e.claim.token)?, &e.outcome)).collect()
        };
        self.keep(&numbers, &kept).await
    }

    /// `numbers` are over, since those of them that are not have become rows: `kept`.
    pub(super) async fn keep(&self, numbers: &[i64], kept: &[Kept]) -> Result<(), StoreError> {
        let mut wire = self.wire.lock().await;
        let (place, system) = {
            let ledger = self.ledger();
            (ledger.reaches(numbers), ledger.system())
        };
        let (rows, kept): (Vec<Row>, Vec<&Kept>) =
            kept.iter().filter_map(|kept| Some((Row::of(&kept.outgoing)?, kept))).unzip();
        let mut arguments = columns(&rows);
        bind_statuses(&mut arguments, &kept);
        arguments.bind(place.cast_signed()).bind(system);
        let told = wire.write(&self.server.text(&tell()), arguments).await;
        drop(wire);
        told.map_err(|fault| self.error("telling what became of messages in the log", &fault))?;
        self.ledger().close(numbers);
        self.moved.notify_one();
        Ok(())
    }
}

fn bind_statuses(arguments: &mut PgArguments, kept: &[&Kept]) {
    arguments.bind(kept.iter().map(|kept| kept.status).collect::<Vec<i16>>());
    arguments.bind(kept.iter().map(|kept| kept.attempts).collect::<Vec<i32>>());
    arguments.bind(kept.iter().map(|kept| millis(kept.delay)).collect::<Vec<i64>>());
    arguments.bind(kept.iter().map(|kept| kept.error.clone()).collect::<Vec<Option<String>>>());
}
