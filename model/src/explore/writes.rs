//! What a write does to the world.

use super::{
    claims::Broken,
    scenario::Reads,
    short::{Ask, Marks, SaveAsk, version_bit},
    space::Space,
    state::{Row, State, insert_sorted, push_sorted},
    tables::MarkFacts,
};

/// Copies of one message that wait in a queue at most: what is sent more often is not there more often.
const COPIES_MAX: usize = 2;

impl Space {
    /// Does a write that was under way.
    pub(super) fn land(&self, state: &mut State, ask: &Ask) -> Result<(), Broken> {
        match ask {
            Ask::Save(save) => self.save(state, save).map(drop),
            Ask::Finish { row, done, clean_up } => self.finish(state, *row, done, *clean_up).map(drop),
            Ask::Insert(done) => self.mark(state, done),
            Ask::Dispatch(outgoing) => outgoing.iter().try_for_each(|one| self.send(state, *one)),
            Ask::SetAside(message) => {
                set_aside(state, *message);
                Ok(())
            }
            Ask::Park(outgoing) => self.park(state, *outgoing),
            _ => Ok(()),
        }
    }

    /// In its session a task sees what it has written.
    pub(super) fn own_writes(&self, state: &mut State, task: usize) {
        if self.scenario.reads == Reads::Session {
            state.tasks[task].seen = u8::try_from(state.marks.len()).unwrap_or(u8::MAX);
        }
    }

    /// The version after the save; 0 if it has lost.
    pub(super) fn save(&self, state: &mut State, save: &SaveAsk) -> Result<u8, Broken> {
        if state.row(save.row).version != save.expected {
            return Ok(0);
        }
        let version = self.commit(state, save.row, save.entity, &save.processed)?;
        self.mark(state, &save.processed)?;
        Ok(version)
    }

    /// Stores `entity` under another version: one that nobody remembers, and of those one is as good as another.
    fn commit(&self, state: &mut State, row: u8, entity: u32, processed: &Marks) -> Result<u8, Broken> {
        self.judge_commit(state, row, entity, processed)?;
        for entry in &self.tables.facts(entity).outbox {
            entry.outgoing.iter().for_each(|one| insert_sorted(&mut state.stored, *one));
        }
        let before = state.row(row);
        if !self.scenario.reduced {
            let version = before.version + 1;
            state.set_row(row, Row { version, entity, before: (before.version, before.entity) });
            return Ok(version);
        }
        let mut used = 1;
        for row in &state.rows {
            used |= version_bit(row.version) | version_bit(row.before.0);
        }
        for task in &state.tasks {
            used |= self.trie.nodes[task.node as usize].versions;
        }
        for op in &state.limbo {
            used |= self.trie.made_of(*op).0;
        }
        let version = u8::try_from(used.trailing_ones()).unwrap_or(u8::MAX);
        let before = if self.scenario.budgets.stale_loads > 0 { (before.version, before.entity) } else { (0, 0) };
        state.set_row(row, Row { version, entity, before });
        Ok(version)
    }

    /// The version after the clean-up, 0 if there was none, `None` if it has lost.
    pub(super) fn finish(
        &self,
        state: &mut State,
        row: u8,
        done: &Marks,
        clean_up: Option<(u8, u32)>,
    ) -> Result<Option<u8>, Broken> {
        self.mark(state, done)?;
        let Some((version, entity)) = clean_up else { return Ok(Some(0)) };
        if state.row(row).version != version {
            return Ok(None);
        }
        self.commit(state, row, entity, &Marks::new()).map(Some)
    }

    /// The first mark under a key stays.
    pub(super) fn mark(&self, state: &mut State, done: &Marks) -> Result<(), Broken> {
        for mark in done {
            let MarkFacts { message, key, .. } = *self.tables.mark_facts(*mark);
            if state.marks.iter().any(|other| self.tables.mark_facts(*other).key == key) {
                continue;
            }
            self.judge_marked(state, message)?;
            match self.scenario.reads {
                Reads::Linearizable => insert_sorted(&mut state.marks, *mark),
                _ => state.marks.push(*mark),
            }
        }
        Ok(())
    }

    /// What can never be sent is set aside, and counts as sent.
    pub(super) fn park(&self, state: &mut State, name: u32) -> Result<(), Broken> {
        self.judge_sent(state, name)?;
        insert_sorted(&mut state.parked, name);
        Ok(())
    }

    pub(super) fn send(&self, state: &mut State, name: u32) -> Result<(), Broken> {
        self.judge_sent(state, name)?;
        self.queue_caused(state, name);
        insert_sorted(&mut state.sent, name);
        if let Some(copy) = self.tables.outgoing_facts(name).copy {
            let waiting = state.ready.iter().filter(|(other, _)| *other == copy).count();
            if waiting < COPIES_MAX {
                push_sorted(&mut state.ready, (copy, 1));
            }
        }
        Ok(())
    }
}

pub(super) fn set_aside(state: &mut State, message: Option<u8>) {
    if let Some(message) = message {
        insert_sorted(&mut state.letters, message);
    }
}
