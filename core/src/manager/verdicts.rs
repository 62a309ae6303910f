//! What has been decided about the messages of a pass, and what becomes of that as the pass goes on.

use std::sync::Arc;

use super::{Again, Few, Incoming, Outcome, draft::Attempts, tail::Unsent};
use crate::{
    entity::OutboxEntry,
    envelope::{Destination, Outgoing},
    handler_error::chain,
    ids::AttemptId,
    ports::StoreError,
};

/// What has been decided about a message so far.
pub(super) enum Verdict {
    /// Nothing.
    Open,
    /// Seen: it is over. Its reply, if it has one, is sent again.
    Over { reply: Option<Outgoing> },
    /// Handled; state and mark are to be saved in one commit.
    Marked,
    /// Its entry is in the outbox, or will be once the draft is saved.
    Entry(AttemptId),
    /// Its entry is dispatched and marked.
    Finished,
    /// Settles like an earlier message of the pass, of which it is a copy.
    CopyOf(usize),
    /// An outcome that was reached without a save, from what was loaded: counts once the load is known to be fresh.
    Loaded(Outcome),
    /// An outcome.
    Decided(Outcome),
}

impl Verdict {
    /// A message that failed, and one that has no room, end the pass: what comes after must not overtake it.
    pub(super) const fn ends_pass(&self) -> bool {
        matches!(self, Self::Loaded(Outcome::Failed(_)) | Self::Decided(Outcome::Again(_) | Outcome::Rest))
    }
}

/// One verdict for each message of a pass.
pub(super) struct Verdicts(pub(super) Few<Verdict>);

impl Verdicts {
    pub(super) fn open(messages: usize) -> Self {
        Self((0..messages).map(|_| Verdict::Open).collect())
    }

