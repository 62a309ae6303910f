//! All ways in which one port call may go: each an answer and the world after it.

use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{DedupKey, EntityKey},
    ports::{Finished, Known, Saved, Settled, Settlement, Stored},
};

use super::{
    calls::{Failure, Op, Reply, Save},
    claims::Broken,
    space::{Reads, Space},
    state::{State, insert_sorted, push_sorted},
};

/// An answer, what has gone wrong for it, and the world after it.
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) fault: &'static str,
    pub(super) state: State,
}

/// Beyond it, how often a message was given changes nothing that a scenario looks at.
const ATTEMPTS_MAX: u8 = 2;

type Answers = Result<Vec<Answer>, Broken>;

fn well(reply: Reply, state: State) -> Answer {
    Answer { reply, fault: "", state }
}

impl Space {
    /// How the call `op` of a task at `state` may go; `task` is its place in the list.
    pub(super) fn answers(&mut self, state: &State, task: usize, op: &Op) -> Answers {
        let write = |apply: &dyn Fn(&mut Self, &mut State) -> Result<Reply, Broken>, space: &mut Self| {
            space.write(state, op, apply)
        };
        match op {
            Op::Monotonic => Ok(self.deadline(state)),
            Op::Now | Op::Attempt | Op::Pause { .. } => unreachable!("{op:?} is answered at once"),
            Op::Load { key, ids } => Ok(self.loads(state, key, ids)),
            Op::Contains(keys) => {
                let mut answers: Vec<Answer> =
                    self.looks(state, keys).into_iter().map(|known| well(Reply::Known(known), state.clone())).collect();
                answers.extend(refused(state));
                Ok(answers)
            }
            Op::Version(key) => {
                let version = self.version(state, key);
                let mut answers = vec![well(Reply::Version(version), state.clone())];
                answers.extend(refused(state));
                Ok(answers)
            }
            Op::Save(save) => {
                let mut answers = write(&|space, state| space.save(state, save).map(Reply::Saved), self)?;
                self.own_conflict(&mut answers);
                Ok(answers)
            }
            Op::Finish { key, done, clean_up } => write(
                &|space, state| {
                    let finished = space.finish(state, key, done, clean_up.as_ref())?;
                    Ok(Reply::Finished(Some(finished)))
                },
                self,
            ),
            Op::Insert(entries) => write(
                &|space, state| {
                    space.mark(state, entries)?;
                    Ok(Reply::Done)
                },
                self,
            ),
            Op::Dispatch(outgoing) => self.dispatches(state, outgoing),
            Op::SetAside(letter) => {
                let message = self.message_of(&letter.envelope.message_id);
                write(
                    &|space, state| {
                        space.claim_letter(state, message)?;
                        insert_sorted(&mut state.letters, message);
                        Ok(Reply::Done)
                    },
                    self,
                )
            }
            Op::Settle(message, settlement) => self.settles(state, task, *message, settlement),
        }
    }

    /// A write goes well, is refused, is done and not confirmed, or is still under way when it fails.
    fn write(
        &mut self,
        state: &State,
        op: &Op,
        apply: &dyn Fn(&mut Self, &mut State) -> Result<Reply, Broken>,
    ) -> Answers {
        let mut done = state.clone();
        let reply = apply(self, &mut done)?;
        let mut answers = Vec::with_capacity(4);
        if state.left.unknown > 0 {
            let mut state = done.clone();
            state.left.unknown -= 1;
            answers.push(Answer { reply: Reply::Failed(Failure::Unknown), fault: "done, but not confirmed", state });
        }
        if state.left.delayed > 0 {
            let mut state = state.clone();
            state.left.delayed -= 1;
            push_sorted(&mut state.limbo, self.trie.ops.of(op.clone()));
            answers.push(Answer { reply: Reply::Failed(Failure::Unknown), fault: "not confirmed, under way", state });
        }
        answers.extend(refused(state));
        answers.push(well(reply, done));
        Ok(answers)
    }

