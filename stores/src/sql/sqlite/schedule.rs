//! Messages that are not due yet. SQLite runs on this host, so the clock is this one.

use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ids::{EndpointName, MessageId},
    ports::{Due, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
};
use sqlx::{Row, sqlite::SqliteArguments};

use super::{
    super::{
        rows::{as_i64, millis_of},
        schedule::{self, ASKING, CANCELLING, ENDING, LEASE_MAX, MESSAGE_BYTES_MAX, PUTTING, TAKING},
    },
    Sqlite,
    arguments::Bind,
    error::malformed,
    rows::{Array, now},
    statements::schedule::{CANCEL, DONE, NEXT, PUT, TAKE},
};

/// Envelopes of one statement, in bytes: far below what SQLite takes as one value.
const STATEMENT_BYTES_MAX: usize = 8 << 20;
/// What one row of an array takes, in bytes.
const ROW_BYTES: usize = 128;

#[async_trait]
impl Schedule for Sqlite {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        ScheduleCapabilities { name: "sqlite", message_bytes_max: MESSAGE_BYTES_MAX, durable: true }
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        let rows = schedule::rows(messages, MESSAGE_BYTES_MAX)?;
        for rows in schedule::statements(&rows, STATEMENT_BYTES_MAX) {
            let mut array = Array::with_room(rows.len(), ROW_BYTES, rows.iter().map(|row| row.envelope.len()).sum());
            for row in rows {
                let due_at = row.due_at.unwrap_or_else(now);
                array.push(&(&*row.message_id, &*row.destination, due_at, array.blob.len(), row.envelope.len()));
                array.blob.extend_from_slice(&row.envelope);
            }
            let (json, blob) = array.close();
            let mut arguments = SqliteArguments::default();
            arguments.bind(endpoint.as_str()).bind(json).bind(blob);
            self.write_alone(PUTTING, PUT, 1, arguments).await?;
        }
        Ok(())
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut array = Array::with_room(ids.len(), ROW_BYTES, 0);
        ids.iter().for_each(|id| array.push(&id.to_string()));
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(array.close().0);
        let ran = self.write_alone(CANCELLING, CANCEL, 1, arguments).await?;
        Ok(ran.changed.first().map_or(0, |gone| usize::try_from(*gone).unwrap_or(usize::MAX)))
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        let now = now();
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(now.saturating_add(millis_of(take.within))).bind(now);
        arguments.bind(now.saturating_add(millis_of(take.lease.min(LEASE_MAX)))).bind(as_i64(take.max));
        arguments.bind(as_i64(take.bytes_max));
        let ran = self.write_alone(TAKING, TAKE, 1, arguments).await?;
        let mut taken = Vec::with_capacity(ran.rows.len());
        for row in &ran.rows {
            let damaged = |e: sqlx::Error| malformed(TAKING, self.file(), "a row of the schedule").caused_by(e);
            let id = row.try_get(0).map_err(damaged)?;
            let (times, due_at) = (row.try_get(1).map_err(damaged)?, row.try_get(2).map_err(damaged)?);
            let (destination, envelope) = (row.try_get(3).map_err(damaged)?, row.try_get(4).map_err(damaged)?);
            match schedule::taken(id, times, due_at, destination, envelope) {
                Some(due) => taken.push(due),
                None => schedule::log_damaged(self.file(), id),
            }
        }
        Ok(schedule::in_order(taken))
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        let places = schedule::places(receipts);
        if places.is_empty() {
            return Ok(());
        }
        let mut array = Array::with_room(places.len(), ROW_BYTES, 0);
        places.iter().for_each(|place| array.push(place));
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(array.close().0);
        self.write_alone(ENDING, DONE, 1, arguments).await.map(drop)
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str());
        let rows = self.read_alone(ASKING, NEXT, arguments).await?;
        let damaged = |e: sqlx::Error| malformed(ASKING, self.file(), "a row of the schedule").caused_by(e);
        let due_at = rows.first().map(|row| row.try_get(0)).transpose().map_err(damaged)?;
        Ok(due_at.map(|due_at| schedule::next(due_at, now())))
    }
}
