//! Writers: tasks with one connection each, each for its share of the entities. Whatever queued while the last group was
//! being written goes into the next one, in one statement and so in one commit; there is no timer, and a lone write goes at
//! once.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
};
use tokio::sync::mpsc;

use super::{
    super::{
        group::{self, Changed, LOCKS_MAX, answer_all},
        races::{ROTATIONS_MAX, Races},
        rows::DedupRow,
    },
    arguments::Bind,
    connection::Link,
    error::Failure,
    generations::Generations,
    names::Names,
    rows::{EntityRow, GIVEN_BYTES},
    statements::{self, DedupPart, EntityPart, IfThere, Kinds, Waiting},
};

/// Bodies of one group, in bytes: far above a usual group, far below what the server takes as one message.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Statements that leave known dedup entries out, after one has met some. Where they come once they come again, and each
/// time costs a statement that fails.
const WARY: u32 = 1000;
/// Texts of single writes, by their parts and the table of the newest generation.
type Ones = HashMap<(EntityPart, Waiting, DedupPart, IfThere, i16), Arc<str>>;

/// What a writer is asked for.
#[derive(Debug)]
pub(super) enum Write {
    /// May share a commit with others.
    Change(Change),
    /// Write what is queued, then close.
    Close,
}

/// A save, a finish or an insert of dedup entries.
pub(super) type Change = group::Change<Vec<u8>>;

/// One writer's own state.
#[derive(Debug)]
pub(super) struct Writer {
    link: Link,
    place: Arc<str>,
    group_max: usize,
    names: Names,
    generations: Arc<Generations>,
    ones: Ones,
    groups: HashMap<(Kinds, IfThere, i16), Arc<str>>,
    /// Statements for which dedup entries may be known already.
    wary: u32,
    /// The next write's token. Begins at random, so that no other writer gives the same ones.
    token: i64,
}

impl Writer {
    pub(super) fn new(
        link: Link,
        place: Arc<str>,
        group_max: usize,
        names: Names,
        generations: Arc<Generations>,
    ) -> Self {
        let (ones, groups, token) = (HashMap::new(), HashMap::new(), fastrand::i64(..));
        Self { link, place, group_max, names, generations, ones, groups, wary: 0, token }
    }

