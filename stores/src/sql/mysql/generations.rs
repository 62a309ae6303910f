//! Which generations of dedup entries there are, and how they come and go.
//!
//! Each generation is a table of its own: inserts go into the newest one's, a check looks into all, and evicting is emptying
//! the oldest one's. A process remembers which there are, because their tables stand in its statements; but nothing depends on
//! how old that knowledge is. Each load shows which there are in its own snapshot, and is asked again where that is something
//! else. Each insert shares a lock on the row of its generation, which must still be the newest; a rotation takes that lock for
//! itself, so it waits until all who insert have finished, and who comes later waits for it and then sees that it has happened.
//!
//! Emptying a table commits by itself here and cannot be undone. So the generation first ceases to count, which is committed;
//! then its table is emptied; then it is free for another one. Who dies in between leaves the rest to the next one. Who only
//! stalls must not empty a table that has got another generation meanwhile: all of it is done under a lock of the session that
//! empties it, which ends with that session and not before.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    arguments::{Bind, Text},
    connection::Link,
    due,
    error::Failure,
    names::Names,
    rows::Columns,
    statements,
};

/// Tables for dedup entries: of the newest generation, of up to three until their time is over, and of
/// [`WAITING_MAX`](super::super::long::WAITING_MAX) that have to wait longer.
const SLOTS: i16 = 6;
/// A generation is closed when it is this part of the retention old. So entries live up to one and a half times as long as
/// asked for, and a check looks into three tables.
const PART_OF_RETENTION: i64 = 2;
/// How long emptying a table waits for those who read it. Others wait behind it meanwhile; it is tried again.
const LOCK_LIMIT: Duration = Duration::from_secs(1);

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
}

