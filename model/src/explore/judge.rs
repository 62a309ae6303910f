//! Judges worlds by the claims. The same sentences as [`crate::invariants`] says about a single run.

use hapax_core::{envelope::Outgoing, ids::MessageId};
use smallvec::SmallVec;

use super::{
    claims::{Broken, claim},
    replies::Answered,
    scenario::Sentence,
    short::Marks,
    space::Space,
    state::State,
    tables::Facts,
    wire::lock,
};

pub(super) type Judged = Result<(), Broken>;
/// Messages that take effect in one commit.
type Handled = SmallVec<[u8; 4]>;

/// The messages whose bits are set.
fn messages(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let message = u8::try_from(bits.trailing_zeros()).ok().filter(|message| *message < 64)?;
        bits &= bits - 1;
        Some(message)
    })
}

/// It was sent, or was set aside because it never can be.
fn has_left(state: &State, name: u32) -> bool {
    state.sent.binary_search(&name).is_ok() || state.parked.binary_search(&name).is_ok()
}

impl Space {
    /// Says that the claim is broken, unless it is not judged.
    pub(super) fn broken(&self, name: &'static str, seen: impl FnOnce() -> String) -> Judged {
        debug_assert!(claim(name).is_some(), "{name} is not in the table");
        if self.scenario.without.contains(&name) { Ok(()) } else { Err(Broken { claim: name, seen: seen() }) }
    }

    pub(super) fn name(&self, message: u8) -> &str {
        self.tables.name_of(message)
    }

    /// A commit takes nothing back, adds effects, each for the first time, and leaves no message without entry and mark.
    pub(super) fn judge_commit(&self, state: &mut State, row: u8, entity: u32, processed: &Marks) -> Judged {
        let before = state.row(row);
        let old = (before.version > 0).then(|| self.tables.facts(before.entity));
        let new = self.tables.facts(entity);
        let mut effects = self.handled(old, new, processed);
        let told = effects.len();
        if let (Some(lines), None | Some(Facts { lines: Some(_), .. })) = (&new.lines, old) {
            let old_lines = old.and_then(|old| old.lines.as_deref()).unwrap_or_default();
            self.judge_lines(row, old_lines, lines, &mut effects)?;
        }
        for message in &effects {
            self.judge_effect(state, *message, old.map(|old| old.timeouts.as_slice()))?;
            state.effects |= 1 << message;
        }
        // Last, for who takes effect twice may be counted wrong as well, and that is the better story.
        let commits = old.map_or(0, |old| old.commits);
        let gaps = self.scenario.budgets.evictions == 0;
        // An effect that only the lines tell of is a gap.
        if new.commits != commits + told as u64 && !(gaps && effects.len() > told) {
            self.broken("no_lost_update", || {
                format!("{} handled messages were saved over {commits}, and {told} are new", new.commits)
            })?;
        }
        if gaps { self.judge_gap(state, row, new, processed) } else { Ok(()) }
    }

    /// The messages whose handling is new in a commit: each new attempt, by its entry or by its mark, is one.
    fn handled(&self, old: Option<&Facts>, new: &Facts, processed: &Marks) -> Handled {
        let knew = |attempt| old.is_some_and(|old| old.outbox.iter().any(|entry| entry.attempt == attempt));
        let entries = new.outbox.iter().map(|entry| (entry.message, entry.attempt));
        let of = |mark: &u32| (self.tables.mark_facts(*mark).message, self.tables.marks.get(*mark).attempt);
        let mut attempts: SmallVec<[_; 4]> = SmallVec::new();
        for one in entries.chain(processed.iter().map(of)) {
            if !knew(one.1) && !attempts.contains(&one) {
                attempts.push(one);
            }
        }
        attempts.into_iter().map(|(message, _)| message).collect()
    }

    /// New lines come behind the old ones, each once. One that no entry and no mark tells of is added to `effects`.
    fn judge_lines(&self, row: u8, old: &[u8], new: &[u8], effects: &mut Handled) -> Judged {
        if !new.starts_with(old) {
            self.broken("no_lost_update", || format!("{new:?} was saved over {old:?}"))?;
        }
        for (at, line) in new.iter().enumerate().skip(old.len()) {
            if new[..at].contains(line) {
                self.broken("effect_at_most_once", || format!("the effect {line} is twice in {new:?}"))?;
            }
            let message = self.tables.message_of_line(row, *line);
            let untold = message.filter(|message| !effects.contains(message));
            effects.extend(untold);
        }
        Ok(())
    }

    /// Whatever has taken effect has its entry or its mark.
    fn judge_gap(&self, state: &State, row: u8, new: &Facts, processed: &Marks) -> Judged {
        let stays = |message: u8| new.messages >> message & 1 == 1;
        let marked = |message: u8| {
            let of = |mark: &u32| self.tables.mark_facts(*mark).message == message;
            state.marks.iter().any(of) || processed.iter().any(of)
        };
        let here = |message: &u8| self.tables.identities[usize::from(*message)].row == Some(row);
        for message in messages(state.effects).filter(here) {
            if !stays(message) && !marked(message) {
                self.broken("no_gap", || format!("{} has neither an entry nor a mark", self.name(message)))?;
            }
        }
        Ok(())
    }