    /// Ends when the last handle to the store is gone, or when it is told to close.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Write>) {
        let mut taken = Vec::with_capacity(self.group_max);
        let mut waiting = VecDeque::new();
        let mut busy = false;
        loop {
            if waiting.is_empty() && queue.recv_many(&mut taken, self.group_max).await == 0 {
                break;
            }
            // Those who are ready to ask get into this group instead of the next one. Where one asks after the other there are
            // none, and looking for them costs a round of the runtime.
            busy = busy || taken.len() > 1;
            if busy {
                tokio::task::yield_now().await;
            }
            while taken.len() + waiting.len() < self.group_max
                && let Ok(write) = queue.try_recv()
            {
                taken.push(write);
            }
            for write in taken.drain(..) {
                match write {
                    Write::Change(change) => waiting.push_back(change),
                    Write::Close => queue.close(),
                }
            }
            let group = group::take(&mut waiting, self.group_max, GROUP_BYTES_MAX);
            busy = group.len() > 1;
            self.write_group(group).await;
        }
        self.link.close().await;
    }

    async fn write_group(&mut self, group: Vec<Change>) {
        if group.is_empty() {
            return;
        }
        match self.write(&group).await {
            Ok(changed) => answer_all(group, changed),
            Err(failure) if group.len() == 1 || failure.is_unknown() || failure.is_of_all() => {
                self.fail_all(group, &failure);
            }
            // Nothing of it was written. One by one, the member that is at fault hurts only itself.
            Err(failure) => {
                tracing::warn!(place = %self.place, ?failure, "a group of {} writes is written one by one", group.len());
                let mut locks = 0;
                for change in group {
                    if change.answer.is_closed() {
                        continue; // Nobody waits for it any more, and nothing of it has been written.
                    }
                    let alone = [change];
                    if locks == LOCKS_MAX {
                        self.fail_all(alone, &failure);
                        continue;
                    }
                    match self.write(&alone).await {
                        Ok(changed) => answer_all(alone, changed),
                        Err(failure) => {
                            locks += usize::from(failure.is_of_a_lock());
                            self.fail_all(alone, &failure);
                        }
                    }
                }
            }
        }
    }

    fn fail_all(&self, group: impl IntoIterator<Item = Change>, failure: &Failure) {
        for change in group {
            let _ = change.answer.send(Err(failure.store_error(change.operation, &self.place)));
        }
    }

    /// Writes `group` in one commit. Tells each member's own result, by the token of its write.
    async fn write(&mut self, group: &[Change]) -> Result<Vec<Changed>, Failure> {
        let first = self.token;
        self.token = first.wrapping_add_unsigned(group.len() as u64);
        let mut view = self.generations.view();
        let (mut races, mut rotations) = (Races::default(), 0);
        loop {
            let (generation, slot) = view.newest();
            let Some((sql, arguments)) = self.statement(group, first, generation, slot) else {
                return Ok(group.iter().map(Change::unless_won).collect()); // Nothing was asked for.
            };
            match self.link.write(&sql, arguments).await {
                Ok(rows) => {
                    self.wary = self.wary.saturating_sub(1);
                    // It is committed: what cannot be told now must not be written again.
                    match results(group, first, &rows).map_err(Failure::of_write)? {
                        Some(changed) => return Ok(changed),
                        None if rotations == ROTATIONS_MAX => return Err(Failure::rotating()),
                        None => rotations += 1,
                    }
                    view = self.generations.look(&mut self.link).await?;
                }
                Err(failure) if failure.is_of_a_race() && races.allow(false) => {}
                // Somebody else has marked one of these messages: nothing of this statement was written.
                Err(failure) if failure.is_of_a_known_key() && self.wary == 0 => self.wary = WARY,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// `None`: there is nothing to write.
    fn statement(
        &mut self,
        group: &[Change],
        first: i64,
        generation: i64,
        slot: i16,
    ) -> Option<(Arc<str>, PgArguments)> {
        let if_there = if self.wary == 0 { IfThere::Refused } else { IfThere::Skipped };
        if is_single(group)
            && let [change] = group
        {
            let (entity, dedup) = parts(change);
            if entity == EntityPart::None && dedup == DedupPart::None {
                return None;
            }
            let names = &self.names;
            let waiting = match change.entity.as_ref().and_then(|row| row.pending.as_ref()) {
                None => Waiting::None,
                Some(pending) if pending.len() == GIVEN_BYTES => Waiting::One,
                Some(_) => Waiting::Any,
            };
            let make = || names.put_into(&statements::one(entity, waiting, dedup, if_there, slot)).into();
            let sql = self.ones.entry((entity, waiting, dedup, if_there, slot)).or_insert_with(make).clone();
            return Some((sql, one(change, first, generation)));
        }
        let (kinds, arguments) = arrays(group, first, generation)?;
        let names = &self.names;
        let make = || names.put_into(&statements::group(kinds, if_there, slot)).into();
        Some((self.groups.entry((kinds, if_there, slot)).or_insert_with(make).clone(), arguments))
    }
}

/// Whether it is written without arrays.
fn is_single(group: &[Change]) -> bool {
    matches!(group, [change] if change.done.len() <= 1)
}

fn parts(change: &Change) -> (EntityPart, DedupPart) {
    let entity = match &change.entity {
        None => EntityPart::None,
        Some(EntityRow { expected: Some(_), .. }) => EntityPart::Update,
        Some(EntityRow { expected: None, .. }) => EntityPart::Create,
    };
    let dedup = match &*change.done {
        [] => DedupPart::None,
        _ if change.only_if_won && entity != EntityPart::None => DedupPart::IfWon,
        _ => DedupPart::Always,
    };
    (entity, dedup)
}

fn one(change: &Change, token: i64, generation: i64) -> PgArguments {
    let mut arguments = PgArguments::default();
    if let Some(row) = &change.entity {
        arguments.bind(token).bind(row.scope).bind(row.key.as_str()).bind(row.expected).bind(row.completed);
        arguments.bind(row.pending.as_deref()).bind(&*row.outbox).bind(state(change, row));
    }
    if let Some(row) = change.done.first() {
        arguments.bind(generation).bind(&row.key.as_bytes()[..]).bind(&row.attempt.as_bytes()[..]);
        arguments.bind(&row.fingerprint.as_bytes()[..]).bind(row.time).bind(row.reply.as_deref());
    }
    arguments
}

/// A clean-up changes the outbox only, so that its state needs not be sent.
fn state<'r>(change: &Change, row: &'r EntityRow) -> Option<&'r [u8]> {
    if change.gives_way { None } else { Some(&*row.state) }
}

