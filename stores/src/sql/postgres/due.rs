//! What becomes of generations whose time is over: what was asked to be remembered is put where it stays, in steps of one transaction
//! each, and what is left goes whole.
//!
//! An entry leaves its generation in the transaction that puts what is remembered of it in place, so that who looks for the entry first
//! and then for that finds one of them, whenever anybody dies. All who change generations whose time is over take the row of
//! `long_memory` first, and so does who asks for more. A generation that waits to be shown holds up nothing in later ones.

use hapax_core::ids::DedupKey;
use sqlx::{
    AssertSqlSafe, Executor, PgConnection, Row,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::long::{Joined, Run, WAITING_MAX},
    arguments::{Begin, Bind, put_in},
    error::Failure,
    generations::Done,
    names::Names,
    statements::{self, long},
};

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
struct Step<'c> {
    connection: &'c mut PgConnection,
    names: &'c Names,
}

/// The next step, and its commit. After an error the transaction is left as it is.
pub(super) async fn step(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    retention: i64,
) -> Result<Done, Failure> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(begin.with_lock_limit()))).await.map_err(Failure::of_read)?;
    let mut step = Step { connection, names };
    let done = step.run(retention).await?;
    step.connection.execute("COMMIT").await.map_err(Failure::of_write)?;
    Ok(done)
}

impl Step<'_> {
    async fn run(&mut self, retention: i64) -> Result<Done, Failure> {
        let lock = self.all(long::LOCK).await?;
        let fold: bool = lock.first().map_or(Ok(false), |row| row.try_get(0)).map_err(Failure::of_read)?;
        let due = self.due(retention).await?;
        for one in &due {
            let mut entries = if fold { self.fold(one).await? } else { 0 };
            if entries == 0 && one.keys_stay {
                entries = self.count(&put_in(&long::keep_keys(one.slot), &[one.id])).await?;
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
            let entries = self.drop_whole(oldest, retention).await?;
            return Ok(Done { entries, more: going.len() > 1, waits });
        }
        if let [.., earlier, later] = &waiting[..]
            && waiting.len() > WAITING_MAX
        {
            self.run_alone(&put_in(long::STAY_AS_LONG, &[earlier.id, later.id])).await?;
            let moved = self.count(&put_in(&long::merge(earlier.slot, later.slot), &[later.id])).await?;
            return Ok(Done { entries: 0, more: moved > 0, waits });
        }
        Ok(Done { entries: 0, more: false, waits })
    }

    async fn due(&mut self, retention: i64) -> Result<Vec<Due>, Failure> {
        let rows = self.all(&put_in(&long::due(), &[retention])).await?;
        let due = |row: &PgRow| {
            let (id, slot) = (row.try_get(0)?, row.try_get(1)?);
            Ok(Due { id, slot, keys_stay: row.try_get(2)?, may_go: row.try_get(3)? })
        };
        rows.iter().map(due).collect::<Result<_, _>>().map_err(Failure::of_read)
    }

    /// Folds some of the numbers of a generation: they go, and the runs that they are in are written. How many.
    async fn fold(&mut self, one: &Due) -> Result<u64, Failure> {
        let gone = self.all(&put_in(&long::take_numbers(one.slot), &[one.id])).await?;
        let gone: Vec<DedupKey> =
            gone.iter().map(|row| key(row, 0)).collect::<Result<_, _>>().map_err(Failure::of_read)?;
        if gone.is_empty() {
            return Ok(0);
        }
        let entries = gone.len() as u64;
        let new = Run::all(gone);
        let mut arguments = PgArguments::default();
        arguments.bind(bytes(new.iter().map(|run| run.first))).bind(bytes(new.iter().map(Run::touches)));
        let stored = self.bound(long::RUNS_AT, arguments).await?;
        let run = |row: &PgRow| Ok(Run { first: key(row, 0)?, last: key(row, 1)? });
        let stored: Vec<Run> = stored.iter().map(run).collect::<Result<_, _>>().map_err(Failure::of_read)?;
        let Joined { put, gone } = Joined::of(&new, &stored);
        let mut arguments = PgArguments::default();
        arguments.bind(bytes(gone));
        self.bound(long::DROP_RUNS, arguments).await?;
        let mut arguments = PgArguments::default();
        arguments.bind(bytes(put.iter().map(|run| run.first))).bind(bytes(put.iter().map(|run| run.last)));
        self.bound(long::PUT_RUNS, arguments).await?;
        Ok(entries)
    }

    /// The generation ceases to exist, and its table is emptied, in one commit.
    async fn drop_whole(&mut self, one: &Due, retention: i64) -> Result<u64, Failure> {
        if self.run_alone(&put_in(&statements::drop_generation(), &[one.id, retention])).await? != 1 {
            return Ok(0); // The clock has been set back.
        }
        let entries = self.count(&statements::count(one.slot)).await?;
        self.run_alone(&statements::truncate(one.slot)).await?;
        Ok(entries)
    }

    async fn holds_any(&mut self, slot: i16) -> Result<bool, Failure> {
        let rows = self.all(&statements::holds_any(slot)).await?;
        rows.first().map_or(Ok(true), |row| row.try_get(0)).map_err(Failure::of_read)
    }

    async fn count(&mut self, sql: &str) -> Result<u64, Failure> {
        let rows = self.all(sql).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(Failure::of_read)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// How many rows it changes.
    async fn run_alone(&mut self, sql: &str) -> Result<u64, Failure> {
        let text = AssertSqlSafe(self.names.put_into(sql));
        let ran = self.connection.execute(sqlx::raw_sql(text)).await.map_err(Failure::of_read)?;
        Ok(ran.rows_affected())
    }

    async fn all(&mut self, sql: &str) -> Result<Vec<PgRow>, Failure> {
        let text = AssertSqlSafe(self.names.put_into(sql));
        self.connection.fetch_all(sqlx::raw_sql(text)).await.map_err(Failure::of_read)
    }

    async fn bound(&mut self, sql: &str, arguments: PgArguments) -> Result<Vec<PgRow>, Failure> {
        let query = sqlx::query_with(AssertSqlSafe(self.names.put_into(sql)), arguments).persistent(false);
        query.fetch_all(&mut *self.connection).await.map_err(Failure::of_read)
    }
}

fn key(row: &PgRow, at: usize) -> Result<DedupKey, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(at)?; // Of what was not prepared, the driver lends none.
    let bytes = bytes.as_slice().try_into().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(DedupKey::from_bytes(bytes))
}

fn bytes(keys: impl IntoIterator<Item = DedupKey>) -> Vec<Vec<u8>> {
    keys.into_iter().map(|key| key.as_bytes().to_vec()).collect()
}