    fn judge_effect(&self, state: &State, message: u8, timeouts: Option<&[MessageId]>) -> Judged {
        let identity = &self.tables.identities[usize::from(message)];
        if state.has_effect(message) {
            let claim = if self.is_downstream(message) { "downstream_once" } else { "effect_at_most_once" };
            self.broken(claim, || format!("{} has taken effect twice", identity.name))?;
        }
        if let Some(id) = &identity.timeout
            && !timeouts.is_some_and(|live| live.contains(id))
        {
            self.broken("timeout_only_while_live", || format!("{} was handled", identity.name))?;
        }
        if let Some(cause) = identity.cause {
            let same = |other: &u8| self.tables.identities[usize::from(*other)].cause == Some(cause);
            if messages(state.effects).any(|other| other != message && same(&other)) {
                self.broken("downstream_once", || format!("{} has taken effect under two ids", identity.name))?;
            }
        }
        Ok(())
    }

    /// The message comes from another endpoint of the scenario.
    fn is_downstream(&self, message: u8) -> bool {
        let row = |message: u8| self.tables.identities[usize::from(message)].row;
        let manager = |row: Option<u8>| row.map(|row| self.tables.rows[usize::from(row)].1);
        let cause = self.tables.identities[usize::from(message)].cause;
        cause.is_some_and(|(cause, _)| manager(row(cause)) != manager(row(message)))
    }

    /// What the user says of every world.
    pub(super) fn judge_always(&self, state: &State) -> Judged {
        self.judge_outside(state)?;
        if self.scenario.always.is_empty() {
            return Ok(());
        }
        let entities = state.rows.iter().map(|row| if row.version > 0 { row.entity } else { u32::MAX });
        let letters = state.letters.iter().map(|message| u32::from(*message));
        let (sent, parked) = (state.sent.iter().copied(), state.parked.iter().copied());
        let lists = entities.chain([u32::MAX]).chain(letters).chain([u32::MAX]).chain(sent);
        let seen: Vec<u32> = lists.chain([u32::MAX]).chain(parked).collect();
        let mut right = lock(&self.right);
        if !right.contains(&seen) {
            self.judge_all(&self.scenario.always, state)?;
            right.insert(seen);
        }
        Ok(())
    }