    /// Whose entries the pass owns: one of its messages waits for each.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts::of(self.0.iter().filter_map(|verdict| match verdict {
            Verdict::Entry(attempt) => Some(*attempt),
            _ => None,
        }))
    }

    pub(super) fn need_fresh_load(&self) -> bool {
        self.0.iter().any(|v| matches!(v, Verdict::Loaded(_)))
    }

    /// A compare-and-set has won, or the version was read again: the load was fresh, what rests on it counts.
    pub(super) fn saved(&mut self) {
        for verdict in &mut self.0 {
            match std::mem::replace(verdict, Verdict::Open) {
                Verdict::Loaded(outcome) => *verdict = Verdict::Decided(outcome),
                other => *verdict = other,
            }
        }
    }

    /// Nothing was saved. What had been over, and what rests on nothing loaded, stays as it is.
    pub(super) fn undecided_again(&mut self, again: Again) {
        for verdict in &mut self.0 {
            if let Verdict::Open | Verdict::Marked | Verdict::Entry(_) | Verdict::Loaded(_) = verdict {
                *verdict = Verdict::Decided(Outcome::Again(again.clone()));
            }
        }
    }

    /// What was decided about a message, or about the one that it is a copy of.
    fn judged(&self, index: usize) -> &Verdict {
        match &self.0[index] {
            Verdict::CopyOf(first) => &self.0[*first],
            verdict => verdict,
        }
    }

    /// The messages that wait for this entry, copies too.
    fn of(&self, attempt: AttemptId) -> Few<usize> {
        let waits = |index: &usize| matches!(self.judged(*index), Verdict::Entry(of) if *of == attempt);
        (0..self.0.len()).filter(waits).collect()
    }

    /// `entry` was saved for these.
    pub(super) fn first(&self, entry: &OutboxEntry, messages: &mut [Incoming]) {
        let of = if entry.reply.is_some() { self.of(entry.attempt) } else { Few::new() };
        for index in of {
            if let Some(message) = messages.get_mut(index) {
                message.is_first = true;
            }
        }
    }

    /// `entry` was sent, its answer with it: who asks for that at its address has it.
    pub(super) fn answered(&self, entry: &OutboxEntry, messages: &mut [Incoming]) {
        let Some(reply) = entry.answer().filter(|_| !entry.reply_sent) else { return };
        for index in self.of(entry.attempt) {
            if let Some(message) = messages.get_mut(index) {
                message.answered |= message.envelope.reply_to.as_ref() == Some(&reply.destination);
            }
        }
    }

    /// Nothing more may be sent before all of `entry`. Whoever sends it later sends its answer to the address that is in it: a copy that wants it at
    /// another one has to come again for it (S77).
    pub(super) fn held_up(&mut self, entry: &OutboxEntry, messages: &[Incoming], why: &Unsent) {
        for index in self.of(entry.attempt) {
            if !entry.reply_sent && messages.get(index).is_some_and(|message| lacking(entry, message).is_some()) {
                self.unanswered(index, why);
            }
        }
    }

    /// The answers that are to be sent beside the entries, with the place of who lacks them: to copies of what is over, to who wants at another
    /// address what an entry answers, and to who asks again for what was sent before it came. None of them waits for the rest of its entry, which
    /// may be for somebody who is away: that this is the answer is saved.
    pub(super) fn replies<'e>(
        &self,
        messages: &[Incoming],
        entry: impl Fn(AttemptId) -> Option<&'e OutboxEntry>,
    ) -> Vec<(usize, Outgoing)> {
        let due = |(index, message): (usize, &Incoming)| {
            let reply = match self.judged(index) {
                Verdict::Over { reply } => to_address_of(message, reply.as_ref()?),
                Verdict::Entry(attempt) => lacking(entry(*attempt)?, message),
                _ => None,
            };
            Some((index, reply?))
        };
        messages.iter().enumerate().filter_map(due).collect()
    }

    pub(super) fn unanswered(&mut self, index: usize, why: &Unsent) {
        self.0[index] = Verdict::Decided(Outcome::Unanswered(why.why().to_owned()));
    }

    /// Not all of `entry` was sent. Whoever sends the rest answers whom it was saved for. A copy that came later may come too late for that: somebody
    /// else may have sent the answer before, and be about to finish the entry. It comes again until it knows, or is answered.
    pub(super) fn unsent(&mut self, entry: &OutboxEntry, messages: &[Incoming], why: &Unsent) {
        for index in self.of(entry.attempt) {
            let lacks =
                |message: &Incoming| !message.is_first && entry.reply.is_some() && address_of(message).is_some();
            let outcome = if messages.get(index).is_some_and(lacks) { Outcome::Unanswered } else { Outcome::Unsent };
            self.0[index] = Verdict::Decided(outcome(why.why().to_owned()));
        }
    }

    /// Dispatched, but whether it is marked is unknown. Everything else of the pass is saved.
    pub(super) fn unmarked(&mut self, done: &[Arc<OutboxEntry>], error: &StoreError) {
        for verdict in &mut self.0 {
            match verdict {
                Verdict::Marked => *verdict = Verdict::Decided(Outcome::Handled),
                Verdict::Entry(attempt) if done.iter().any(|entry| entry.attempt == *attempt) => {
                    *verdict = Verdict::Decided(Outcome::Unsent(chain(error)));
                }
                _ => {}
            }
        }
    }

    pub(super) fn finished(&mut self, done: &[Arc<OutboxEntry>]) {
        let done = Attempts::of(done.iter().map(|entry| entry.attempt));
        for verdict in &mut self.0 {
            if let Verdict::Entry(attempt) = *verdict
                && done.contains(attempt)
            {
                *verdict = Verdict::Finished;
            }
        }
    }

    /// The outcomes.
    pub(super) fn close(self) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(self.0.len());
        for verdict in self.0 {
            let outcome = match verdict {
                Verdict::Over { .. } => Outcome::Duplicate,
                Verdict::Marked | Verdict::Finished => Outcome::Handled,
                Verdict::Entry(_) => Outcome::Unsent("its entry was not reached".into()),
                Verdict::CopyOf(first) => like(&outcomes[first]),
                Verdict::Open => Outcome::Rest,
                // The load was not fresh: what rests on it counts for nothing.
                Verdict::Loaded(_) => Outcome::Again(Again::Conflict),
                Verdict::Decided(outcome) => outcome,
            };
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// The answer to `message`, if it does not come to its address with what is left of `entry`.
fn lacking(entry: &OutboxEntry, message: &Incoming) -> Option<Outgoing> {
    let reply = entry.answer()?;
    let with_entry = !entry.reply_sent && message.envelope.reply_to.as_ref() == Some(&reply.destination);
    if with_entry { None } else { to_address_of(message, reply) }
}

/// The same answer, under its old id (S77).
fn to_address_of(message: &Incoming, reply: &Outgoing) -> Option<Outgoing> {
    Some(Outgoing { destination: address_of(message)?.clone(), ..reply.clone() })
}

/// Where it waits for its answer. `None`: it asks for none, or has it.
fn address_of(message: &Incoming) -> Option<&Destination> {
    message.envelope.reply_to.as_ref().filter(|_| !message.answered)
}

/// How a copy settles, given how the first of its kind did.
fn like(first: &Outcome) -> Outcome {
    match first {
        Outcome::Handled | Outcome::Duplicate => Outcome::Duplicate,
        Outcome::Dropped(rule) => Outcome::Dropped(rule),
        Outcome::DeadLetter(reason) => Outcome::DeadLetter(reason.clone()),
        Outcome::Unsent(why) => Outcome::Unsent(why.clone()),
        Outcome::Again(again) => Outcome::Again(again.clone()),
        // Its own answer may go to another address.
        Outcome::Unanswered(_) | Outcome::Failed(_) | Outcome::Rest => Outcome::Rest,
    }
}
