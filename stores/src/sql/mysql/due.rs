//! What becomes of generations whose time is over: what was asked to be remembered is put where it stays, in steps of one transaction
//! each, and what is left ceases to count.
//!
//! An entry leaves its generation in the transaction that puts what is remembered of it in place, so that who looks for the entry first
//! and then for that finds one of them, whenever anybody dies. All who change generations whose time is over take the row of
//! `long_memory` first, then that of the generation, and so does who asks for more. A generation that waits to be shown holds up
//! nothing in later ones.

use std::sync::Arc;

use hapax_core::ids::DedupKey;
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::long::{Joined, MOVED_AT_ONCE, Run, WAITING_MAX},
    arguments::{Bind, Text},
    connection::{Answer, Link},
    error::Failure,
    generations::{Done, numbers_of},
    names::Names,
    rows::Columns,
    statements::{self, long},
};

/// Runs that are asked for, or written, in one text: all servers take it.
const RUNS_AT_ONCE: usize = 1000;

/// A closed generation whose time is over.
#[derive(Debug)]
struct Due {
    id: i64,
    slot: i16,
    /// Idempotency keys in it are kept for longer.
    keys_stay: bool,
    /// All have shown that what is left may go.
    may_go: bool,
}

/// A transaction.
struct Step<'l> {
    link: &'l mut Link,
    names: &'l Names,
}

/// The next step, and its commit. What is dropped by it has to be emptied.
pub(super) async fn step(link: &mut Link, names: &Names, retention: i64) -> Result<Done, Failure> {
    let mut lock = Text::with_capacity(200);
    lock.sql(&names.put_into(long::LOCK));
    let locked = link.begin(lock).await?;
    let fold = locked.first().and_then(|answer| answer.rows.first()).map_or(Ok(0), |row| row.try_get::<i8, _>(0));
    let mut step = Step { link, names };
    let ran = match fold.map_err(Failure::of_read) {
        Ok(fold) => step.run(fold != 0, retention).await,
        Err(failure) => Err(failure),
    };
    match ran {
        Ok(done) => step.link.commit(Text::with_capacity(10)).await.map(|_| done),
        Err(failure) => {
            step.link.roll_back().await;
            Err(failure)
        }
    }
}

/// Some of the idempotency keys go whose time is over. Whether there may be more of them.
pub(super) async fn forget_keys(link: &mut Link, names: &Names) -> Result<bool, Failure> {
    let rows = link.read(&names.put_into(long::KEYS).into(), MySqlArguments::default()).await?;
    if rows.first().map_or(Ok(0), |row| row.number(0)).map_err(Failure::of_read)? == 0 {
        return Ok(false);
    }
    let mut lock = Text::with_capacity(200);
    lock.sql(&names.put_into(long::LOCK));
    let locked = link.begin(lock).await?;
    let keys = locked.first().and_then(|answer| answer.rows.first()).map_or(Ok(i64::MAX), |row| row.number(1));
    let keys = match keys {
        Ok(keys) => keys,
        Err(e) => {
            link.roll_back().await;
            return Err(Failure::of_read(e));
        }
    };
    let forgot = link.step(&names.put_into(&long::forget_keys()).into(), numbers_of(&[keys])).await?;
    link.commit(Text::with_capacity(10)).await?;
    Ok(forgot.affected >= MOVED_AT_ONCE as u64)
}

