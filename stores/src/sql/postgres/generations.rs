//! Which generations of dedup entries there are, and how they come and go.
//!
//! Each generation is a table of its own: inserts go into the newest one's, a check looks into all, and evicting is emptying
//! the oldest one's. A process remembers which there are, because their tables stand in its statements; but nothing depends on
//! how old that knowledge is. Each load shows which there are in its own snapshot, and is asked again where that is something
//! else. Each insert happens only if its generation still is the newest; a rotation waits until all who insert into a table
//! have finished, and who comes later waits for it and then sees that it has happened.

use std::sync::{Arc, PoisonError, RwLock};

use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::{
    arguments::{Begin, put_in},
    connection::Link,
    error::Failure,
    names::Names,
    statements,
};

/// Tables for dedup entries.
const SLOTS: i16 = 4;
/// A generation is closed when it is this part of the retention old. So entries live up to one and a half times as long as
/// asked for, and a check looks into three tables.
const PART_OF_RETENTION: i64 = 2;

/// What is known of the generations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// All there are, the oldest first, each with its table.
    pub(super) live: Vec<(i64, i16)>,
}

impl View {
    /// Where inserts go.
    pub(super) fn newest(&self) -> (i64, i16) {
        self.live.last().copied().unwrap_or_default()
    }

    /// Whether the ids, in order, are those that are known.
    pub(super) fn is(&self, ids: &[i64]) -> bool {
        self.live.iter().map(|(id, _)| id).eq(ids)
    }
}

/// What all parts of a store share about generations.
#[derive(Debug)]
pub(super) struct Generations {
    view: RwLock<Arc<View>>,
    list: Arc<str>,
    /// Where they are, for messages.
    names: Names,
}

impl Generations {
    pub(super) fn new(names: &Names, view: View) -> Self {
        Self {
            view: RwLock::new(Arc::new(view)),
            list: names.put_into(&statements::generations()).into(),
            names: names.clone(),
        }
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks which there are now.
    pub(super) async fn look(&self, link: &mut Link) -> Result<Arc<View>, Failure> {
        let rows = link.read(&self.list, Default::default()).await?;
        if rows.is_empty() {
            return Err(Failure::no_generation(&self.names));
        }
        let mut live = Vec::with_capacity(rows.len());
        for row in &rows {
            live.push((row.try_get(0).map_err(Failure::of_read)?, row.try_get(1).map_err(Failure::of_read)?));
        }
        let view = Arc::new(View { live });
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = view.clone();
        Ok(view)
    }
}

/// One generation, as the upkeep sees it.
#[derive(Debug)]
struct Generation {
    id: i64,
    slot: i16,
    opened_at: i64,
    closed_at: Option<i64>,
}

/// What an eviction did: how many entries are gone, and whether there is more to do now.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) entries: u64,
    pub(super) more: bool,
}

/// One step of eviction: closes the newest generation if it is old, and empties the oldest if its time is over.
pub(super) async fn evict(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    retention: i64,
) -> Result<Done, Failure> {
    let look = begin.alone(statements::generations());
    let (list, now, longest) = list(connection, names, &look).await?;
    let retention = match longest {
        Some(longest) if longest >= retention => longest,
        _ => {
            let keep = begin.alone(put_in(&names.put_into(statements::RETENTION), &[retention]));
            let keep = AssertSqlSafe(keep);
            connection.execute(sqlx::raw_sql(keep)).await.map_err(Failure::of_write)?;
            retention
        }
    };
    let due = |list: &[Generation], now: i64| {
        let over = |at: i64| at.saturating_add(retention) <= now;
        list.iter().any(|one| one.closed_at.is_some_and(over))
    };
    let (mut done, mut failed) = (Done::default(), Ok(()));
    if due(&list, now) {
        match empty(connection, begin, names, &list, now, retention).await {
            Ok(entries) => done.entries = entries,
            Err(failure) if connection.execute("ROLLBACK").await.is_err() => return Err(failure),
            // Somebody reads it. It is as good later.
            Err(failure) if failure.is_of_a_lock() => done.more = true,
            Err(failure) => failed = Err(failure),
        }
    }
    if let Some(newest) = list.last()
        && newest.closed_at.is_none()
        && newest.opened_at.saturating_add(retention / PART_OF_RETENTION) <= now
        && holds_any(connection, begin, names, newest.slot).await?
    {
        match rotate(connection, begin, names, newest.id).await {
            // A `VACUUM` of that table, or an index that is made on it. All inserts would wait with us. A lost race is another
            // thing: it is tried again.
            Err(failure) if failure.is_of_a_lock() && !failure.is_of_a_race() => {
                connection.execute("ROLLBACK").await.map_err(Failure::of_read)?;
                done.more = true;
            }
            rotated => rotated?,
        }
    }
    failed?; // Not before: a generation that is never closed grows for ever.
    let (list, now, _) = self::list(connection, names, &look).await?;
    done.more |= due(&list, now);
    Ok(done)
}