    /// Does a write that was under way.
    pub(super) fn land(&mut self, state: &mut State, op: &Op) -> Result<(), Broken> {
        match op {
            Op::Save(save) => self.save(state, save).map(drop),
            Op::Finish { key, done, clean_up } => self.finish(state, key, done, clean_up.as_ref()).map(drop),
            Op::Insert(entries) => self.mark(state, entries),
            Op::Dispatch(outgoing) => outgoing.iter().try_for_each(|one| self.send(state, one)),
            Op::SetAside(letter) => {
                let message = self.message_of(&letter.envelope.message_id);
                insert_sorted(&mut state.letters, message);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn deadline(&self, state: &State) -> Vec<Answer> {
        let mut answers = vec![well(Reply::InTime(true), state.clone())];
        if state.left.late > 0 {
            let mut state = state.clone();
            state.left.late -= 1;
            answers.push(Answer { reply: Reply::InTime(false), fault: "the deadline has passed", state });
        }
        answers
    }

    fn loads(&self, state: &State, key: &EntityKey, ids: &[DedupKey]) -> Vec<Answer> {
        let row = state.rows[self.row_of(key)];
        let mut answers = Vec::new();
        let mut read = |version: u8, entity: u32, fault, state: State| {
            let stored = (version > 0).then(|| self.stored(version, entity));
            if !self.scenario.together {
                answers.push(Answer { reply: Reply::Loaded(stored, None), fault, state });
                return;
            }
            let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
            let keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
            for known in self.looks(&state, &keys) {
                answers.push(Answer { reply: Reply::Loaded(stored.clone(), Some(known)), fault, state: state.clone() });
            }
        };
        read(row.version, row.entity, "", state.clone());
        if state.left.stale_loads > 0 && row.version > 0 {
            let mut state = state.clone();
            state.left.stale_loads -= 1;
            read(row.before.0, row.before.1, "as it was before the last save", state);
        }
        answers.extend(refused(state));
        answers
    }

    fn stored(&self, version: u8, entity: u32) -> Stored {
        Stored { version: Version::number(version.into()), entity: self.entities.get(entity).clone() }
    }

    /// What a reader may be told of `keys`.
    fn looks(&self, state: &State, keys: &[DedupKey]) -> Vec<Known> {
        let of_keys = |marks: &[u32]| -> Known {
            let entries = marks.iter().map(|mark| self.marks.get(*mark));
            Known::new(entries.filter(|entry| keys.contains(&entry.key)).cloned().collect())
        };
        let now = of_keys(&state.marks);
        let lag = match self.scenario.reads {
            Reads::Linearizable => 0,
            Reads::Lagging(marks) => usize::from(marks).min(state.marks.len()),
            Reads::Eventual => state.marks.len(),
        };
        let mut looks = vec![now];
        for missing in 1..=lag {
            let older = of_keys(&state.marks[..state.marks.len() - missing]);
            if !looks.contains(&older) {
                looks.push(older);
            }
        }
        looks
    }

    fn version(&self, state: &State, key: &EntityKey) -> Option<Version> {
        let version = state.rows[self.row_of(key)].version;
        (version > 0).then(|| Version::number(version.into()))
    }

    fn save(&mut self, state: &mut State, save: &Save) -> Result<Saved, Broken> {
        let current = self.version(state, &save.key).map_or(Expected::Absent, Expected::Version);
        if current != save.expected {
            return Ok(Saved::Conflict);
        }
        let version = self.commit(state, &save.key, &save.entity, &save.processed)?;
        self.mark(state, &save.processed)?;
        Ok(Saved::At(Version::number(version.into())))
    }

    /// Stores `entity` under the next version.
    fn commit(
        &mut self,
        state: &mut State,
        key: &EntityKey,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<u8, Broken> {
        let row = self.row_of(key);
        let before = state.rows[row];
        let name = self.entity_name(entity);
        self.claim_commit(state, row, name, processed)?;
        for outgoing in self.outgoing_of(name) {
            insert_sorted(&mut state.stored, outgoing);
        }
        let version = before.version + 1;
        let before = if self.scenario.budgets.stale_loads > 0 { (before.version, before.entity) } else { (0, 0) };
        state.rows[row] = super::state::Row { version, entity: name, before };
        Ok(version)
    }

    fn finish(
        &mut self,
        state: &mut State,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<&(Version, Entity)>,
    ) -> Result<Finished, Broken> {
        self.mark(state, done)?;
        let Some((version, entity)) = clean_up else { return Ok(Finished::Cleaned(None)) };
        if self.version(state, key).as_ref() != Some(version) {
            return Ok(Finished::Left);
        }
        let version = self.commit(state, key, entity, &[])?;
        Ok(Finished::Cleaned(Some(Version::number(version.into()))))
    }

    /// The first mark of a message stays.
    fn mark(&mut self, state: &mut State, entries: &[DedupEntry]) -> Result<(), Broken> {
        for entry in entries {
            let marked = state.marks.iter().any(|mark| self.marks.get(*mark).key == entry.key);
            if marked {
                continue;
            }
            self.claim_marked(state, self.message_of_key(&entry.key))?;
            let name = self.marks.of(entry.clone());
            match self.scenario.reads {
                Reads::Linearizable => insert_sorted(&mut state.marks, name),
                _ => state.marks.push(name),
            }
        }
        Ok(())
    }

    fn send(&mut self, state: &mut State, outgoing: &Outgoing) -> Result<(), Broken> {
        let name = self.outgoing.of(outgoing.clone());
        insert_sorted(&mut state.sent, name);
        self.claim_sent(state, name)
    }

    /// All go well, or one of them fails in some way.
    fn dispatches(&mut self, state: &State, outgoing: &[Outgoing]) -> Answers {
        let mut all = state.clone();
        outgoing.iter().try_for_each(|one| self.send(&mut all, one))?;
        let mut answers = Vec::new();
        for at in 0..outgoing.len() {
            let results = |failure| -> Vec<Result<(), Failure>> {
                (0..outgoing.len()).map(|other| if other == at { Err(failure) } else { Ok(()) }).collect()
            };
            if state.left.unknown > 0 {
                let mut state = all.clone();
                state.left.unknown -= 1;
                let reply = Reply::Dispatched(results(Failure::Unknown));
                answers.push(Answer { reply, fault: "done, but not confirmed", state });
            }
            let mut others = state.clone();
            for (other, one) in outgoing.iter().enumerate() {
                if other != at {
                    self.send(&mut others, one)?;
                }
            }
            if state.left.delayed > 0 {
                let mut state = others.clone();
                state.left.delayed -= 1;
                push_sorted(&mut state.limbo, self.trie.ops.of(Op::Dispatch(vec![outgoing[at].clone()])));
                let reply = Reply::Dispatched(results(Failure::Unknown));
                answers.push(Answer { reply, fault: "not confirmed, under way", state });
            }
            if state.left.refused > 0 {
                others.left.refused -= 1;
                let reply = Reply::Dispatched(results(Failure::Refused));
                answers.push(Answer { reply, fault: "refused", state: others });
            }
        }
        answers.push(well(Reply::Dispatched(vec![Ok(()); outgoing.len()]), all));
        Ok(answers)
    }

    fn settles(&mut self, state: &State, task: usize, message: u8, settlement: &Settlement) -> Answers {
        let node = state.tasks[task].node;
        let messages = self.messages_of(node);
        let Some(at) = messages.iter().position(|(of, _)| *of == message) else { return Ok(Vec::new()) };
        let given = messages[at].1;
        let bit = 1 << at;
        if state.tasks[task].holds & bit == 0 {
            return Ok(vec![well(Reply::Settled(Settled::LeaseLost), state.clone())]);
        }
        let mut done = state.clone();
        done.tasks[task].holds &= !bit;
        match settlement {
            Settlement::Ack => self.claim_acked(&done, message)?,
            Settlement::Retry { counts, .. } => {
                let given = if *counts { again(given) } else { given };
                push_sorted(&mut done.ready, (message, given));
            }
            Settlement::DeadLetter { .. } => {
                self.claim_letter(&done, message)?;
                insert_sorted(&mut done.letters, message);
            }
        }
        let mut answers = Vec::new();
        if state.left.unknown > 0 {
            let mut state = done.clone();
            state.left.unknown -= 1;
            answers.push(Answer { reply: Reply::Failed(Failure::Unknown), fault: "done, but not confirmed", state });
        }
        answers.extend(refused(state));
        answers.push(well(Reply::Settled(Settled::Done), done));
        Ok(answers)
    }

    fn own_conflict(&self, answers: &mut Vec<Answer>) {
        let Some(won) = answers.last() else { return };
        if won.state.left.own_conflicts > 0 && matches!(won.reply, Reply::Saved(Saved::At(_))) {
            let mut state = won.state.clone();
            state.left.own_conflicts -= 1;
            let fault = "it won, and was told that it lost";
            answers.push(Answer { reply: Reply::Saved(Saved::Conflict), fault, state });
        }
    }
}

fn refused(state: &State) -> Option<Answer> {
    let mut state = state.clone();
    state.left.refused = state.left.refused.checked_sub(1)?;
    Some(Answer { reply: Reply::Failed(Failure::Refused), fault: "refused", state })
}

/// How often a message has been given, once more.
pub(super) const fn again(given: u8) -> u8 {
    if given < ATTEMPTS_MAX { given + 1 } else { given }
}
