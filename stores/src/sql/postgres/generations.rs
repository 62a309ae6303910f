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
    super::long::MOVED_AT_ONCE,
    arguments::{Begin, put_in},
    connection::Link,
    due,
    error::Failure,
    names::Names,
    statements,
};

/// Tables for dedup entries: of the newest generation, of up to three until their time is over, and of
/// [`WAITING_MAX`](super::super::long::WAITING_MAX) that have to wait longer.
const SLOTS: i16 = 6;
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

/// All of them at one moment of the server's clock.
#[derive(Debug, Default)]
struct List {
    all: Vec<Generation>,
    now: i64,
    /// The longest retention that was asked for.
    longest: Option<i64>,
    /// The longest for idempotency keys.
    keys: i64,
}

/// What an eviction did: how many entries are gone, and whether there is more to do now.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) entries: u64,
    pub(super) more: bool,
    /// There is one whose time is over and that has to wait.
    pub(super) waits: bool,
}

/// One step of eviction: closes the newest generation if it is old, and does something about those whose time is over: see
/// [`due`].
pub(super) async fn evict(
    connection: &mut PgConnection,
    begin: &Begin,
    names: &Names,
    retention: i64,
) -> Result<Done, Failure> {
    let look = begin.alone(statements::generations());
    let List { all: list, now, longest, keys } = list(connection, names, &look).await?;
    let retention = match longest {
        Some(longest) if longest >= retention => longest,
        _ => {
            let keep = begin.alone(put_in(&names.put_into(statements::RETENTION), &[retention]));
            let keep = AssertSqlSafe(keep);
            connection.execute(sqlx::raw_sql(keep)).await.map_err(Failure::of_write)?;
            retention
        }
    };
    let is_due = |list: &[Generation], now: i64| {
        let over = |at: i64| at.saturating_add(retention) <= now;
        list.iter().any(|one| one.closed_at.is_some_and(over))
    };
    let (mut done, mut failed) = (Done::default(), Ok(()));
    if is_due(&list, now) {
        match due::step(connection, begin, names, retention).await {
            Ok(step) => done = step,
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
    if keys > 0 {
        done.more |= forget_keys(connection, begin, names).await?;
    }
    let List { all: list, now, .. } = self::list(connection, names, &look).await?;
    done.more |= !done.waits && is_due(&list, now);
    Ok(done)
}

/// Asks `look`: [`statements::generations`], by itself or in a transaction that has begun.
async fn list(connection: &mut PgConnection, names: &Names, look: &str) -> Result<List, Failure> {
    let text = AssertSqlSafe(names.put_into(look));
    let rows = connection.fetch_all(sqlx::raw_sql(text)).await.map_err(Failure::of_read)?;
    let mut list = List::default();
    for row in &rows {
        let column = Failure::of_read;
        list.all.push(Generation {
            id: row.try_get(0).map_err(column)?,
            slot: row.try_get(1).map_err(column)?,
            opened_at: row.try_get(2).map_err(column)?,
            closed_at: row.try_get(3).map_err(column)?,
        });
        (list.now, list.longest) = (row.try_get(4).map_err(column)?, row.try_get(5).map_err(column)?);
        list.keys = row.try_get(6).map_err(column)?;
    }
    Ok(list)
}

/// Lets go of idempotency keys whose time is over. Whether there may be more of them.
async fn forget_keys(connection: &mut PgConnection, begin: &Begin, names: &Names) -> Result<bool, Failure> {
    let text = AssertSqlSafe(names.put_into(&begin.alone(statements::long::forget_keys())));
    let row = connection.fetch_one(sqlx::raw_sql(text)).await.map_err(Failure::of_write)?;
    let gone: i64 = row.try_get(0).map_err(Failure::of_write)?;
    Ok(gone >= i64::try_from(MOVED_AT_ONCE).unwrap_or(i64::MAX))
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
    let List { all: before, .. } = list(connection, names, &look).await?;
    let slot = before.iter().find(|one| one.id == newest && one.closed_at.is_none()).map(|one| one.slot);
    if let Some(slot) = slot {
        let lock = text(&statements::rotation_lock(slot));
        connection.execute(sqlx::raw_sql(lock)).await.map_err(Failure::of_read)?;
        // What is read from here on is what the lock has let pass.
        let List { all: list, .. } = list(connection, names, &look).await?;
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