impl Step<'_> {
    async fn run(&mut self, fold: bool, retention: i64) -> Result<Done, Failure> {
        let due = self.due(retention).await?;
        for one in &due {
            let mut entries = if fold { self.fold(one).await? } else { 0 };
            if entries == 0 && one.keys_stay {
                entries = self.keep_keys(one).await?;
            }
            if entries > 0 {
                return Ok(Done { entries, more: true, waits: false });
            }
        }
        let (mut going, mut waiting) = (Vec::new(), Vec::new());
        for one in &due {
            let goes = one.may_go || !self.holds_any(one.slot).await?;
            if goes { going.push(one) } else { waiting.push(one) }
        }
        let waits = !waiting.is_empty();
        if let Some(oldest) = going.first() {
            self.run_one(&statements::drop_generation(), numbers_of(&[oldest.id, retention])).await?;
            return Ok(Done { entries: 0, more: going.len() > 1, waits });
        }
        if let [.., earlier, later] = &waiting[..]
            && waiting.len() > WAITING_MAX
        {
            self.merge(earlier, later).await?;
            return Ok(Done { entries: 0, more: true, waits });
        }
        Ok(Done { entries: 0, more: false, waits })
    }

    async fn due(&mut self, retention: i64) -> Result<Vec<Due>, Failure> {
        let rows = self.run_one(&long::due(), numbers_of(&[retention])).await?.rows;
        let due = |row: &MySqlRow| {
            let (id, slot) = (row.number(0)?, row.try_get(1)?);
            Ok(Due { id, slot, keys_stay: row.number(2)? != 0, may_go: row.number(3)? != 0 })
        };
        rows.iter().map(due).collect::<Result<_, _>>().map_err(Failure::of_read)
    }

    /// When a generation was closed, if it still counts. It does until the transaction ends.
    async fn hold(&mut self, id: i64) -> Result<Option<i64>, Failure> {
        let rows = self.run_one(long::HOLD_CLOSED, numbers_of(&[id])).await?.rows;
        rows.first().map(|row| row.number(0)).transpose().map_err(Failure::of_read)
    }

    /// Folds some of the numbers of a generation: they go, and the runs that they are in are written. How many.
    async fn fold(&mut self, one: &Due) -> Result<u64, Failure> {
        let rows = self.run_one(&long::numbers(one.slot), MySqlArguments::default()).await?.rows;
        let keys: Vec<DedupKey> =
            rows.iter().map(|row| key(row, 0)).collect::<Result<_, _>>().map_err(Failure::of_read)?;
        let Some(last) = keys.last().copied() else { return Ok(0) };
        if self.hold(one.id).await?.is_none() {
            return Ok(0);
        }
        let new = Run::all(keys);
        let mut stored = Vec::new();
        for some in new.chunks(RUNS_AT_ONCE) {
            let mut text = Text::with_capacity(some.len() * 500);
            for run in some {
                text.sql(&self.names.put_into(long::RUNS_FROM)).bytes(run.first.as_bytes()).sql(long::OR_THIS);
                text.bytes(run.first.as_bytes()).sql(long::AND_TO).bytes(run.touches().as_bytes()).end();
            }
            for answer in self.link.steps(text).await? {
                let run = |row: &MySqlRow| Ok(Run { first: key(row, 0)?, last: key(row, 1)? });
                let runs: Vec<Run> = answer.rows.iter().map(run).collect::<Result<_, _>>().map_err(Failure::of_read)?;
                stored.extend(runs);
            }
        }
        let Joined { put, gone } = Joined::of(&new, &stored);
        for some in gone.chunks(RUNS_AT_ONCE) {
            let mut text = Text::with_capacity(100 + some.len() * 60);
            text.sql(&self.names.put_into(long::DROP_RUNS));
            for (at, first) in some.iter().enumerate() {
                text.sql(if at == 0 { "" } else { ", " }).bytes(first.as_bytes());
            }
            text.sql(")");
            self.link.steps(text).await?;
        }
        for some in put.chunks(RUNS_AT_ONCE) {
            let mut text = Text::with_capacity(200 + some.len() * 120);
            text.sql(&self.names.put_into(long::PUT_RUNS));
            for (at, run) in some.iter().enumerate() {
                text.sql(if at == 0 { "(" } else { ", (" }).bytes(run.first.as_bytes()).sql(", ");
                text.bytes(run.last.as_bytes()).sql(")");
            }
            text.sql(long::LONGER);
            self.link.steps(text).await?;
        }
        let mut arguments = MySqlArguments::default();
        arguments.bind(&last.as_bytes()[..]);
        Ok(self.run_one(&long::drop_numbers(one.slot), arguments).await?.affected)
    }

    async fn keep_keys(&mut self, one: &Due) -> Result<u64, Failure> {
        let Some(closed_at) = self.hold(one.id).await? else { return Ok(0) };
        self.run_one(&long::keep_keys(one.slot), numbers_of(&[closed_at])).await?;
        Ok(self.run_one(&long::drop_keys(one.slot), MySqlArguments::default()).await?.affected)
    }

    async fn merge(&mut self, earlier: &Due, later: &Due) -> Result<(), Failure> {
        let (Some(_), Some(closed_at)) = (self.hold(earlier.id).await?, self.hold(later.id).await?) else {
            return Ok(());
        };
        self.run_one(long::STAY_AS_LONG, numbers_of(&[closed_at, earlier.id])).await?;
        self.run_one(&long::merge(earlier.slot, later.slot), MySqlArguments::default()).await?;
        self.run_one(&long::drop_some(later.slot), MySqlArguments::default()).await?;
        Ok(())
    }

    async fn holds_any(&mut self, slot: i16) -> Result<bool, Failure> {
        let rows = self.run_one(&statements::holds_any(slot), MySqlArguments::default()).await?.rows;
        Ok(rows.first().map_or(Ok(1), |row| row.number(0)).map_err(Failure::of_read)? != 0)
    }

    async fn run_one(&mut self, sql: &str, arguments: MySqlArguments) -> Result<Answer, Failure> {
        let sql: Arc<str> = self.names.put_into(sql).into();
        self.link.step(&sql, arguments).await
    }
}

fn key(row: &MySqlRow, at: usize) -> Result<DedupKey, sqlx::Error> {
    let bytes = row.bytes(at)?.unwrap_or_default();
    let bytes = bytes.try_into().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(DedupKey::from_bytes(bytes))
}
