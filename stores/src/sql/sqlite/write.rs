//! The writer: one task with one connection. Whatever queued while the last group was being written goes into the next
//! one, in one commit; there is no timer, and a lone write goes at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hapax_core::ports::StoreError;
use sqlx::{
    Arguments, AssertSqlSafe, Row,
    sqlite::{SqliteArguments, SqliteRow},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    super::{
        group::{self, Changed, answer_all},
        rows::DedupRow,
    },
    arguments::Bind,
    connection::{Link, Ran},
    error::{Failure, Place},
    generations::Generations,
    read::{self, Load},
    riders::{self, AddSchema, Ride, Seats},
    rows::{Array, EntityRow, now},
    statements::{self, DedupPart, ENTITY_COLUMNS, EntityPart, Kinds},
};

/// Bodies of one group, in bytes: far above a usual group, far below what SQLite takes as one value.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// What one row of an array takes, in bytes, so that the text is not grown row by row.
const ROW_BYTES: usize = 64;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Write {
    /// May share a commit with others.
    Change(Change),
    /// Others' rows, which may share a commit too.
    Ride(Ride),
    /// Runs by itself.
    Alone(Alone),
    /// Others' tables.
    Schema(AddSchema),
    /// A load that found the writer idle.
    Load(Load),
    /// Write what is queued, then close.
    Close,
}

/// A save, a finish or an insert of dedup entries.
pub(super) type Change = group::Change<String>;

/// A rare write.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) operation: &'static str,
    pub(super) sql: &'static str,
    pub(super) statements: usize,
    pub(super) arguments: SqliteArguments,
    pub(super) answer: oneshot::Sender<Result<Ran, StoreError>>,
}

/// The writer's own state.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) link: Link,
    pub(super) file: Arc<str>,
    group_max: usize,
    /// Nothing is being written and nothing is queued. A hint to those who load: this connection knows the pages that it
    /// has written last, while the readers' lose theirs with every commit.
    idle: Arc<AtomicBool>,
    generations: Arc<Generations>,
    /// The text of each kind of group that there has been.
    texts: HashMap<Kinds, Arc<str>>,
    /// And of each kind of group with riders, with the number of its statements.
    pub(super) ridden: HashMap<(Option<Kinds>, Seats), (Arc<str>, usize)>,
    /// The next write's token. Begins at random, so that no other process gives the same ones.
    pub(super) token: i64,
}

impl Writer {
    pub(super) fn new(
        link: Link,
        file: Arc<str>,
        group_max: usize,
        idle: Arc<AtomicBool>,
        generations: Arc<Generations>,
    ) -> Self {
        let (texts, ridden, token) = (HashMap::new(), HashMap::new(), fastrand::i64(..));
        Self { link, file, group_max, idle, generations, texts, ridden, token }
    }

