//! Answers: each copy of an answered message that asks for the answer gets it, at its own address.
//!
//! What the answer is, is not asked of the code under test, but of the scenario: what the message sends to an address at
//! which one of its copies wants an answer.

use hapax_core::envelope::{Destination, Outgoing};

use super::{
    judge::Judged,
    short::{Ask, Marks, Short},
    space::Space,
    state::State,
    trie::Work,
};

/// In [`Task::looked`](super::state::Task::looked), above the bit of its place: the message was found to be over, and its
/// copy was not answered since.
const OWED: u8 = 1 << 4;
/// Above these: the copy was answered since it was given, by this task or by another one. Finding later that the message is over is no new debt.
const ANSWERED: u8 = 1 << 6;

pub(super) const fn owed(place: u8) -> u8 {
    OWED << place
}

pub(super) const fn answered(place: u8) -> u8 {
    ANSWERED << place
}

/// What a task knows of the answer to a copy that it is about to acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    /// It has gone to its address since the copy was given.
    Yes,
    /// Not since.
    No,
    /// Nor since the task was told that the message is over, or that the answer was sent before.
    Owed,
}

impl Space {
    pub(super) fn answer_to(&self, state: &State, task: usize, place: u8) -> Answered {
        let looked = state.tasks[task].looked;
        match (looked & owed(place) != 0, looked & answered(place) != 0) {
            (true, _) => Answered::Owed,
            (false, true) => Answered::Yes,
            (false, false) => Answered::No,
        }
    }

    /// Takes down to which of the task's copies an answer is owed: those whose message it is told is over, or whose entry says that the answer was sent
    /// before, until it has gone to their address.
    pub(super) fn owe(&self, state: &mut State, task: usize, op: u32, reply: &Short) {
        match (&*self.trie.ask(op), reply) {
            (Ask::Load { keys, .. }, Short::Loaded(version, entity, known)) => {
                let entity = (*version > 0).then_some(*entity);
                self.find_owed(state, task, *keys, Some(entity), known.as_ref());
            }
            (Ask::Contains(keys), Short::Known(known)) => self.find_owed(state, task, *keys, None, Some(known)),
            (Ask::Dispatch(outgoing), Short::Dispatched(results)) => {
                for (one, _) in outgoing.iter().zip(results).filter(|(_, result)| result.is_none()) {
                    self.answer(state, *one);
                }
            }
            (Ask::Park(one), Short::Done) => self.answer(state, *one),
            _ => {}
        }
    }

    /// A load begins anew; what is asked after it adds to it.
    fn find_owed(&self, state: &mut State, task: usize, keys: u64, loaded: Option<Option<u32>>, known: Option<&Marks>) {
        let Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else { return };
        for (place, (copy, _)) in (0..).zip(messages) {
            let copy = &self.tables.copies[usize::from(*copy)];
            let message = &self.tables.identities[usize::from(copy.identity)];
            if copy.envelope.reply_to.is_none() || keys >> message.known_by & 1 == 0 {
                continue;
            }
            let is_over = known
                .is_some_and(|known| known.iter().any(|mark| self.tables.mark_facts(*mark).message == copy.identity));
            // Asked of what is left to send, not of the code under test's own note that the answer was sent, which it may lose.
            let outbox = loaded.flatten().map(|entity| &self.tables.facts(entity).outbox);
            let was_sent = outbox.into_iter().flatten().any(|entry| {
                let answers = |(_, answer): (u32, &Outgoing)| {
                    entry.outgoing.iter().any(|name| self.tables.outgoing.get(*name).envelope == answer.envelope)
                };
                let waits = entry.answer_sent.is_none() && self.answers_of(state, copy.identity).any(answers);
                entry.message == copy.identity && !waits
            });
            let done = state.tasks[task].looked & answered(place) != 0;
            let owes = (is_over || was_sent) && !done && self.answers_of(state, copy.identity).next().is_some();
            let looked = &mut state.tasks[task].looked;
            if loaded.is_some() {
                *looked &= !owed(place);
            }
            *looked |= if owes { owed(place) } else { 0 };
        }
    }

