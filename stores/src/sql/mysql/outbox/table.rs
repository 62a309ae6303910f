//! What a relay asks of the table.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    ports::{
        Care, Cared, Claimed, Claiming, Ended, Instance, OutboxState, OutboxTable, Outcome, StoreError, Tick, Ticked,
    },
    relay::PushLine,
};
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use super::{
    super::{
        super::{
            columns::Columns as _,
            outbox::{Looked, Row, attach, claim, cut, detach},
            races::Races,
        },
        rows,
        wire::{Answer, Fault, Wire},
    },
    MySqlOutbox, care, lane_of,
    ordered::{self, Shares},
    parts,
    statements::row,
    tick::{self, Script, Way},
};

const OPERATION: &str = "relaying an outbox";
/// Rows of one claim, or of one batch of removing. The server makes a list of their numbers, and cuts it at a megabyte.
pub(super) const ROWS_MAX: usize = 10_000;
/// What a claim takes in a text, twice if it is renewed.
const RENEWED_BYTES: usize = 260;

#[async_trait]
impl OutboxTable for MySqlOutbox {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_ordered(&self) -> bool {
        self.0.ordered
    }

    /// The server tells nobody.
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
        // A list of numbers that the server makes has a limit.
        let claiming = tick.claiming.map(|claiming| Claiming { rows: claiming.rows.min(ROWS_MAX), ..claiming });
        let limit = self.0.server.packet_bytes_max() / 2;
        let size: usize = tick.ended.iter().map(size_of_ended).sum::<usize>() + tick.renewed.len() * RENEWED_BYTES;
        if size <= limit {
            return if claiming == tick.claiming {
                self.tick_once(tick).await
            } else {
                self.tick_once(&Tick { claiming, ..tick.clone() }).await
            };
        }
        // More than fits into what the server takes: first what is over, then what goes on, then what is wanted.
        let alone = || Tick { ended: Vec::new(), renewed: Vec::new(), claiming: None, ..tick.clone() };
        let (mut ended, mut renewed) = (0, Vec::new());
        for part in parts(&tick.ended, limit, size_of_ended) {
            ended += self.tick_once(&Tick { ended: part.to_vec(), ..alone() }).await?.ended;
        }
        for part in parts(&tick.renewed, limit, |_| RENEWED_BYTES) {
            renewed.extend(self.tick_once(&Tick { renewed: part.to_vec(), ..alone() }).await?.renewed);
        }
        let last = self.tick_once(&Tick { claiming, ..alone() }).await?;
        Ok(Ticked { ended, renewed, ..last })
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        care::remove(&self.0, care).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        care::state(&self.0).await
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        let mut wire = self.0.relay.lock().await;
        let mut races = Races::default();
        let left = loop {
            match wire.transaction(tick::leave(&self.0.server, instance.id)).await {
                Err(fault) if fault.is_of_a_race() && races.allow(fault.is_of_a_wait()) => {}
                left => break left,
            }
        };
        wire.close().await;
        left.map(drop).map_err(|fault| fault.store_error("leaving an outbox", &self.0.name))
    }
}

/// What it takes in a text, about.
fn size_of_ended(ended: &Ended) -> usize {
    let reason = match &ended.outcome {
        Outcome::Later(_, reason) | Outcome::Failed(reason) => reason.len(),
        Outcome::Sent | Outcome::Expired | Outcome::GivenBack => 0,
    };
    RENEWED_BYTES + 2 * reason
}

impl MySqlOutbox {
    async fn tick_once(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let way = self.way(tick);
        let mut wire = self.0.relay.lock().await;
        let mut races = Races::default();
        let answered = loop {
            match self.ask(&mut wire, tick, way).await {
                Err(fault) if fault.is_of_a_race() && races.allow(fault.is_of_a_wait()) => {}
                answered => break answered,
            }
        };
        drop(wire);
        let rows = answered.map_err(|fault| fault.store_error(OPERATION, &self.0.name))?;
        let answer = Said::of(&rows, tick);
        let answer = answer.map_err(|error| Fault::of_answer(error).store_error(OPERATION, &self.0.name))?;
        Ok(self.ticked(tick, way, answer))
    }

