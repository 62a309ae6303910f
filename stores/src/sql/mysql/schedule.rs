//! Messages that are not due yet. When they are due, and when a lease ends, is by the server's clock. A lease is known by a token
//! of its own, and not by a number that counts up: a replica that is promoted may give numbers again.

use std::sync::Arc;

use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ids::{EndpointName, MessageId},
    ports::{Due, ErrorKind, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use tokio::time::timeout;

use super::{
    super::{
        rows::{as_i64, millis_of},
        schedule::{self, ASKING, CANCELLING, ENDING, LEASE_MAX, MESSAGE_BYTES_MAX, PUTTING, ROWS_MAX, Row, TAKING},
    },
    MySql,
    arguments::{Bind, Text},
    connection::{Answer, Link},
    error::{Failure, Races, malformed},
    names::Names,
    rows::{self, Columns},
    statements::{
        NOW,
        schedule::{
            AGAIN, AND_ENDPOINT, AND_LEASES, AND_MESSAGES, CANCEL, DONE, PUT, choose, given, lease, next, put_one,
        },
    },
};

/// Of what the server takes as one message, the part that the envelopes of one text have: each of their bytes is two there.
const TEXT_SHARE: usize = 4;
/// Envelopes of one text, in bytes: above it a text would cost more than the round trips that it saves.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// What one row of a text takes besides its envelope, in bytes.
const ROW_BYTES: usize = 256;

/// Texts that are the same for the life of a store.
pub(super) struct Texts {
    put: Arc<str>,
    put_one: Arc<str>,
    cancel: Arc<str>,
    given: Arc<str>,
    done: Arc<str>,
    next: Arc<str>,
}

impl Texts {
    pub(super) fn new(names: &Names) -> Self {
        let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
        Self {
            put: text(PUT),
            put_one: text(&put_one()),
            cancel: text(CANCEL),
            given: text(&given()),
            done: text(DONE),
            next: text(&next()),
        }
    }
}

#[async_trait]
impl Schedule for MySql {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        let message_bytes_max = MESSAGE_BYTES_MAX.min(self.0.entity_bytes_max);
        ScheduleCapabilities { name: "mysql", message_bytes_max, durable: true }
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        let bytes_max = self.schedule_capabilities().message_bytes_max;
        let rows = schedule::in_one_order(schedule::rows(messages, bytes_max)?);
        let text_bytes_max = (bytes_max / TEXT_SHARE).min(TEXT_BYTES_MAX);
        for rows in schedule::statements(&rows, text_bytes_max) {
            match rows {
                [row] if row.envelope.len() > text_bytes_max => self.put_alone(endpoint, row).await?,
                _ => drop(self.scheduled(PUTTING, Ask::Text(self.put_text(endpoint, rows))).await?),
            }
        }
        Ok(())
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        let mut gone = 0;
        for ids in ids.chunks(ROWS_MAX) {
            let mut text = Text::with_capacity(ROW_BYTES * (ids.len() + 1));
            text.sql(&self.0.texts.schedule.cancel).bytes(endpoint.as_str().as_bytes()).sql(AND_MESSAGES);
            for (at, id) in ids.iter().enumerate() {
                text.sql(if at == 0 { "" } else { ", " }).bytes(id.to_string().as_bytes());
            }
            text.sql(")");
            gone += self.scheduled(CANCELLING, Ask::Text(text)).await?.affected;
        }
        if gone == 0 {
            self.settle(CANCELLING).await?; // Somebody else may have removed them, which is no change of ours.
        }
        Ok(usize::try_from(gone).unwrap_or(usize::MAX))
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        let mut name = Text::with_capacity(ROW_BYTES);
        name.bytes(endpoint.as_str().as_bytes());
        let max = as_i64(take.max.min(ROWS_MAX));
        let choose = choose(name.as_str(), schedule::within(take.within), max, as_i64(take.bytes_max));
        let lease = lease(millis_of(take.lease.min(LEASE_MAX)), schedule::token());
        let mut text = Text::with_capacity(4 * ROW_BYTES);
        text.sql(&self.0.names.put_into(&choose)).end().sql(&self.0.names.put_into(&lease)).end();
        text.sql(&self.0.texts.schedule.given);
        let given = self.scheduled(TAKING, Ask::Transaction(text)).await?.rows;
        let mut taken = Vec::with_capacity(given.len());
        for row in &given {
            taken.extend(self.taken(row).map_err(self.damaged(TAKING))?);
        }
        Ok(schedule::in_order(taken))
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        for places in schedule::places(receipts).chunks(ROWS_MAX) {
            let mut text = Text::with_capacity(ROW_BYTES * (places.len() + 1));
            text.sql(&self.0.texts.schedule.done);
            for (at, (id, _)) in places.iter().enumerate() {
                text.sql(if at == 0 { "" } else { ", " }).number(*id);
            }
            text.sql(AND_LEASES);
            for (at, (id, token)) in places.iter().enumerate() {
                text.sql(if at == 0 { "(" } else { ", (" }).number(*id).sql(", ").number(*token).sql(")");
            }
            text.sql(AND_ENDPOINT).bytes(endpoint.as_str().as_bytes());
            self.scheduled(ENDING, Ask::Text(text)).await?;
        }
        Ok(())
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes());
        let rows = self.read_alone(ASKING, &self.0.texts.schedule.next, arguments).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (due_at, now) = row.number(0).and_then(|due| Ok((due, row.number(1)?))).map_err(self.damaged(ASKING))?;
        Ok(Some(schedule::next(due_at, now)))
    }
}