    /// Ends when the last handle to the store is gone, or when it is told to close.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Write>) {
        let mut taken = Vec::with_capacity(self.group_max);
        let (mut waiting, mut riders) = (VecDeque::new(), VecDeque::new());
        loop {
            if waiting.is_empty() && riders.is_empty() {
                self.idle.store(queue.is_empty(), Ordering::Relaxed);
                if queue.recv_many(&mut taken, self.group_max).await == 0 {
                    break;
                }
                self.idle.store(false, Ordering::Relaxed);
            }
            // Those who are ready to ask get into this group instead of the next one.
            tokio::task::yield_now().await;
            while taken.len() + waiting.len() + riders.len() < self.group_max
                && let Ok(write) = queue.try_recv()
            {
                taken.push(write);
            }
            let (mut loads, mut alone) = (Vec::new(), Vec::new());
            for write in taken.drain(..) {
                match write {
                    Write::Change(change) => waiting.push_back(change),
                    Write::Ride(ride) => riders.push_back(ride),
                    Write::Schema(asked) => self.add_schema(asked).await,
                    Write::Alone(write) => alone.push(write),
                    Write::Load(load) => loads.push(load),
                    Write::Close => queue.close(),
                }
            }
            read::load(&mut self.link, &self.file, &self.generations, loads).await;
            self.write_group(&mut waiting, &mut riders).await;
            for write in alone {
                let ran = self.link.write(write.sql, write.statements, write.arguments).await;
                let _ = write.answer.send(ran.map_err(|e| e.store_error(write.operation, &self.file)));
            }
        }
        self.link.close().await;
    }

    async fn write_group(&mut self, waiting: &mut VecDeque<Change>, riders: &mut VecDeque<Ride>) {
        let group = group::take(waiting, self.group_max, GROUP_BYTES_MAX);
        let rides = riders::take(riders, self.group_max, GROUP_BYTES_MAX);
        let members = group.len() + rides.len();
        if members == 0 {
            return;
        }
        match self.write_all(&group, &rides).await {
            Ok((changed, returned)) => {
                self.generations.inserted(group.iter().map(|change| change.done.len()).sum());
                answer_all(group, changed);
                riders::answer_all(rides, returned);
            }
            Err(failure) if members == 1 || failure.is_unknown() || failure.is_busy() => {
                self.fail_all(group, rides, &failure);
            }
            // Nothing of it was written. One by one, the member that is at fault hurts only itself.
            Err(failure) => {
                tracing::warn!(file = %self.file, ?failure, "a group of {members} writes is written one by one");
                for change in group {
                    let alone = [change];
                    match self.write(&alone).await {
                        Ok(changed) => {
                            self.generations.inserted(alone[0].done.len());
                            answer_all(alone, changed);
                        }
                        Err(failure) => self.fail_all(alone, [], &failure),
                    }
                }
                for ride in rides {
                    let alone = [ride];
                    match self.write_all(&[], &alone).await {
                        Ok((_, returned)) => riders::answer_all(alone, returned),
                        Err(failure) => self.fail_all([], alone, &failure),
                    }
                }
            }
        }
    }

    fn fail_all(
        &self,
        group: impl IntoIterator<Item = Change>,
        rides: impl IntoIterator<Item = Ride>,
        failure: &Failure,
    ) {
        riders::fail_all(rides, |operation| failure.store_error(operation, &self.file));
        for change in group {
            let _ = change.answer.send(Err(failure.store_error(change.operation, &self.file)));
        }
    }

    /// Writes `group` in one commit. Tells each member's own result, by the token of its write.
    pub(super) async fn write(&mut self, group: &[Change]) -> Result<Vec<Changed>, Failure> {
        let first = self.token;
        self.token = first.wrapping_add_unsigned(group.len() as u64);
        match group {
            [change] if change.done.len() <= 1 => self.write_one(change, first).await.map(|changed| vec![changed]),
            _ => self.write_arrays(group, first).await,
        }
    }

    async fn write_one(&mut self, change: &Change, token: i64) -> Result<Changed, Failure> {
        let entity_part = match &change.entity {
            None => EntityPart::None,
            Some(EntityRow { expected: Some(_), .. }) => EntityPart::Update,
            Some(EntityRow { expected: None, .. }) => EntityPart::Create,
        };
        let dedup_part = match &*change.done {
            [] => DedupPart::None,
            _ if change.only_if_won => DedupPart::IfWon,
            _ => DedupPart::Always,
        };
        if entity_part == EntityPart::None && dedup_part == DedupPart::None {
            return Ok(Changed::NoEntity); // Nothing was asked for.
        }
        let mut arguments = SqliteArguments::default();
        arguments.bind(now());
        match &change.entity {
            Some(row) => {
                arguments.bind(row.scope).bind(row.key.as_str()).bind(row.expected).bind(token).bind(row.completed);
                arguments.bind(row.pending.as_deref()).bind(&*row.outbox).bind(&*row.state);
            }
            None => arguments.bind_nulls(8),
        }
        if let Some(row) = change.done.first() {
            arguments.bind(&row.key.as_bytes()[..]).bind(&row.attempt.as_bytes()[..]);
            arguments.bind(&row.fingerprint.as_bytes()[..]).bind(row.time).bind(row.reply.as_deref());
        }
        let (sql, statements) = statements::one(entity_part, dedup_part);
        let ran = self.link.write(sql, statements, arguments).await?;
        let won = |changed: &u64| *changed == 1;
        Ok(match &change.entity {
            None => change.unless_won(),
            Some(EntityRow { expected: Some(expected), .. }) => {
                let changed = ran.changed.get(usize::from(statements > 1));
                if changed.is_some_and(won) { Changed::At(expected + 1) } else { Changed::Lost }
            }
            Some(EntityRow { expected: None, .. }) => match ran.rows.first() {
                Some(row) => Changed::At(row.try_get(1)?),
                None => Changed::Lost,
            },
        })
    }

    async fn write_arrays(&mut self, group: &[Change], first: i64) -> Result<Vec<Changed>, Failure> {
        let Arrays { kinds, updates, arguments } = arrays(group, first);
        let Some(kinds) = kinds else {
            return results(group, first, false, &[]).map_err(Failure::from);
        };
        let text = self.texts.entry(kinds).or_insert_with(|| statements::group(kinds).into());
        let ran = self.link.write(AssertSqlSafe(text.clone()), kinds.statements(), arguments).await?;
        // It is committed: what cannot be told now must not be written again.
        let all_updated = all_updated(Some(kinds), updates, &ran);
        results(group, first, all_updated, &ran.rows).map_err(|e| Failure::new(e, Place::Commit))
    }
}

/// A group as the arguments of its text.
pub(super) struct Arrays {
    /// `None`: nothing is to be written.
    pub(super) kinds: Option<Kinds>,
    pub(super) updates: usize,
    pub(super) arguments: SqliteArguments,
}

