//! Writers: tasks with one connection each, each for its share of the entities. Whatever queued while the last group was
//! being written goes into the next one, in one transaction and so in one commit; there is no timer, and a lone write goes at
//! once.

mod texts;

use std::{collections::VecDeque, sync::Arc};

use hapax_core::ports::StoreError;
use sqlx::mysql::MySqlArguments;
use texts::Texts;
use tokio::sync::{mpsc, oneshot};

use super::{
    super::{
        group::{self, Changed, LOCKS_MAX, answer_all},
        races::ROTATIONS_MAX,
        rows::DedupRow,
    },
    arguments::{Bind, Text},
    connection::Link,
    error::{Failure, Races},
    generations::Generations,
    names::Names,
    optimistic::{Hoped, Optimistic},
    plan::{Locked, Plan, bind_dedup},
    rows::{EntityRow, GIVEN_BYTES},
    statements::{AS_THEY_ARE, FOR_UPDATE, SHARED, TAKE_ALL, TAKE_OUTBOX, WAS_THERE},
    upkeep::of_keys,
};

/// Bodies of one group, in bytes: far above a usual group. Each byte is two in a text.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// What a writer is asked for.
#[derive(Debug)]
pub(super) enum Write {
    /// May share a commit with others.
    Change(Change),
    /// Answered once all that anybody could see before is on the disk.
    Settle(Settle),
    /// Write what is queued, then close.
    Close,
}

/// A save, a finish or an insert of dedup entries.
pub(super) type Change = group::Change<Vec<u8>>;

/// Who waits for what was seen to be on the disk.
#[derive(Debug)]
pub(super) struct Settle {
    pub(super) operation: &'static str,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

/// One writer's own state.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) link: Link,
    place: Arc<str>,
    group_max: usize,
    pub(super) packet_bytes_max: usize,
    generations: Arc<Generations>,
    pub(super) texts: Texts,
    pub(super) optimistic: Optimistic,
}

impl Writer {
    pub(super) fn new(
        link: Link,
        place: Arc<str>,
        group_max: usize,
        packet_bytes_max: usize,
        names: &Names,
        generations: Arc<Generations>,
    ) -> Self {
        let (texts, optimistic) = (Texts::new(names), Optimistic::default());
        Self { link, place, group_max, packet_bytes_max, generations, texts, optimistic }
    }

