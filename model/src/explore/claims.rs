//! What must hold in every explored world, each under its name. The same sentences as [`crate::invariants`] says about a
//! single run.

use std::fmt;

use hapax_core::entity::DedupEntry;

use super::{
    space::{Sentence, Space},
    state::State,
    steps::Step,
};

/// A sentence that an explored world has broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub claim: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.claim, self.seen)
    }
}

impl std::error::Error for Broken {}

pub(super) fn broken<T>(claim: &'static str, seen: String) -> Result<T, Broken> {
    Err(Broken { claim, seen })
}

impl Space {
    /// A commit adds effects, each for the first time, takes nothing back, and leaves no message without entry and mark.
    pub(super) fn claim_commit(
        &self,
        state: &mut State,
        row: usize,
        entity: u32,
        processed: &[DedupEntry],
    ) -> Result<(), Broken> {
        let before = state.rows[row];
        let old = (before.version > 0).then(|| self.facts(before.entity));
        let new = self.facts(entity);
        let old_lines = old.and_then(|facts| facts.lines.as_deref()).unwrap_or_default();
        let added: Vec<u8> = match &new.lines {
            Some(lines) if old.is_none_or(|old| old.lines.is_some()) => {
                if !lines.starts_with(old_lines) {
                    return broken("no_lost_update", format!("{lines:?} was saved over {old_lines:?}"));
                }
                lines[old_lines.len()..].to_vec()
            }
            // Without lines (a tombstone has none) new entries and marks tell whose effects they are.
            _ => {
                let known = |attempt| old.is_some_and(|old| old.outbox.iter().any(|entry| entry.attempt == attempt));
                let entries = new.outbox.iter().filter(|entry| !known(entry.attempt)).map(|entry| entry.message);
                entries.chain(processed.iter().map(|entry| self.message_of_key(&entry.key))).collect()
            }
        };
        for message in added {
            let effects = &mut state.effects[usize::from(message)];
            *effects += 1;
            if *effects > 1 {
                return broken("effect_at_most_once", format!("message {message} has taken effect {effects} times"));
            }
        }
        for entry in old.into_iter().flat_map(|old| &old.outbox) {
            let stays = new.outbox.iter().any(|other| other.attempt == entry.attempt);
            let marked = state.marks.iter().any(|mark| {
                let mark = self.marks.get(*mark);
                mark.key == entry.key && mark.attempt == entry.attempt
            });
            if !stays && !marked && self.scenario.budgets.evictions == 0 {
                return broken("no_gap", format!("the entry of message {} is gone and it has no mark", entry.message));
            }
        }
        Ok(())
    }

    /// What the user says of every world.
    pub(super) fn claim_always(&self, state: &State) -> Result<(), Broken> {
        self.claim_all(&self.scenario.always, state)
    }

    fn claim_all(&self, sentences: &[(&'static str, Sentence)], state: &State) -> Result<(), Broken> {
        if sentences.is_empty() {
            return Ok(());
        }
        let view = self.view(state);
        for (claim, sentence) in sentences {
            if let Err(seen) = sentence(&view) {
                return broken(claim, seen);
            }
        }
        Ok(())
    }

    /// What leaves is what stood in a committed outbox, byte for byte.
    pub(super) fn claim_sent(&self, state: &State, name: u32) -> Result<(), Broken> {
        if state.stored.binary_search(&name).is_ok() {
            return Ok(());
        }
        let sent = self.outgoing.get(name);
        let same_id = |other: &&u32| self.outgoing.get(**other).envelope.message_id == sent.envelope.message_id;
        match state.stored.iter().find(same_id) {
            Some(other) => {
                let other = self.outgoing.get(*other);
                broken(
                    "output_stable",
                    format!("{} left with two bodies: {other:?} and {sent:?}", sent.envelope.message_id),
                )
            }
            None => broken("no_ghost_output", format!("{sent:?} left, and never stood in a committed outbox")),
        }
    }

    /// A mark says that everything the message has caused has left.
    pub(super) fn claim_marked(&self, state: &State, message: u8) -> Result<(), Broken> {
        match self.unsent(state, message) {
            Some(name) => broken(
                "marked_only_when_sent",
                format!(
                    "message {message} is marked, and {:?} has not left",
                    self.outgoing.get(name).envelope.message_id
                ),
            ),
            None => Ok(()),
        }
    }

    /// What is acknowledged has taken effect, and has left or waits in the outbox; or it was set aside.
    pub(super) fn claim_acked(&self, state: &State, message: u8) -> Result<(), Broken> {
        if state.letters.contains(&message) || self.scenario.may_drop.contains(&message) {
            return Ok(());
        }
        if state.effects[usize::from(message)] == 0 {
            return broken("ack_implies_done", format!("message {message} was acknowledged without an effect"));
        }
        let waits = |row: &super::state::Row| {
            row.version > 0 && self.facts(row.entity).outbox.iter().any(|entry| entry.message == message)
        };
        if self.unsent(state, message).is_some() && !state.rows.iter().any(waits) {
            return broken(
                "ack_implies_done",
                format!("message {message} was acknowledged, and what it sends is lost"),
            );
        }
        Ok(())
    }

    /// What has taken effect is not set aside.
    pub(super) fn claim_letter(&self, state: &State, message: u8) -> Result<(), Broken> {
        if state.effects[usize::from(message)] == 0 {
            return Ok(());
        }
        broken("no_letter_after_effect", format!("message {message} was set aside, and has taken effect"))
    }

    /// What must hold where all is over; and that it is over where no step leads on.
    pub(super) fn claim_end(&self, state: &State, steps: &[(Step, Result<State, Broken>)]) -> Result<(), Broken> {
        if state.is_quiet() && !steps.iter().any(|(step, _)| matches!(step, Step::Begin(_))) {
            self.claim_rest(state)
        } else if steps.is_empty() {
            broken("no_deadlock", "nothing can be done any more, and not all is done".into())
        } else {
            Ok(())
        }
    }

    /// When all is over: every message has its effect, has sent everything and is marked, and nothing is left behind.
    fn claim_rest(&self, state: &State) -> Result<(), Broken> {
        for row in state.rows.iter().filter(|row| row.version > 0) {
            if let Some(entry) = self.facts(row.entity).outbox.first() {
                return broken("no_garbage_at_rest", format!("the entry of message {} is left", entry.message));
            }
        }
        for message in 0..u8::try_from(state.effects.len()).unwrap_or(u8::MAX) {
            if state.letters.contains(&message) {
                continue;
            }
            if state.effects[usize::from(message)] == 0 && !self.scenario.may_drop.contains(&message) {
                return broken("complete_at_rest", format!("message {message} has no effect"));
            }
            if self.unsent(state, message).is_some() {
                return broken("complete_at_rest", format!("not all that message {message} sends has left"));
            }
            let marked = state.marks.iter().any(|mark| self.message_of_key(&self.marks.get(*mark).key) == message);
            if !marked && self.scenario.budgets.evictions == 0 && state.effects[usize::from(message)] > 0 {
                return broken("complete_at_rest", format!("message {message} is not marked"));
            }
        }
        self.claim_all(&self.scenario.at_rest, state)
    }

    /// Something that `message` has caused and that has not left.
    fn unsent(&self, state: &State, message: u8) -> Option<u32> {
        let caused = |name: &&u32| self.causes.get(name) == Some(&message);
        state.stored.iter().filter(caused).find(|name| state.sent.binary_search(name).is_err()).copied()
    }
}
