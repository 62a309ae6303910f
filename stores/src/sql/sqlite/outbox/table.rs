//! What a relay asks of the table.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    ports::{Care, Cared, Claim, Claimed, Instance, OutboxState, OutboxTable, StoreError, Tick, Ticked},
    relay::PushLine,
};
use sqlx::{Row as _, sqlite::SqliteRow};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{Looked, Row, attach, claim, cut, detach},
        error::{Failure, Place},
        rows::now,
    },
    SqliteOutbox, care, lane_of,
    statements::{self, row},
    tick::{self, Way},
    write,
};

#[async_trait]
impl OutboxTable for SqliteOutbox {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_ordered(&self) -> bool {
        self.0.ordered
    }

    /// SQLite tells nobody.
    fn is_told(&self) -> bool {
        false
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        let attaches = attach(&self.0.line, line);
        if attaches {
            *self.0.looked.lock().unwrap_or_else(PoisonError::into_inner) = Looked::default();
        }
        attaches
    }

    fn detach(&self, line: &Arc<PushLine>) {
        detach(&self.0.line, line);
    }

    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        const OPERATION: &str = "relaying an outbox";
        let way = self.way(tick);
        let (text, statements) = tick::script(tick, way).end();
        let ran = write(&self.0.relay, text, statements).await;
        let ran = ran.map_err(|failure| failure.store_error(OPERATION, &self.0.name))?;
        let said = Said::of(&ran.rows, tick);
        let said = said.map_err(|error| Failure::new(error, Place::Commit).store_error(OPERATION, &self.0.name))?;
        Ok(self.ticked(tick, way, said))
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        care::remove(&self.0, care).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        care::state(&self.0).await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        let (text, statements) = statements::leave(instance.id).end();
        let left = write(&self.0.relay, text, statements).await;
        self.0.relay.lock().await.close().await;
        left.map(drop).map_err(|failure| failure.store_error("leaving an outbox", &self.0.name))
    }
}

impl SqliteOutbox {
    fn way(&self, tick: &Tick) -> Way {
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let (ordered, now) = (self.0.ordered, now());
        if looked.up_to > now {
            *looked = Looked::default(); // The host's clock was set back: what was ready before it came there is to be looked for again.
        }
        let looks = tick.claiming.is_some_and(|claiming| !claiming.again);
        let from = match (looks, ordered) {
            (false, _) => 0,
            (true, true) => looked.after.unwrap_or(-1),
            (true, false) => looked.start(Instant::now()),
        };
        Way { ordered, now, from }
    }

    fn ticked(&self, tick: &Tick, way: Way, said: Said) -> Ticked {
        let Said { forgotten, ended, renewed, claimed, next, mut last } = said;
        let claiming = tick.claiming.filter(|_| !(way.ordered && tick.joins));
        let looks = claiming.is_some_and(|claiming| !claiming.again);
        let bytes = || claimed.iter().filter_map(|row| row.outgoing.as_ref().ok()).map(|row| row.envelope.body.len());
        let mut more = looks
            && claiming.is_some_and(|wanted| claimed.len() >= wanted.rows || bytes().sum::<usize>() >= wanted.bytes);
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if way.ordered {
            if let Some(wanted) = claiming.filter(|_| looks) {
                last = cut(&claimed, wanted, |row| lane_of(row.key.as_deref(), &row.claim.id)).or(last);
            }
            // What was not looked for is looked for next.
            more |= last.is_some() || tick.claiming.is_some() && claiming.is_none();
            if looks {
                looked.after = last;
            }
        } else if looks && !more {
            looked.up_to = way.now;
        }
        let until = |at: i64| Duration::from_millis(u64::try_from(at.saturating_sub(way.now)).unwrap_or_default());
        Ticked { forgotten, ended, renewed, claimed, more, next: next.map(until) }
    }
}

/// What rows of an answer have said.
#[derive(Debug, Default)]
struct Said {
    forgotten: bool,
    ended: usize,
    renewed: Vec<Claim>,
    claimed: Vec<Claimed>,
    next: Option<i64>,
    last: Option<i64>,
}

impl Said {
    fn of(rows: &[SqliteRow], tick: &Tick) -> Result<Self, sqlx::Error> {
        let mut said = Self::default();
        for read in rows {
            let number: i64 = read.try_get(1)?;
            match read.try_get::<i64, _>(0)? {
                row::ENDED => said.ended += usize::try_from(number).unwrap_or_default(),
                row::RENEWED => said.renewed.push(claim(id(read, 2)?, number)),
                row::CLAIMED => said.claimed.push(claimed(read, tick)?),
                row::NEXT => said.next = Some(number),
                row::ALIVE => said.forgotten = number == 0,
                row::LANE => said.last = Some(number),
                _ => {}
            }
        }
        Ok(said)
    }
}

fn claimed(read: &SqliteRow, tick: &Tick) -> Result<Claimed, sqlx::Error> {
    let id = id(read, 3)?;
    let outgoing = message(read, 3);
    Ok(Claimed {
        claim: claim(id, tick.claiming.map_or(0, |claiming| claiming.token)),
        attempts: u32::try_from(read.try_get::<i64, _>(1)?).unwrap_or_default(),
        expired: read.try_get::<i64, _>(2)? != 0,
        key: read.try_get(5)?,
        outgoing: outgoing.map_err(|error| error.to_string()).and_then(Row::outgoing),
    })
}

pub(super) fn id(read: &SqliteRow, at: usize) -> Result<Uuid, sqlx::Error> {
    Uuid::from_slice(read.try_get(at)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The columns of a message, from `first` on.
pub(super) fn message(read: &SqliteRow, first: usize) -> Result<Row, sqlx::Error> {
    Ok(Row {
        id: id(read, first)?,
        destination: read.try_get(first + 1)?,
        key: read.try_get(first + 2)?,
        message_type: read.try_get(first + 3)?,
        content_type: read.try_get(first + 4)?,
        correlation_id: read.try_get(first + 5)?,
        causation_id: read.try_get(first + 6)?,
        tenant: read.try_get(first + 7)?,
        traceparent: read.try_get(first + 8)?,
        occurred_at: read.try_get(first + 9)?,
        due_at: read.try_get(first + 10)?,
        expires_at: read.try_get(first + 11)?,
        headers: read.try_get(first + 12)?,
        body: Bytes::from(read.try_get::<Vec<u8>, _>(first + 13)?),
    })
}
