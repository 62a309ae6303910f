//! What a relay asks of the table.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    ids::MessageId,
    ports::{
        Care, Cared, Claim, Claimed, Claiming, Ended, Instance, OutboxState, OutboxTable, Outcome, StoreError, Tick,
        Ticked,
    },
    relay::PushLine,
};
use sqlx::{
    Row as _,
    postgres::{PgArguments, PgRow},
};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{Looked, Row, attach, claim, cut, detach, lanes, millis, not_sent},
        arguments::Bind,
        wire::Fault,
    },
    PostgresOutbox, care,
    statements::row,
    tick::{self, Kinds},
    told,
};

#[async_trait]
impl OutboxTable for PostgresOutbox {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn is_ordered(&self) -> bool {
        self.0.ordered
    }

    fn is_told(&self) -> bool {
        self.0.teller.is_heard()
    }

    fn attach(&self, line: &Arc<PushLine>) -> bool {
        if self.0.writes.debezium {
            return false;
        }
        if !attach(&self.0.line, line) {
            return false;
        }
        *self.0.looked.lock().unwrap_or_else(PoisonError::into_inner) = Looked::default();
        let place = self.0.server.place();
        match self.0.server.session().filter(|_| self.0.listen && self.0.server.may_listen()) {
            Some(session) => {
                let listening =
                    tokio::spawn(told::listen(line.clone(), self.0.teller.clone(), session, self.0.server.clone()));
                let mut before = self.0.listening.lock().unwrap_or_else(PoisonError::into_inner);
                *before = Some(listening.abort_handle());
            }
            None => tracing::info!(%place, "nobody listens to the server here: the outbox is looked at now and then"),
        }
        #[cfg(feature = "postgres-log")]
        if let Some(log) = &self.0.log {
            log.attach(line);
        }
        true
    }

    fn detach(&self, line: &Arc<PushLine>) {
        if !detach(&self.0.line, line) {
            return;
        }
        if let Some(listening) = self.0.listening.lock().unwrap_or_else(PoisonError::into_inner).take() {
            listening.abort();
        }
        #[cfg(feature = "postgres-log")]
        if let Some(log) = &self.0.log {
            log.rest();
        }
    }

    #[cfg(feature = "postgres-log")]
    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        let Some(log) = self.0.log.as_ref().filter(|log| tick.ended.iter().any(|ended| log.is_of_log(ended))) else {
            return self.tick_table(tick).await;
        };
        let (of_log, ended): (Vec<&Ended>, Vec<&Ended>) = tick.ended.iter().partition(|ended| log.is_of_log(ended));
        log.tell(&of_log).await?;
        let told = of_log.len();
        let tick = Tick { ended: ended.into_iter().cloned().collect(), ..tick.clone() };
        let ticked = self.tick_table(&tick).await?;
        Ok(Ticked { ended: ticked.ended + told, ..ticked })
    }

    #[cfg(not(feature = "postgres-log"))]
    async fn tick(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        self.tick_table(tick).await
    }

    async fn care(&self, care: &Care) -> Result<Cared, StoreError> {
        care::remove(&self.0, care).await
    }

    async fn state(&self) -> Result<OutboxState, StoreError> {
        #[allow(unused_mut)] // The log changes it.
        let mut state = care::state(&self.0).await?;
        #[cfg(feature = "postgres-log")]
        if let Some(log) = &self.0.log {
            log.state(&mut state).await?;
        }
        Ok(state)
    }

    async fn leave(&self, instance: &Instance) -> Result<(), StoreError> {
        let mut arguments = PgArguments::default();
        arguments.bind(instance.id);
        let mut wire = self.0.relay.lock().await;
        let left = wire.write(&self.0.texts.leave, arguments).await;
        wire.close().await;
        left.map(drop).map_err(|fault| fault.store_error("leaving an outbox", &self.0.name))
    }
}

impl PostgresOutbox {
    async fn tick_table(&self, tick: &Tick) -> Result<Ticked, StoreError> {
        const OPERATION: &str = "relaying an outbox";
        let (kinds, arguments) = self.asked(tick);
        let text = self.text(kinds);
        let mut wire = self.0.relay.lock().await;
        let rows = wire.write(&text, arguments).await;
        drop(wire);
        let rows = rows.map_err(|fault| fault.store_error(OPERATION, &self.0.name))?;
        self.answer(tick, kinds, &rows).map_err(|error| Fault::of_answer(error).store_error(OPERATION, &self.0.name))
    }