    /// Ends when the last handle to the store is gone, or when it is told to close.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Write>) {
        let mut taken = Vec::with_capacity(self.group_max);
        let mut waiting = VecDeque::new();
        let mut settles = Vec::new();
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
                    Write::Settle(settle) if settle.answer.is_closed() => {}
                    Write::Settle(settle) => settles.push(settle),
                    Write::Close => queue.close(),
                }
            }
            let group = group::take(&mut waiting, self.group_max, GROUP_BYTES_MAX.min(self.packet_bytes_max / 4));
            busy = group.len() + settles.len() > 1;
            self.write_group(group, std::mem::take(&mut settles)).await;
        }
        self.link.close().await;
    }

    async fn write_group(&mut self, group: Vec<Change>, settles: Vec<Settle>) {
        if group.is_empty() && settles.is_empty() {
            return;
        }
        let failure = match self.write(&group, !settles.is_empty()).await {
            Ok(changed) => {
                answer_all(group, changed);
                for settle in settles {
                    let _ = settle.answer.send(Ok(()));
                }
                return;
            }
            Err(failure) => failure,
        };
        // Who only wants to know that it is on the disk is not told of what one of the members did.
        let is_of_members = !group.is_empty() && !failure.is_unknown() && !failure.is_of_all();
        let settled = if is_of_members && !settles.is_empty() { self.settle().await } else { Err(failure.clone()) };
        for settle in settles {
            let told =
                settled.as_ref().map(|&()| ()).map_err(|failure| failure.store_error(settle.operation, &self.place));
            let _ = settle.answer.send(told);
        }
        if group.len() <= 1 || failure.is_unknown() || failure.is_of_all() {
            return self.fail_all(group, &failure);
        }
        // Nothing of it was written. One by one, the member that is at fault hurts only itself.
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
            match self.write(&alone, false).await {
                Ok(changed) => answer_all(alone, changed),
                Err(failure) => {
                    locks += usize::from(failure.is_of_a_lock());
                    self.fail_all(alone, &failure);
                }
            }
        }
    }

    fn fail_all(&self, group: impl IntoIterator<Item = Change>, failure: &Failure) {
        for change in group {
            let _ = change.answer.send(Err(failure.store_error(change.operation, &self.place)));
        }
    }

    /// Writes `group` in one commit. Tells each member's own result.
    async fn write(&mut self, group: &[Change], settles: bool) -> Result<Vec<Changed>, Failure> {
        let mut view = self.generations.view();
        let (mut races, mut rotations) = (Races::default(), 0);
        loop {
            let (generation, slot) = view.newest();
            let written = match alone(group, settles) {
                Some(Alone::Update(change, row)) => self.update(change, row).await.map(|won| Some(vec![won])),
                Some(Alone::Insert(row)) if rotations == 0 => self.insert(row, generation, slot).await,
                _ => self.transact(group, settles, generation, slot).await,
            };
            match written {
                Ok(Some(changed)) => return Ok(changed),
                Ok(None) if rotations == ROTATIONS_MAX => return Err(Failure::rotating()),
                Ok(None) => {
                    rotations += 1;
                    view = self.generations.look(&mut self.link).await?;
                }
                // Another one began the same entity between the two steps.
                Err(failure) if (failure.is_of_a_race() || failure.is_of_a_duplicate()) && races.allow(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// One update in one round trip.
    async fn update(&mut self, change: &Change, row: &EntityRow) -> Result<Changed, Failure> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(row.completed);
        let sql = match row.pending.as_deref() {
            Some(entry) => {
                arguments.bind(entry).bind(entry).bind(entry);
                &self.texts.update_one_waiting
            }
            None => &self.texts.update_one,
        };
        let state = if change.gives_way { None } else { Some(&*row.state) };
        arguments.bind(&*row.outbox).bind(state).bind(row.scope).bind(row.key.as_str().as_bytes()).bind(row.expected);
        // Its version changes, so that a row found and a row changed are the same here.
        let won = self.link.write(sql, arguments).await?.affected > 0;
        Ok(if won { Changed::At(row.expected.unwrap_or_default() + 1) } else { Changed::Lost })
    }

    /// One dedup entry in one round trip. Where no row was touched, the generation may not be the newest any more, or the
    /// entry was there: see in steps. One that was there has changed nothing, so its commit has waited for no disk.
    async fn insert(&mut self, row: &DedupRow, generation: i64, slot: i16) -> Result<Option<Vec<Changed>>, Failure> {
        let mut arguments = MySqlArguments::default();
        bind_dedup(&mut arguments, row);
        arguments.bind(generation);
        let sql = self.texts.dedup(slot)[0].clone();
        let answer = self.link.write(&sql, arguments).await?;
        if answer.affected > 0 && answer.inserted == WAS_THERE {
            self.settle().await.map_err(Failure::into_unknown)?;
        }
        Ok((answer.affected > 0).then(|| vec![Changed::NoEntity]))
    }

    /// A group in two steps: lock and see who wins; write what they write, and commit. `None`: the generation is not the newest
    /// any more, and nothing was written.
    async fn transact(
        &mut self,
        group: &[Change],
        settles: bool,
        generation: i64,
        slot: i16,
    ) -> Result<Option<Vec<Changed>>, Failure> {
        let dedup = group.iter().any(|change| !change.done.is_empty());
        let entities = group.iter().any(|change| change.entity.is_some());
        if !dedup && !entities && !settles {
            return Ok(Some(group.iter().map(Change::unless_won).collect())); // Nothing was asked for.
        }
        match self.hope(group, settles, generation, slot).await? {
            Some(Hoped::Written(changed)) => return Ok(Some(changed)),
            Some(Hoped::Rotated) => return Ok(None),
            Some(Hoped::Lost) | None => {}
        }
        let Some(text) = self.locks(group, dedup.then_some(generation)) else {
            self.settle().await?;
            return Ok(Some(group.iter().map(Change::unless_won).collect()));
        };
        let answers = self.link.begin(text).await?;
        let creates = group.iter().filter_map(|change| change.entity.as_ref()).any(|row| row.expected.is_none());
        let locked = match Locked::read(&answers, dedup, creates) {
            Ok(locked) => locked,
            Err(e) => {
                self.link.roll_back().await;
                return Err(Failure::of_read(e));
            }
        };
        if dedup && !locked.is_newest {
            self.link.roll_back().await;
            return Ok(None);
        }
        let plan = Plan::new(group, &locked);
        if plan.is_empty() && !settles {
            self.link.roll_back().await;
            return Ok(Some(plan.changed));
        }
        // Dedup entries that were there are no change, and without one a commit waits for no disk: whoever has written them
        // may still wait for it. An entity's row is changed in any case.
        let may_change_nothing = !plan.has_entities();
        let (text, settles) = if plan.text_bytes() <= self.packet_bytes_max / 2 {
            (self.in_one(&plan, slot, settles), settles)
        } else {
            let settles = settles || may_change_nothing;
            (self.row_by_row(&plan, slot, settles).await?, settles)
        };
        let answers = self.link.commit(text).await?;
        if may_change_nothing && !settles && answers.iter().any(|answer| answer.inserted == WAS_THERE) {
            self.settle().await.map_err(Failure::into_unknown)?;
        }
        Ok(Some(plan.changed))
    }

    /// A change by itself, which is on the disk after all that was shown before it.
    pub(super) async fn settle(&mut self) -> Result<(), Failure> {
        let mut settle = Text::with_capacity(100);
        settle.sql(&self.texts.settle);
        self.link.transaction(settle).await.map(drop)
    }

    /// What is locked before anything is written, in the order in which all groups do it. `None`: nothing.
    fn locks(&self, group: &[Change], generation: Option<i64>) -> Option<Text> {
        let mut keys: Vec<(i64, &[u8])> = Vec::with_capacity(group.len());
        let entities = group.iter().filter_map(|change| change.entity.as_ref());
        keys.extend(entities.clone().map(|row| (row.scope, row.key.as_str().as_bytes())));
        if keys.is_empty() && generation.is_none() {
            return None;
        }
        keys.sort_unstable();
        let mut text = Text::with_capacity(1000 + keys.len() * 100);
        if let Some(generation) = generation {
            text.sql(&self.texts.hold_generation).number(generation).sql(SHARED).end();
        }
        if entities.clone().any(|row| row.expected.is_none()) {
            text.sql(&self.texts.hold_floor).end();
        }
        for of_scope in keys.chunk_by(|(a, _), (b, _)| a == b) {
            let keys: Vec<&[u8]> = of_scope.iter().map(|(_, key)| *key).collect();
            of_keys(text.sql(&self.texts.lock_entities), of_scope[0].0, &keys).sql(FOR_UPDATE).end();
        }
        text.sql(&self.texts.now);
        Some(text)
    }

    /// All that is written, as one text.
    fn in_one(&mut self, plan: &Plan<'_>, slot: i16, settles: bool) -> Text {
        let mut text = Text::with_capacity(plan.text_bytes());
        for (rows, take) in [(&plan.saves, TAKE_ALL), (&plan.clean_ups, TAKE_OUTBOX), (&plan.creates, "")] {
            for (at, row) in rows.iter().enumerate() {
                text.sql(if at == 0 { &self.texts.put_entity } else { ", " });
                row.write(&mut text);
            }
            if !rows.is_empty() {
                text.sql(take).end();
            }
        }
        self.dedup_text(&mut text, &plan.dedup, slot);
        if settles {
            text.sql(&self.texts.settle);
        }
        text
    }

    pub(super) fn dedup_text(&mut self, text: &mut Text, rows: &[&DedupRow], slot: i16) {
        for (at, row) in rows.iter().enumerate() {
            text.sql(if at == 0 { &self.texts.dedup(slot)[1] } else { ", " });
            text.sql("(").bytes(row.key.as_bytes()).sql(", ").bytes(row.attempt.as_bytes()).sql(", ");
            text.bytes(row.fingerprint.as_bytes()).sql(", ").number(row.time).sql(", ");
            text.bytes_or_null(row.reply.as_deref()).sql(")");
        }
        if !rows.is_empty() {
            text.sql(AS_THEY_ARE).end();
        }
    }

    /// What is too large for a text, of which each byte of data is two. Gives what is left for the text of the commit.
    async fn row_by_row(&mut self, plan: &Plan<'_>, slot: i16, settles: bool) -> Result<Text, Failure> {
        let texts = &mut self.texts;
        let kinds = [
            (&plan.saves, texts.take_all_row.clone()),
            (&plan.clean_ups, texts.take_outbox_row.clone()),
            (&plan.creates, texts.put_entity_row.clone()),
        ];
        for (rows, sql) in kinds {
            for row in rows {
                self.link.step(&sql, row.arguments()).await?;
            }
        }
        let sql = texts.dedup(slot)[2].clone();
        for row in &plan.dedup {
            let mut arguments = MySqlArguments::default();
            bind_dedup(&mut arguments, row);
            self.link.step(&sql, arguments).await?;
        }
        let mut text = Text::with_capacity(100);
        if settles {
            text.sql(&self.texts.settle);
        }
        Ok(text)
    }
}

/// What takes one statement by itself.
enum Alone<'c> {
    Update(&'c Change, &'c EntityRow),
    Insert(&'c DedupRow),
}

fn alone(group: &[Change], settles: bool) -> Option<Alone<'_>> {
    let [change] = group else { return None };
    match (&change.entity, &*change.done) {
        _ if settles => None,
        (Some(row), []) if row.expected.is_some() => {
            let waits = row.pending.as_ref().map_or(0, Vec::len);
            (waits <= GIVEN_BYTES).then_some(Alone::Update(change, row))
        }
        (None, [row]) if !change.gives_way => Some(Alone::Insert(row)),
        _ => None,
    }
}