    fn way(&self, tick: &Tick) -> Way {
        let (mut looked, now) = (self.0.looked.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let ordered = self.0.ordered;
        let claims = tick.claiming.filter(|claiming| !(claiming.again || ordered && tick.joins)).is_some();
        let shares = ordered && claims && looked.shares(now, tick.lease);
        let from = match (claims && !shares, ordered) {
            (false, _) => 0,
            (true, true) => looked.after.unwrap_or(-1),
            (true, false) => looked.start(now),
        };
        Way { ordered, shares, from, depth: ordered::depth(tick.claiming, looked.lanes) }
    }

    async fn ask(&self, wire: &mut Wire, tick: &Tick, way: Way) -> Result<Vec<MySqlRow>, Fault> {
        let server = &self.0.server;
        let text = tick::script(server, tick, way).text();
        if !way.shares {
            return Ok(all(wire.transaction(text).await?));
        }
        let rows = all(wire.begin(text).await?);
        let said = match Said::of(&rows, tick) {
            Ok(said) => said,
            Err(error) => {
                wire.roll_back().await;
                return Err(Fault::of_row(error));
            }
        };
        let mut script = Script::new(server);
        if !said.forgotten {
            ordered::share(&mut script, tick.instance.id, &said.shares);
        }
        wire.commit(script.text()).await?;
        Ok(rows)
    }

    fn ticked(&self, tick: &Tick, way: Way, said: Said) -> Ticked {
        let Said { forgotten, ended, renewed, claimed, mut more, now, next, mut last, lanes, .. } = said;
        let claiming = way.claiming(tick);
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = claiming.is_some_and(|claiming| !claiming.again);
        if self.0.ordered {
            if let Some(wanted) = claiming.filter(|_| looks) {
                last = cut(&claimed, wanted, |row| lane_of(row.key.as_deref(), &row.claim.id)).or(last);
                looked.lanes = lanes;
            }
            // What was not looked for is looked for next.
            more |= last.is_some() || tick.claiming.is_some() && claiming.is_none();
            if looks {
                looked.after = last;
            }
            if forgotten {
                looked.forget_shares();
            }
        } else if looks && !more {
            looked.up_to = now;
        }
        let until = |at: i64| Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or_default());
        Ticked { forgotten, ended, renewed, claimed, more, next: next.map(until) }
    }
}

fn all(answers: Vec<Answer>) -> Vec<MySqlRow> {
    answers.into_iter().flat_map(|answer| answer.rows).collect()
}

/// What rows of an answer have said.
#[derive(Debug, Default)]
struct Said {
    forgotten: bool,
    ended: usize,
    renewed: Vec<hapax_core::ports::Claim>,
    claimed: Vec<Claimed>,
    more: bool,
    now: i64,
    next: Option<i64>,
    last: Option<i64>,
    lanes: i64,
    shares: Shares,
}

impl Said {
    fn of(rows: &[MySqlRow], tick: &Tick) -> Result<Self, sqlx::Error> {
        let mut said = Self::default();
        for read in rows {
            let number = read.number(1)?;
            match read.number(0)? {
                row::ENDED => said.ended += usize::try_from(number).unwrap_or_default(),
                row::RENEWED => said.renewed.push(claim(id(read, 2)?, number)),
                row::CLAIMED => said.claimed.push(claimed(read, tick)?),
                row::MORE => said.more = number == 1,
                row::NOW => said.now = number,
                row::NEXT => said.next = Some(number),
                row::ALIVE => said.forgotten = number == 0,
                row::LANE => said.last = Some(number),
                row::LANES => said.lanes = number,
                row::SHARES => (said.shares.relays, said.shares.mine) = (number, read.number(2)?),
                row::GONE => said.shares.gone.push(number),
                row::BUSY => said.shares.busy.push(number),
                _ => {}
            }
        }
        Ok(said)
    }
}

fn claimed(read: &MySqlRow, tick: &Tick) -> Result<Claimed, sqlx::Error> {
    let id = id(read, 3)?;
    let token = tick.claiming.map_or(0, |claiming| claiming.token);
    let outgoing = message(read, 3);
    Ok(Claimed {
        claim: claim(id, token),
        attempts: u32::try_from(read.number(1)?).unwrap_or_default(),
        expired: read.number(2)? != 0,
        // Whatever is wrong with the rest, it holds up those of its key.
        key: read.bytes(5)?.map(|key| String::from_utf8_lossy(key).into_owned()),
        outgoing: outgoing.map_err(|error| error.to_string()).and_then(Row::outgoing),
    })
}

fn id(read: &MySqlRow, at: usize) -> Result<Uuid, sqlx::Error> {
    let bytes = read.bytes(at)?.unwrap_or_default();
    Uuid::from_slice(bytes).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The columns of a message, from `first` on.
pub(super) fn message(read: &MySqlRow, first: usize) -> Result<Row, sqlx::Error> {
    let text = |at: usize| rows::text(read, first + at).map(str::to_owned);
    let or_null = |at: usize| match read.bytes(first + at)? {
        Some(_) => text(at).map(Some),
        None => Ok(None),
    };
    let time = |at: usize| sqlx::Row::try_get::<Option<i64>, _>(read, first + at);
    Ok(Row {
        id: id(read, first)?,
        destination: text(1)?,
        key: or_null(2)?,
        message_type: text(3)?,
        content_type: text(4)?,
        correlation_id: or_null(5)?,
        causation_id: or_null(6)?,
        tenant: or_null(7)?,
        traceparent: or_null(8)?,
        occurred_at: time(9)?,
        due_at: time(10)?,
        expires_at: time(11)?,
        headers: or_null(12)?,
        body: Bytes::copy_from_slice(read.bytes(first + 13)?.unwrap_or_default()),
    })
}
