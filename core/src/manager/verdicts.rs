//! What has been decided about the messages of a pass, and what becomes of that as the pass goes on.

use std::sync::Arc;

use super::{Again, Few, Incoming, Outcome, draft::Attempts, tail::Unsent};
use crate::{entity::OutboxEntry, envelope::Outgoing, handler_error::chain, ids::AttemptId, ports::StoreError};

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

/// Whether a copy's reply is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Yes.
    Always,
    /// It has been sent to its own address: only if the copy asks for it at another one.
    Elsewhere,
    /// Only if the copy asks for it at that very address: it has been sent to others.
    Here,
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

    /// `entry` was sent, its answer with it: who asks for that at its address has it.
    pub(super) fn answered(&self, entry: &OutboxEntry, messages: &mut [Incoming]) {
        let Some(reply) = entry.answer().filter(|_| !entry.reply_sent) else { return };
        for (index, message) in messages.iter_mut().enumerate() {
            let is_its = matches!(self.judged(index), Verdict::Entry(attempt) if *attempt == entry.attempt);
            message.answered |= is_its && message.envelope.reply_to.as_ref() == Some(&reply.destination);
        }
    }

    /// What was decided about a message, or about the one that it is a copy of.
    fn judged(&self, index: usize) -> &Verdict {
        match &self.0[index] {
            Verdict::CopyOf(first) => &self.0[*first],
            verdict => verdict,
        }
    }

    /// Whoever sends `entry` later sends its answer to the address that is in it, if that has not been sent. A copy that wants the answer at another
    /// one, or wants again what was sent before it came, has to come again for it (S77).
    pub(super) fn unsent(&mut self, entry: &OutboxEntry, messages: &[Incoming], why: &Unsent) {
        let reply = entry.answer();
        for (index, message) in messages.iter().enumerate() {
            // Copies come after their first, which is decided by then.
            let waits = match self.judged(index) {
                Verdict::Entry(attempt) => *attempt == entry.attempt,
                Verdict::Decided(Outcome::Unsent(_) | Outcome::Unanswered(_)) => {
                    matches!(self.0[index], Verdict::CopyOf(_)) && message.key == entry.key
                }
                _ => false,
            };
            let lacks = |reply: &Outgoing| {
                let to = message.envelope.reply_to.as_ref().filter(|_| !message.answered);
                to.is_some_and(|to| entry.reply_sent || *to != reply.destination)
            };
            if waits && reply.is_some_and(lacks) {
                self.0[index] = Verdict::Decided(Outcome::Unanswered(why.why().to_owned()));
            } else if matches!(self.0[index], Verdict::Entry(attempt) if attempt == entry.attempt) {
                self.0[index] = Verdict::Decided(Outcome::Unsent(why.why().to_owned()));
            }
        }
    }

    /// Dispatched, but whether it is marked is unknown. Everything else of the pass is saved. Whoever marks it later sends no answer that has been sent:
    /// a copy that asks for one and has none has to come again for it (S77).
    pub(super) fn unmarked(&mut self, done: &[Arc<OutboxEntry>], messages: &[Incoming], error: &StoreError) {
        for (verdict, message) in self.0.iter_mut().zip(messages) {
            match verdict {
                Verdict::Marked => *verdict = Verdict::Decided(Outcome::Handled),
                Verdict::Entry(attempt) => {
                    let Some(entry) = done.iter().find(|entry| entry.attempt == *attempt) else { continue };
                    let lacks = entry.reply.is_some() && message.envelope.reply_to.is_some() && !message.answered;
                    let outcome = if lacks { Outcome::Unanswered } else { Outcome::Unsent };
                    *verdict = Verdict::Decided(outcome(chain(error)));
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

    /// The replies that copies get again, with the index of who may ask: of messages that are over, and of those whose entries are `done`. What an
    /// earlier pass has sent of these is sent again once it is `marked`, or each try to mark it would send it.
    pub(super) fn replies(&self, done: &[Arc<OutboxEntry>], marked: bool) -> Vec<(usize, Outgoing, Repeat)> {
        let is_due = |entry: &&Arc<OutboxEntry>| entry.reply.is_some() && (entry.reply_sent || !marked);
        let answered: Few<&Arc<OutboxEntry>> = done.iter().filter(is_due).collect();
        let reply = |verdict: &Verdict| match verdict {
            Verdict::Over { reply } if !marked => Some((reply.clone()?, Repeat::Always)),
            Verdict::Entry(attempt) => {
                let entry = answered.iter().find(|entry| entry.attempt == *attempt)?;
                let repeat = if marked { Repeat::Here } else { Repeat::Elsewhere };
                Some((entry.answer()?.clone(), repeat))
            }
            _ => None,
        };
        let due = |index| reply(self.judged(index)).map(|(reply, repeat)| (index, reply, repeat));
        (0..self.0.len()).filter_map(due).collect()
    }

    pub(super) fn reply_unsent(&mut self, index: usize, why: &Unsent) {
        self.0[index] = Verdict::Decided(Outcome::Unanswered(why.why().to_owned()));
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