    fn asked(&self, tick: &Tick) -> (Kinds, PgArguments) {
        let (mut looked, now) = (self.0.looked.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let ordered = self.0.ordered;
        let may_share = ordered && !tick.joins && tick.claiming.is_some_and(|claiming| !claiming.again);
        let (kinds, mut arguments) = asked(tick, ordered, may_share && looked.shares(now, tick.lease));
        if kinds.claim && ordered && !kinds.again {
            let (partition, lane) = looked.after.clone().unwrap_or((-1, String::new()));
            arguments.bind(partition).bind(lane);
        } else if kinds.claim {
            arguments.bind(looked.start(now));
        }
        (kinds, arguments)
    }

    fn text(&self, kinds: Kinds) -> Arc<str> {
        let mut ticks = self.0.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        ticks.entry(kinds).or_insert_with(|| self.0.server.text(&tick::text(kinds, self.0.ordered))).clone()
    }

    fn answer(&self, tick: &Tick, kinds: Kinds, rows: &[PgRow]) -> Result<Ticked, sqlx::Error> {
        let mut ticked = Answer::default();
        let (mut now, mut next, mut after) = (0, None, None);
        for read in rows {
            let number: Option<i64> = read.try_get(1)?;
            match read.try_get::<i32, _>(0)? {
                row::ENDED => ticked.ended = usize::try_from(number.unwrap_or_default()).unwrap_or_default(),
                row::RENEWED => ticked.renewed.push(claim(read.try_get(3)?, number.unwrap_or_default())),
                row::CLAIMED => ticked.claimed.push((read.try_get(17)?, claimed(read, number, tick.claiming)?)),
                row::MORE => ticked.more = number == Some(1),
                row::NOW => now = number.unwrap_or_default(),
                row::NEXT => next = number,
                row::ALIVE => ticked.forgotten = number == Some(0),
                row::LANE => after = number.and_then(|number| i32::try_from(number).ok()).zip(read.try_get(4)?),
                _ => {}
            }
        }
        let until = |at: i64| Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or_default());
        ticked.claimed.sort_by_key(|(number, _)| *number);
        let claimed: Vec<Claimed> = ticked.claimed.into_iter().map(|(_, claimed)| claimed).collect();
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut more = ticked.more;
        if self.0.ordered {
            if let Some(wanted) = tick.claiming.filter(|_| kinds.claim && !kinds.again) {
                after = cut(&claimed, wanted, |row| place_of(row.key.as_deref(), &row.claim.id)).or(after);
            }
            // What was not looked for is looked for next.
            more |= after.is_some() || tick.claiming.is_some() && !kinds.claim;
            if kinds.claim && !kinds.again {
                looked.after = after;
            }
            if ticked.forgotten {
                looked.forget_shares();
            }
        } else if kinds.claim && !kinds.again && !more {
            looked.up_to = now;
        }
        Ok(Ticked {
            forgotten: ticked.forgotten,
            ended: ticked.ended,
            renewed: ticked.renewed,
            claimed,
            more,
            next: next.map(until),
        })
    }
}

/// Where the lane of a message is in the order of lanes.
fn place_of(key: Option<&str>, id: &MessageId) -> (i32, String) {
    let lane = key.map_or_else(|| id.as_uuid().unwrap_or_default().to_string(), str::to_owned);
    (lanes::partition(&lane) as i32, lane)
}

/// What rows of an answer have said.
#[derive(Debug, Default)]
struct Answer {
    forgotten: bool,
    ended: usize,
    renewed: Vec<Claim>,
    /// With their places.
    claimed: Vec<(Option<i64>, Claimed)>,
    more: bool,
}

/// What `tick` asks for, and its arguments but for the last ones of a claim.
fn asked(tick: &Tick, ordered: bool, shares: bool) -> (Kinds, PgArguments) {
    let Tick { instance, joins, stale, ended, renewed, lease, claiming } = tick;
    let joins = ordered && *joins;
    let claims = claiming.is_some() && !joins && !shares;
    let (sent, others): (Vec<&Ended>, Vec<&Ended>) = ended.iter().partition(|ended| ended.outcome == Outcome::Sent);
    let kinds = Kinds {
        sent: !sent.is_empty(),
        others: !others.is_empty(),
        renew: !renewed.is_empty(),
        claim: claims,
        again: claims && claiming.is_some_and(|claiming| claiming.again),
        // While something is sent there is a look every second.
        next: claims && ended.is_empty(),
        share: shares && !joins,
        join: joins,
    };
    let mut arguments = PgArguments::default();
    arguments.bind(instance.id).bind(&*instance.service).bind(&*instance.host).bind(i64::from(instance.process));
    // Where order is kept, who has not said for a lease that he is there has lost what was his.
    arguments.bind(millis(if ordered { *lease } else { *stale }));
    if kinds.sent {
        bind_claims(&mut arguments, sent.iter().map(|ended| &ended.claim));
    }
    if kinds.others {
        bind_others(&mut arguments, &others);
    }
    if kinds.renew {
        bind_claims(&mut arguments, renewed.iter());
        arguments.bind(millis(*lease));
    }
    if let Some(Claiming { token, rows, bytes, .. }) = claiming.filter(|_| claims) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        arguments.bind(token).bind(millis(*lease)).bind(number(rows)).bind(number(bytes));
    }
    (kinds, arguments)
}

/// Ids, and their different tokens. Rows are locked in the order of their ids, so that relays do not lock each other out.
fn bind_claims<'c>(arguments: &mut PgArguments, claims: impl Iterator<Item = &'c Claim> + Clone) {
    let mut ids: Vec<Uuid> = claims.clone().filter_map(|claim| claim.id.as_uuid()).collect();
    ids.sort_unstable();
    let tokens: BTreeSet<i64> = claims.map(|claim| claim.token).collect();
    arguments.bind(ids).bind(Vec::from_iter(tokens));
}

fn bind_others(arguments: &mut PgArguments, others: &[&Ended]) {
    let (mut ids, mut tokens, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut delays, mut uncounted, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for row in not_sent(others) {
        ids.push(row.id);
        tokens.push(row.token);
        statuses.push(row.status);
        delays.push(row.delay);
        uncounted.push(row.uncounted);
        errors.push(row.error);
    }
    arguments.bind(ids).bind(tokens).bind(statuses).bind(delays).bind(uncounted).bind(errors);
}

fn claimed(read: &PgRow, attempts: Option<i64>, claiming: Option<Claiming>) -> Result<Claimed, sqlx::Error> {
    let row = message(read, 3)?;
    Ok(Claimed {
        claim: claim(row.id, claiming.map_or(0, |claiming| claiming.token)),
        attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or_default(),
        expired: read.try_get::<Option<bool>, _>(2)?.unwrap_or_default(),
        key: row.key.clone(),
        outgoing: row.outgoing(),
    })
}

/// The columns of a message, from `first` on.
pub(super) fn message(read: &PgRow, first: usize) -> Result<Row, sqlx::Error> {
    Ok(Row {
        id: read.try_get(first)?,
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