    fn judge_all(&self, sentences: &[(&'static str, Sentence)], state: &State) -> Judged {
        if sentences.is_empty() {
            return Ok(());
        }
        let view = self.view(state);
        for (claim, sentence) in sentences {
            if let Err(seen) = sentence(&view) {
                return Err(Broken { claim, seen });
            }
        }
        Ok(())
    }

    /// What leaves is what stood in a committed outbox, byte for byte.
    pub(super) fn judge_sent(&self, state: &State, name: u32) -> Judged {
        if state.stored.binary_search(&name).is_err() {
            self.judge_unknown(state, self.tables.outgoing.get(name))?;
        }
        if self.scenario.ordered && state.sent.binary_search(&name).is_err() {
            self.judge_order(state, name)?;
        }
        Ok(())
    }

    fn judge_unknown(&self, state: &State, sent: &Outgoing) -> Judged {
        let stored = || state.stored.iter().map(|other| self.tables.outgoing.get(*other));
        if let Some(judged) = self.judge_repeated(state, sent) {
            return judged;
        }
        match stored().find(|other| other.envelope.message_id == sent.envelope.message_id) {
            Some(other) => self.broken("output_stable", || {
                format!("{} left with two bodies: {other:+?} and {sent:+?}", sent.envelope.message_id)
            }),
            None => self.broken("no_ghost_output", || format!("{sent:+?} left, and never stood in a committed outbox")),
        }
    }

    /// Entries before the one of `name` have left.
    fn judge_order(&self, state: &State, name: u32) -> Judged {
        for row in state.rows.iter().filter(|row| row.version > 0) {
            let outbox = &self.tables.facts(row.entity).outbox;
            let Some(at) = outbox.iter().position(|entry| entry.outgoing.contains(&name)) else { continue };
            let all_left = |outgoing: &[u32]| outgoing.iter().all(|name| has_left(state, *name));
            if let Some(first) = outbox[..at].iter().find(|entry| !all_left(&entry.outgoing)) {
                return self.broken("outputs_in_order", || {
                    format!("{} was handled first and has not sent all", self.name(first.message))
                });
            }
        }
        Ok(())
    }

    /// A mark says that the message has taken effect and everything it has caused has left.
    pub(super) fn judge_marked(&self, state: &State, message: u8) -> Judged {
        if !state.has_effect(message) {
            self.broken("marked_only_when_sent", || format!("{} is marked without an effect", self.name(message)))?;
        }
        match self.unsent(state, message) {
            Some(name) => self.broken("marked_only_when_sent", || {
                let id = &self.tables.outgoing.get(name).envelope.message_id;
                format!("{} is marked, and {id:?} has not left", self.name(message))
            }),
            None => Ok(()),
        }
    }

    /// What is acknowledged has taken effect, and has left or waits in the outbox; or it was set aside.
    pub(super) fn judge_acked(&self, state: &State, number: u8, answer: Answered) -> Judged {
        let copy = &self.tables.copies[usize::from(number)];
        let (message, row) = (copy.identity, state.row(copy.row));
        let entity = (row.version > 0).then(|| self.tables.facts(row.entity));
        let identity = &self.tables.identities[usize::from(message)];
        let letter = state.letters.contains(&message);
        if !state.has_effect(message) {
            if letter {
                return Ok(());
            }
            let live = |id: &MessageId| entity.is_some_and(|entity| entity.timeouts.contains(id));
            let over = identity.timeout.as_ref().is_some_and(|id| !live(id));
            if over || self.may_drop(message) {
                return Ok(());
            }
            return self
                .broken("ack_implies_done", || format!("{} was acknowledged without an effect", self.name(message)));
        }
        let waits = entity.is_some_and(|entity| entity.messages >> message & 1 == 1);
        if self.unsent(state, message).is_some() && !waits {
            self.broken("ack_implies_done", || {
                format!("{} was acknowledged, and what it sends is lost", self.name(message))
            })?;
        }
        if letter { Ok(()) } else { self.judge_answered(state, number, answer) }
    }

    /// When all is over: every message has its effect, has sent everything and is marked, and nothing is left behind.
    pub(super) fn judge_rest(&self, state: &State) -> Judged {
        for message in 0..u8::try_from(self.tables.identities.len()).unwrap_or(u8::MAX) {
            let identity = &self.tables.identities[usize::from(message)];
            let letter = state.letters.contains(&message);
            let allowed = |may: &Vec<u8>| may.iter().any(|copy| self.identity_of(*copy) == Some(message));
            if letter && self.scenario.may_set_aside.as_ref().is_some_and(|may| !allowed(may)) {
                self.broken("complete_at_rest", || format!("{} was set aside", identity.name))?;
            }
            if !self.was_queued(state, message) || letter && !state.has_effect(message) {
                continue;
            }
            if !state.has_effect(message) {
                let row = state.row(identity.row.unwrap_or(u8::MAX));
                let live = |id| row.version > 0 && self.tables.facts(row.entity).timeouts.contains(id);
                let over = identity.timeout.as_ref().is_some_and(|id| !live(id));
                if !over && !self.may_drop(message) {
                    self.broken("complete_at_rest", || format!("{} has no effect", identity.name))?;
                }
                continue;
            }
            if self.unsent(state, message).is_some() {
                self.broken("complete_at_rest", || format!("not all that {} sends has left", identity.name))?;
            }
            let marked = state.marks.iter().any(|mark| self.tables.mark_facts(*mark).message == message);
            if !marked && self.scenario.budgets.evictions == 0 {
                self.broken("complete_at_rest", || format!("{} is not remembered", identity.name))?;
            }
        }
        self.judge_all(&self.scenario.at_rest, state)
    }

    /// The world comes round to itself.
    pub(super) fn judge_circle(&self, state: &State) -> Judged {
        for row in state.rows.iter().filter(|row| row.version > 0) {
            if let (true, Some(entry)) = (state.ready.is_empty(), self.tables.facts(row.entity).outbox.first()) {
                self.broken("no_garbage_at_rest", || {
                    format!("the entry of {} is left, whatever the sweeper does", self.name(entry.message))
                })?;
            }
        }
        self.broken("every_run_ends", || "the worlds go round in a circle: a run may never end".into())
    }

    fn identity_of(&self, copy: u8) -> Option<u8> {
        self.tables.copies.get(usize::from(copy)).map(|copy| copy.identity)
    }

    fn may_drop(&self, message: u8) -> bool {
        self.scenario.may_drop.iter().any(|copy| self.identity_of(*copy) == Some(message))
    }

    /// It was there from the beginning, or has been sent.
    fn was_queued(&self, state: &State, message: u8) -> bool {
        let mut first = (0..).zip(&self.tables.copies[..self.tables.first_copies]);
        first.any(|(at, copy)| copy.identity == message && self.is_queued(state, at))
            || state.sent.iter().any(|name| {
                let copy = self.tables.outgoing_facts(*name).copy;
                copy.and_then(|copy| self.identity_of(copy)) == Some(message)
            })
    }

    /// Something that `message` has caused and that has not left.
    fn unsent(&self, state: &State, message: u8) -> Option<u32> {
        let caused = |name: &&u32| self.tables.outgoing_facts(**name).cause == Some(message);
        state.stored.iter().filter(caused).find(|name| !has_left(state, **name)).copied()
    }
}