/// Asks `look`: [`statements::generations`], by itself or in a transaction that has begun.
async fn list(
    connection: &mut PgConnection,
    names: &Names,
    look: &str,
) -> Result<(Vec<Generation>, i64, Option<i64>), Failure> {
    let text = AssertSqlSafe(names.put_into(look));
    let rows = connection.fetch_all(sqlx::raw_sql(text)).await.map_err(Failure::of_read)?;
    let mut list = Vec::with_capacity(rows.len());
    let (mut now, mut longest) = (0, None);
    for row in &rows {
        let column = Failure::of_read;
        list.push(Generation {
            id: row.try_get(0).map_err(column)?,
            slot: row.try_get(1).map_err(column)?,
            opened_at: row.try_get(2).map_err(column)?,
            closed_at: row.try_get(3).map_err(column)?,
        });
        (now, longest) = (row.try_get(4).map_err(column)?, row.try_get(5).map_err(column)?);
    }
    Ok((list, now, longest))
}

async fn holds_any(connection: &mut PgConnection, begin: &Begin, names: &Names, slot: i16) -> Result<bool, Failure> {
    let text = AssertSqlSafe(names.put_into(&begin.alone(statements::holds_any(slot))));
    let row = connection.fetch_one(sqlx::raw_sql(text)).await.map_err(Failure::of_read)?;
    row.try_get(0).map_err(Failure::of_read)
}

/// Closes generation `newest` and opens the next one, if there is a table free and nobody else has done it.
pub(super) async fn rotate(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    newest: i64,
) -> Result<(), Failure> {
    let text = |sql: &str| AssertSqlSafe(names.put_into(sql));
    connection.execute(sqlx::raw_sql(AssertSqlSafe(begin.with_lock_limit()))).await.map_err(Failure::of_read)?;
    let look = statements::generations();
    let (before, ..) = list(connection, names, &look).await?;
    let slot = before.iter().find(|one| one.id == newest && one.closed_at.is_none()).map(|one| one.slot);
    if let Some(slot) = slot {
        let lock = text(&statements::rotation_lock(slot));
        connection.execute(sqlx::raw_sql(lock)).await.map_err(Failure::of_read)?;
        // What is read from here on is what the lock has let pass.
        let (list, ..) = list(connection, names, &look).await?;
        let free = (0..SLOTS).find(|slot| list.iter().all(|one| one.slot != *slot));
        if let Some(free) = free {
            let close = sqlx::raw_sql(text(&put_in(&statements::close(), &[newest])));
            if connection.execute(close).await.map_err(Failure::of_read)?.rows_affected() == 1 {
                let begin = sqlx::raw_sql(text(&put_in(&statements::begin(), &[newest + 1, free.into()])));
                connection.execute(begin).await.map_err(Failure::of_read)?;
            }
        }
    }
    connection.execute("COMMIT").await.map_err(Failure::of_write)?;
    Ok(())
}

/// The oldest generation whose time is over ceases to exist, and its table is emptied, in one commit.
async fn empty(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    list: &[Generation],
    now: i64,
    retention: i64,
) -> Result<u64, Failure> {
    let over = |one: &&Generation| one.closed_at.is_some_and(|at| at.saturating_add(retention) <= now);
    let Some(oldest) = list.iter().find(over) else { return Ok(0) };
    let text = |sql: &str| AssertSqlSafe(names.put_into(sql));
    connection.execute(sqlx::raw_sql(AssertSqlSafe(begin.with_lock_limit()))).await.map_err(Failure::of_read)?;
    let gone = sqlx::raw_sql(text(&put_in(&statements::drop_generation(), &[oldest.id, retention])));
    let gone = connection.execute(gone).await.map_err(Failure::of_read)?.rows_affected() == 1;
    let mut entries = 0;
    if gone {
        let count = connection.fetch_one(sqlx::raw_sql(text(&statements::count(oldest.slot)))).await;
        let count: i64 = count.and_then(|row| row.try_get(0)).map_err(Failure::of_read)?;
        let truncate = text(&statements::truncate(oldest.slot));
        connection.execute(sqlx::raw_sql(truncate)).await.map_err(Failure::of_read)?;
        entries = u64::try_from(count).unwrap_or_default();
    }
    connection.execute("COMMIT").await.map_err(Failure::of_write)?;
    Ok(entries)
}