pub(super) fn arrays(group: &[Change], first: i64) -> Arrays {
    let rows = |expected: bool| entity_rows(group, first).filter(move |(_, row)| row.expected.is_some() == expected);
    let (updates, creates) = (rows(true).count(), rows(false).count());
    let dedup = dedup_array(group, first);
    let kinds = Kinds {
        updates: updates > 0,
        creates: creates > 0,
        dedup: dedup.len > 0,
        rows: updates.max(creates).next_power_of_two(),
    };
    let mut arguments = SqliteArguments::default();
    if !(kinds.updates || kinds.creates || kinds.dedup) {
        return Arrays { kinds: None, updates, arguments };
    }
    for expected in [true, false] {
        if rows(expected).next().is_some() {
            bind_rows(&mut arguments, rows(expected), kinds.rows);
        }
    }
    let mut updated = Array::with_room(updates, ROW_BYTES, 0);
    for (token, row) in rows(true) {
        updated.push(&(token, row.scope, row.key.as_str()));
    }
    arguments.bind(now()).bind(i64::try_from(updates).unwrap_or(i64::MAX)).bind(updated.close().0);
    let (json, blob) = dedup.close();
    arguments.bind(json).bind(blob);
    Arrays { kinds: Some(kinds), updates, arguments }
}

/// Whether every update of a group has won, as its second statement says.
pub(super) fn all_updated(kinds: Option<Kinds>, updates: usize, ran: &Ran) -> bool {
    kinds.is_some_and(|kinds| kinds.updates) && ran.changed.get(1) == Some(&(updates as u64))
}

/// The entity parts of `group`, with the tokens of their members.
fn entity_rows(group: &[Change], first: i64) -> impl Iterator<Item = (i64, &EntityRow)> {
    let token = move |at| first.wrapping_add_unsigned(at);
    group.iter().zip(0..).filter_map(move |(change, at)| change.entity.as_ref().map(|row| (token(at), row)))
}

/// Binds `rows`, and nulls in the place of those that are missing from `count`.
fn bind_rows<'a>(arguments: &mut SqliteArguments, rows: impl Iterator<Item = (i64, &'a EntityRow)>, count: usize) {
    let before = arguments.len();
    for (token, row) in rows {
        arguments.bind(token).bind(row.scope).bind(row.key.as_str()).bind(row.expected).bind(row.completed);
        arguments.bind(row.pending.as_deref()).bind(&*row.outbox).bind(&*row.state);
    }
    arguments.bind_nulls(count * ENTITY_COLUMNS.len() - (arguments.len() - before));
}

fn dedup_array(group: &[Change], first: i64) -> Array {
    let count = group.iter().map(|change| change.done.len()).sum();
    let bytes = group.iter().flat_map(|change| &change.done).map(DedupRow::size).sum();
    let mut array = Array::with_room(count, ROW_BYTES, bytes);
    for (change, at) in group.iter().zip(0..) {
        let token = first.wrapping_add_unsigned(at);
        let won = change.entity.as_ref().filter(|_| change.only_if_won).map(|row| (row, token));
        for row in &change.done {
            push_dedup(&mut array, row, won);
        }
    }
    array
}

/// Results by token. `winners` are the rows of those who created, and of those who updated if some did not.
pub(super) fn results(
    group: &[Change],
    first: i64,
    all_updated: bool,
    winners: &[SqliteRow],
) -> Result<Vec<Changed>, sqlx::Error> {
    let result = |change: &Change| match &change.entity {
        Some(EntityRow { expected: Some(version), .. }) if all_updated => Changed::At(version + 1),
        _ => change.unless_won(),
    };
    let mut results: Vec<Changed> = group.iter().map(result).collect();
    for winner in winners {
        let token: i64 = winner.try_get(0)?;
        let at = usize::try_from(token.wrapping_sub(first)).ok().and_then(|at| results.get_mut(at));
        *at.ok_or(sqlx::Error::RowNotFound)? = Changed::At(winner.try_get(1)?);
    }
    Ok(results)
}

fn push_dedup(array: &mut Array, row: &DedupRow, won: Option<(&EntityRow, i64)>) {
    let (offset, reply) = (array.blob.len(), row.reply.as_ref().map(Vec::len));
    match won {
        None => array.push(&(offset, reply, row.time)),
        Some((entity, token)) => array.push(&(offset, reply, row.time, token, entity.scope, entity.key.as_str())),
    }
    array.blob.extend_from_slice(row.key.as_bytes());
    array.blob.extend_from_slice(row.attempt.as_bytes());
    array.blob.extend_from_slice(row.fingerprint.as_bytes());
    array.blob.extend_from_slice(row.reply.as_deref().unwrap_or_default());
}