    /// Something has left, or was set aside since it never can. Whoever sends it: who asked before has it.
    fn answer(&self, state: &mut State, name: u32) {
        let left = self.tables.outgoing.get(name);
        for task in 0..state.tasks.len() {
            let Work::Deliver(messages) = self.trie.work(state.tasks[task].node) else { continue };
            for (place, (copy, _)) in (0..).zip(messages) {
                let copy = &self.tables.copies[usize::from(*copy)];
                let here = copy.envelope.reply_to.as_ref() == Some(&left.destination);
                if here && self.answers_of(state, copy.identity).any(|(_, answer)| answer.envelope == left.envelope) {
                    let looked = &mut state.tasks[task].looked;
                    *looked = *looked & !owed(place) | answered(place);
                }
            }
        }
    }

    /// What `message` has answered: to one of the addresses at which its copies want it.
    fn answers_of<'a>(&'a self, state: &'a State, message: u8) -> impl Iterator<Item = (u32, &'a Outgoing)> {
        let caused = move |name: &u32| self.tables.outgoing_facts(*name).cause == Some(message);
        let all = state.stored.iter().copied().filter(caused).map(|name| (name, self.tables.outgoing.get(name)));
        all.filter(move |(_, one)| self.wants_answer(&one.destination, Some(message)))
    }

    /// A copy, of this message if one is given, wants its answer there.
    fn wants_answer(&self, to: &Destination, message: Option<u8>) -> bool {
        let mut copies =
            self.tables.copies.iter().filter(|copy| message.is_none_or(|message| copy.identity == message));
        copies.any(|copy| copy.envelope.reply_to.as_ref() == Some(to))
    }

    /// What goes to an address for answers and stood in an outbox under another one is an answer. `None`: it goes elsewhere,
    /// or has never stood in one.
    pub(super) fn judge_repeated(&self, state: &State, sent: &Outgoing) -> Option<Judged> {
        if !self.wants_answer(&sent.destination, None) {
            return None;
        }
        let mut same = state.stored.iter().map(|name| self.tables.outgoing.get(*name));
        let mut same = same.by_ref().filter(|stored| stored.envelope == sent.envelope).peekable();
        same.peek()?;
        if same.any(|stored| self.wants_answer(&stored.destination, None)) {
            return Some(Ok(()));
        }
        Some(self.broken("answer_repeated", || {
            format!("{} goes to {:?}, and is no answer", sent.envelope.message_id, sent.destination)
        }))
    }

    /// A copy is acknowledged when the answer has gone to its address since it was given, or waits for it in the outbox of a message that nobody has
    /// marked; and not there either if its worker was told that the message is over. That an older copy was answered there is not enough: who asks again may
    /// have lost that. It has to be enough where the entry that knew the answer was folded.
    pub(super) fn judge_answered(&self, state: &State, copy: u8, answered: Answered) -> Judged {
        let copy = &self.tables.copies[usize::from(copy)];
        let Some(to) = &copy.envelope.reply_to else { return Ok(()) };
        let message = copy.identity;
        let Some((_, answer)) = self.answers_of(state, message).next() else { return Ok(()) };
        let here = |one: &Outgoing| one.destination == *to && one.envelope == answer.envelope;
        let row = state.row(copy.row);
        let entries = || (row.version > 0).then(|| &self.tables.facts(row.entity).outbox).into_iter().flatten();
        let is_marked = state.marks.iter().any(|mark| self.tables.mark_facts(*mark).message == message);
        let waits = || {
            let waiting = entries().filter(|entry| entry.message == message && entry.answer_sent.is_none());
            !is_marked && waiting.flat_map(|entry| &entry.outgoing).any(|name| here(self.tables.outgoing.get(*name)))
        };
        // What was folded is known to be over, and how it was answered is not known any more.
        let is_folded = state.folded >> self.tables.identities[usize::from(message)].known_by & 1 == 1;
        let left = || state.sent.iter().chain(&state.parked).any(|name| here(self.tables.outgoing.get(*name)));
        if answered == Answered::Yes || (answered == Answered::No && (waits() || is_folded && left())) {
            return Ok(());
        }
        self.broken("answer_repeated", || {
            format!("a copy of {} was acknowledged, and {to:?} has no answer to it", self.name(message))
        })
    }
}