impl MySql {
    fn put_text(&self, endpoint: &EndpointName, rows: &[Row]) -> Text {
        let bytes: usize = rows.iter().map(|row| 2 * row.envelope.len() + ROW_BYTES).sum();
        let mut text = Text::with_capacity(bytes);
        for (at, row) in rows.iter().enumerate() {
            text.sql(if at == 0 { &self.0.texts.schedule.put } else { ", " });
            text.sql("(").bytes(endpoint.as_str().as_bytes()).sql(", ").bytes(row.message_id.as_bytes()).sql(", ");
            text.bytes(row.destination.as_bytes()).sql(", ");
            match row.due_at {
                Some(due_at) => text.number(due_at),
                None => text.sql(NOW),
            };
            text.sql(", ").number(as_i64(row.envelope.len())).sql(", ").bytes(&row.envelope).sql(")");
        }
        text.sql(AGAIN);
        text
    }

    /// One that is too large for a text.
    async fn put_alone(&self, endpoint: &EndpointName, row: &Row) -> Result<(), StoreError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(row.message_id.as_bytes());
        arguments.bind(row.destination.as_bytes()).bind(row.due_at).bind(as_i64(row.envelope.len()));
        arguments.bind(&*row.envelope);
        let ask = Ask::Prepared(self.0.texts.schedule.put_one.clone(), arguments);
        self.scheduled(PUTTING, ask).await.map(drop)
    }

    /// `None` for what cannot be read: then others are given all the same.
    fn taken(&self, row: &MySqlRow) -> Result<Option<schedule::Taken>, sqlx::Error> {
        let (id, token, due_at) = (row.number(0)?, row.number(1)?, row.number(2)?);
        let taken = schedule::taken(id, token, due_at, rows::text(row, 3)?, row.bytes(4)?.unwrap_or_default());
        if taken.is_none() {
            schedule::log_damaged(self.place(), id);
        }
        Ok(taken)
    }

    fn damaged(&self, operation: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |e| malformed(operation, self.place(), "a row of the schedule").caused_by(e)
    }

    /// What writes, on a connection of the schedule's own, which is made when it is first needed; begun again where it lost a race
    /// with others: then nothing of it was kept. In a task of its own: dropped half-way, it would leave the connection in the middle
    /// of it. The answer to its last statement.
    async fn scheduled(&self, operation: &'static str, ask: Ask) -> Result<Answer, StoreError> {
        let link = self.0.scheduling.clone();
        let task = self.0.runtime.spawn(async move {
            let mut link = link.lock().await;
            let mut races = Races::default();
            loop {
                match ask.run(&mut link).await {
                    Err(failure) if failure.is_of_a_race() && races.allow(&failure) => {}
                    done => return done,
                }
            }
        });
        // It may have to wait for others there.
        match timeout(self.0.write_limit, task).await {
            Ok(Ok(done)) => done.map_err(|failure| failure.store_error(operation, self.place())),
            Ok(Err(_)) => Err(self.closed(operation)),
            Err(_) => {
                let place = self.place();
                let why = format!("{place}: it has taken longer than its limit; whether it was done is not known");
                Err(StoreError::new(ErrorKind::UnknownOutcome, operation, why))
            }
        }
    }
}

/// What is asked of the server.
enum Ask {
    /// One statement.
    Text(Text),
    /// Several, in a transaction of their own.
    Transaction(Text),
    Prepared(Arc<str>, MySqlArguments),
}

impl Ask {
    async fn run(&self, link: &mut Link) -> Result<Answer, Failure> {
        match self {
            Self::Text(text) => link.write_text(text.clone()).await,
            Self::Transaction(text) => Ok(link.transaction(text.clone()).await?.pop().unwrap_or_default()),
            Self::Prepared(sql, arguments) => link.write(sql, arguments.clone()).await,
        }
    }
}