/// A group as the arguments of its text. Each kind in the order of its keys: see [`statements`].
fn arrays(group: &[Change], first: i64, generation: i64) -> Option<(Kinds, PgArguments)> {
    let (mut updates, mut creates, mut dedup) = (Vec::new(), Vec::new(), Vec::new());
    for (change, at) in group.iter().zip(0..) {
        let token: i64 = first.wrapping_add_unsigned(at);
        if let Some(row) = &change.entity {
            let rows = if row.expected.is_some() { &mut updates } else { &mut creates };
            rows.push((row, token, state(change, row)));
        }
        let won = change.entity.as_ref().filter(|_| change.only_if_won).map(|_| token);
        dedup.extend(change.done.iter().map(|row| (row, won)));
    }
    for rows in [&mut updates, &mut creates] {
        rows.sort_unstable_by(|(a, ..), (b, ..)| (a.scope, a.key.as_str()).cmp(&(b.scope, b.key.as_str())));
    }
    dedup.sort_by_key(|(row, _): &(&DedupRow, _)| row.key);
    let kinds = Kinds { updates: !updates.is_empty(), creates: !creates.is_empty(), dedup: !dedup.is_empty() };
    let mut arguments = PgArguments::default();
    if kinds.updates {
        bind_rows(&mut arguments, &updates, true);
    }
    if kinds.creates {
        bind_rows(&mut arguments, &creates, false);
    }
    if kinds.dedup {
        arguments.bind(generation);
        bind_dedup(&mut arguments, &dedup);
    }
    (kinds.updates || kinds.creates || kinds.dedup).then_some((kinds, arguments))
}

fn bind_rows(arguments: &mut PgArguments, rows: &[(&EntityRow, i64, Option<&[u8]>)], expected: bool) {
    arguments.bind(rows.iter().map(|(_, token, _)| *token).collect::<Vec<i64>>());
    arguments.bind(rows.iter().map(|(row, ..)| row.scope).collect::<Vec<i64>>());
    arguments.bind(rows.iter().map(|(row, ..)| row.key.as_str()).collect::<Vec<&str>>());
    if expected {
        arguments.bind(rows.iter().map(|(row, ..)| row.expected).collect::<Vec<Option<i64>>>());
    }
    arguments.bind(rows.iter().map(|(row, ..)| row.completed).collect::<Vec<bool>>());
    arguments.bind(rows.iter().map(|(row, ..)| row.pending.as_deref()).collect::<Vec<Option<&[u8]>>>());
    arguments.bind(rows.iter().map(|(row, ..)| &*row.outbox).collect::<Vec<&[u8]>>());
    arguments.bind(rows.iter().map(|(.., state)| *state).collect::<Vec<Option<&[u8]>>>());
}

fn bind_dedup(arguments: &mut PgArguments, rows: &[(&DedupRow, Option<i64>)]) {
    arguments.bind(rows.iter().map(|(row, _)| &row.key.as_bytes()[..]).collect::<Vec<&[u8]>>());
    arguments.bind(rows.iter().map(|(row, _)| &row.attempt.as_bytes()[..]).collect::<Vec<&[u8]>>());
    arguments.bind(rows.iter().map(|(row, _)| &row.fingerprint.as_bytes()[..]).collect::<Vec<&[u8]>>());
    arguments.bind(rows.iter().map(|(row, _)| row.time).collect::<Vec<i64>>());
    arguments.bind(rows.iter().map(|(row, _)| row.reply.as_deref()).collect::<Vec<Option<&[u8]>>>());
    arguments.bind(rows.iter().map(|(_, token)| *token).collect::<Vec<Option<i64>>>());
}

/// Results by token. `None`: the generation is not the newest any more, and nothing was written.
fn results(group: &[Change], first: i64, rows: &[PgRow]) -> Result<Option<Vec<Changed>>, sqlx::Error> {
    let mut results: Vec<Changed> = group.iter().map(Change::unless_won).collect();
    let mut is_newest = group.iter().all(|change| change.done.is_empty());
    let mut won = |token: i64, version: Option<i64>| {
        let at = usize::try_from(token.wrapping_sub(first)).map_err(|_| sqlx::Error::RowNotFound)?;
        let (result, change) = results.get_mut(at).zip(group.get(at)).ok_or(sqlx::Error::RowNotFound)?;
        let above = || change.entity.as_ref()?.expected?.checked_add(1);
        *result = Changed::At(version.or_else(above).ok_or(sqlx::Error::RowNotFound)?);
        Ok::<_, sqlx::Error>(())
    };
    if is_single(group) {
        for row in rows {
            match row.try_get(0)? {
                Some(token) => won(token, Some(row.try_get(1)?))?,
                None => is_newest = true,
            }
        }
        return Ok(is_newest.then_some(results));
    }
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    is_newest |= row.try_get::<Option<i64>, _>(0)?.is_some();
    let column = |at: usize| Ok::<_, sqlx::Error>(row.try_get::<Option<Vec<i64>>, _>(at)?.unwrap_or_default());
    column(1)?.into_iter().try_for_each(|token| won(token, None))?;
    column(2)?.into_iter().zip(column(3)?).try_for_each(|(token, version)| won(token, Some(version)))?;
    Ok(is_newest.then_some(results))
}