impl Generations {
    pub(super) fn new(names: &Names, view: View) -> Self {
        Self { view: RwLock::new(Arc::new(view)), list: names.put_into(&statements::generations()).into() }
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks which there are now.
    pub(super) async fn look(&self, link: &mut Link) -> Result<Arc<View>, Failure> {
        let List { all, .. } = list(link, &self.list).await?;
        let live = all.iter().filter(|one| !one.dropping).map(|one| (one.id, one.slot)).collect();
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
    dropping: bool,
}

/// All of them at one moment of the server's clock.
#[derive(Debug, Default)]
struct List {
    all: Vec<Generation>,
    now: i64,
    /// The longest retention that was asked for.
    longest: Option<i64>,
}

impl List {
    fn is_due(&self, retention: i64) -> bool {
        let over = |at: i64| at.saturating_add(retention) <= self.now;
        self.all.iter().any(|one| one.dropping || one.closed_at.is_some_and(over))
    }

    /// The oldest that somebody has begun to drop.
    fn dropping(&self) -> Option<&Generation> {
        self.all.iter().find(|one| one.dropping)
    }
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
pub(super) async fn evict(link: &mut Link, names: &Names, retention: i64) -> Result<Done, Failure> {
    let text: Arc<str> = names.put_into(&statements::generations()).into();
    let before = list(link, &text).await?;
    let retention = match before.longest {
        Some(longest) if longest >= retention => longest,
        _ => {
            write(link, names, statements::RETENTION, &[retention]).await?;
            retention
        }
    };
    let (mut done, mut failed) = (Done::default(), Ok(()));
    if before.is_due(retention) {
        match over(link, names, &text, retention).await {
            Ok(over) => done = over,
            // Somebody reads it. It is as good later.
            Err(failure) if failure.is_of_a_lock() => done.more = true,
            Err(failure) => failed = Err(failure),
        }
    }
    if let Some(newest) = before.all.last()
        && newest.closed_at.is_none()
        && newest.opened_at.saturating_add(retention / PART_OF_RETENTION) <= before.now
        && holds_any(link, names, newest.slot).await?
    {
        rotate(link, names, newest.id).await?;
    }
    failed?; // Not before: a generation that is never closed grows for ever.
    done.more |= due::forget_keys(link, names).await?;
    done.more |= !done.waits && list(link, &text).await?.is_due(retention);
    Ok(done)
}

async fn list(link: &mut Link, text: &Arc<str>) -> Result<List, Failure> {
    let rows = link.read(text, MySqlArguments::default()).await?;
    let mut list = List::default();
    for row in &rows {
        list.add(row).map_err(Failure::of_read)?;
    }
    Ok(list)
}

impl List {
    fn add(&mut self, row: &MySqlRow) -> Result<(), sqlx::Error> {
        let (closed_at, slot) = (row.try_get(3)?, row.try_get(1)?);
        let dropping = row.try_get::<i8, _>(4)? != 0;
        self.all.push(Generation { id: row.number(0)?, slot, opened_at: row.number(2)?, closed_at, dropping });
        (self.now, self.longest) = (row.number(5)?, row.try_get(6)?);
        Ok(())
    }
}

async fn write(link: &mut Link, names: &Names, sql: &str, numbers: &[i64]) -> Result<u64, Failure> {
    Ok(link.write(&names.put_into(sql).into(), numbers_of(numbers)).await?.affected)
}

pub(super) fn numbers_of(numbers: &[i64]) -> MySqlArguments {
    let mut arguments = MySqlArguments::default();
    for number in numbers {
        arguments.bind(*number);
    }
    arguments
}

async fn holds_any(link: &mut Link, names: &Names, slot: i16) -> Result<bool, Failure> {
    let sql = names.put_into(&statements::holds_any(slot)).into();
    let rows = link.read(&sql, MySqlArguments::default()).await?;
    let first = rows.first().map_or(Ok(0), |row| row.number(0)).map_err(Failure::of_read)?;
    Ok(first != 0)
}

/// Closes generation `newest` and opens the next one, if there is a table free and nobody else has done it.
pub(super) async fn rotate(link: &mut Link, names: &Names, newest: i64) -> Result<(), Failure> {
    let text = |sql: &str| -> Arc<str> { names.put_into(sql).into() };
    let mut lock = Text::with_capacity(200);
    lock.sql(&text(statements::ROTATION_LOCK));
    link.begin(lock).await?;
    // What is read from here on is what the lock has let pass.
    let rows = link.step(&text(&statements::generations()), MySqlArguments::default()).await?.rows;
    let mut list = List::default();
    if let Err(e) = rows.iter().try_for_each(|row| list.add(row)) {
        link.roll_back().await;
        return Err(Failure::of_read(e));
    }
    let is_newest = list.all.iter().any(|one| one.id == newest && one.closed_at.is_none());
    let free = (0..SLOTS).find(|slot| list.all.iter().all(|one| one.slot != *slot));
    let Some(free) = free.filter(|_| is_newest) else {
        link.roll_back().await;
        return Ok(());
    };
    link.step(&text(&statements::close()), numbers_of(&[newest])).await?;
    link.step(&text(&statements::begin()), numbers_of(&[newest + 1, free.into()])).await?;
    link.commit(Text::with_capacity(10)).await?;
    Ok(())
}

/// The next step with what is over. A generation ceases to count, its table is emptied, and it is free: three commits, of which each
/// may be the last one that is made.
async fn over(link: &mut Link, names: &Names, list_text: &Arc<str>, retention: i64) -> Result<Done, Failure> {
    let mut done = due::step(link, names, retention).await?;
    if list(link, list_text).await?.dropping().is_some() {
        match empty(link, names, list_text).await? {
            Some(entries) => done.entries += entries,
            None => done.more = true, // Somebody else is about it.
        }
    }
    Ok(done)
}

/// The oldest generation that does not count any more: its table is emptied, and it is free. `None`: somebody else does it.
async fn empty(link: &mut Link, names: &Names, list_text: &Arc<str>) -> Result<Option<u64>, Failure> {
    link.hold(true); // The lock is the session's.
    let emptied = empty_held(link, names, list_text).await;
    link.hold(false);
    emptied
}

async fn empty_held(link: &mut Link, names: &Names, list_text: &Arc<str>) -> Result<Option<u64>, Failure> {
    let lock = statements::drop_lock(names.prefix());
    let wait = LOCK_LIMIT.as_secs();
    let take = format!(
        "SET @hapax_wait = @@SESSION.lock_wait_timeout; SET SESSION lock_wait_timeout = {wait}; SELECT GET_LOCK({lock}, 0)"
    );
    let took = link.define(take).await.inspect_err(|_| link.give_up())?; // It may be half set.
    let session = link.session();
    let took = took.last().and_then(|answer| answer.rows.first());
    let took = took.map_or(Ok(None), |row| row.try_get::<Option<i64>, _>(0)).map_err(Failure::of_read)?;
    let emptied = match took {
        Some(1) => empty_locked(link, names, list_text).await.map(Some),
        _ => Ok(None),
    };
    let give = format!("SET SESSION lock_wait_timeout = COALESCE(@hapax_wait, {wait}); DO RELEASE_LOCK({lock})");
    let given = link.define_in(session, give).await; // Another session has neither.
    let entries = emptied?;
    given?;
    Ok(entries)
}

async fn empty_locked(link: &mut Link, names: &Names, list_text: &Arc<str>) -> Result<u64, Failure> {
    let session = link.session();
    let text = |sql: &str| names.put_into(sql);
    let now = list(link, list_text).await?; // Whoever had the lock before may have been done.
    let Some(oldest) = now.dropping() else { return Ok(0) };
    let rows = link.read(&text(&statements::count(oldest.slot)).into(), MySqlArguments::default()).await?;
    let entries = rows.first().map_or(Ok(0), |row| row.number(0)).map_err(Failure::of_read)?;
    // The lock is the session's: on another one the table may be another generation's by now.
    link.define_in(session, text(&statements::truncate(oldest.slot))).await?;
    link.define_in(session, text(&statements::forget_generation(oldest.id))).await?;
    Ok(u64::try_from(entries).unwrap_or_default())
}
