//! Messages that are not due yet. When they are due, and when a lease ends, is by the server's clock. A lease is known by a token
//! of its own, and not by a number that counts up: a standby that is promoted may give numbers again.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ids::{EndpointName, MessageId},
    ports::{Due, ErrorKind, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::time::timeout;

use super::{
    super::{
        rows::{as_i64, millis_of},
        schedule::{self, ASKING, CANCELLING, ENDING, LEASE_MAX, MESSAGE_BYTES_MAX, PUTTING, ROWS_MAX, TAKING},
    },
    Postgres,
    arguments::Bind,
    error::malformed,
    names::Names,
    statements::schedule::{CANCEL, done, next, put, take},
};

/// Envelopes of one statement, in bytes: far below what the server takes as one message.
const STATEMENT_BYTES_MAX: usize = 8 << 20;

/// Texts that are the same for the life of a store.
pub(super) struct Texts {
    put: Arc<str>,
    cancel: Arc<str>,
    take: Arc<str>,
    done: Arc<str>,
    next: Arc<str>,
}

impl Texts {
    pub(super) fn new(names: &Names) -> Self {
        let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
        Self { put: text(&put()), cancel: text(CANCEL), take: text(&take()), done: text(&done()), next: text(&next()) }
    }
}

#[async_trait]
impl Schedule for Postgres {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        ScheduleCapabilities { name: "postgres", message_bytes_max: MESSAGE_BYTES_MAX, durable: true }
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let rows = schedule::in_one_order(schedule::rows(messages, MESSAGE_BYTES_MAX)?);
        for rows in schedule::statements(&rows, STATEMENT_BYTES_MAX) {
            let mut arguments = PgArguments::default();
            arguments.bind(endpoint.as_str());
            arguments.bind(rows.iter().map(|row| &*row.message_id).collect::<Vec<&str>>());
            arguments.bind(rows.iter().map(|row| &*row.destination).collect::<Vec<&str>>());
            arguments.bind(rows.iter().map(|row| row.due_at).collect::<Vec<Option<i64>>>());
            arguments.bind(rows.iter().map(|row| &*row.envelope).collect::<Vec<&[u8]>>());
            self.scheduled(PUTTING, &self.0.texts.schedule.put, arguments).await?;
        }
        self.settle(PUTTING).await // One that was there already was not written, nor waited for.
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(ids.iter().map(ToString::to_string).collect::<Vec<String>>());
        let rows = self.scheduled(CANCELLING, &self.0.texts.schedule.cancel, arguments).await?;
        self.settle(CANCELLING).await?; // One that somebody else has just removed was not written, nor waited for.
        let gone = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>(0)).map_err(self.damaged(CANCELLING))?;
        Ok(usize::try_from(gone).unwrap_or_default())
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(schedule::within(take.within));
        arguments.bind(millis_of(take.lease.min(LEASE_MAX))).bind(as_i64(take.max.min(ROWS_MAX)));
        arguments.bind(as_i64(take.bytes_max)).bind(schedule::token());
        let rows = self.scheduled(TAKING, &self.0.texts.schedule.take, arguments).await?;
        let mut taken = Vec::with_capacity(rows.len());
        for row in &rows {
            taken.extend(self.taken(row).map_err(self.damaged(TAKING))?);
        }
        Ok(schedule::in_order(taken))
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        let (ids, tokens): (Vec<i64>, Vec<i64>) = schedule::places(receipts).into_iter().unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str()).bind(ids).bind(tokens);
        self.scheduled(ENDING, &self.0.texts.schedule.done, arguments).await.map(drop)
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(endpoint.as_str());
        let rows = self.read_alone(ASKING, &self.0.texts.schedule.next, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (due_at, now) = row.try_get(0).and_then(|due| Ok((due, row.try_get(1)?))).map_err(self.damaged(ASKING))?;
        Ok(Some(schedule::next(due_at, now)))
    }
}

impl Postgres {
    /// `None` for what cannot be read: then others are given all the same.
    fn taken(&self, row: &PgRow) -> Result<Option<schedule::Taken>, sqlx::Error> {
        let (id, token, due_at) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let taken = schedule::taken(id, token, due_at, row.try_get(3)?, row.try_get(4)?);
        if taken.is_none() {
            schedule::log_damaged(self.place(), id);
        }
        Ok(taken)
    }

    fn damaged(&self, operation: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |e| malformed(operation, self.place(), "a row of the schedule").caused_by(e)
    }

    /// A statement that writes, on a connection of the schedule's own, which is made when it is first needed. In a task of its own:
    /// dropped half-way, it would leave the connection in the middle of it.
    async fn scheduled(
        &self,
        operation: &'static str,
        sql: &Arc<str>,
        arguments: PgArguments,
    ) -> Result<Vec<PgRow>, StoreError> {
        let (link, sql) = (self.0.scheduling.clone(), sql.clone());
        let task = self.0.runtime.spawn(async move { link.lock().await.write_again(&sql, arguments).await });
        // It may have to wait for others there.
        let Ok(ended) = timeout(self.0.write_limit, task).await else {
            let why = format!("{}: it has taken longer than its limit; whether it was done is not known", self.place());
            return Err(StoreError::new(ErrorKind::UnknownOutcome, operation, why));
        };
        self.told(operation, ended)
    }
}
