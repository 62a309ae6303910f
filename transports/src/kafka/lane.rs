//! One partition as one process reads it: what it has of it, and how far it is settled.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hapax_core::envelope::Envelope;
use tokio::sync::watch;

use super::{message::Headers, notes::Given};

/// How far a partition is read ahead of what is settled in it: what is given again after a crash is no more, and so little is remembered of
/// what is settled behind a gap.
pub(super) const AHEAD_MAX: i64 = 4096;
/// Longer delays are as good as none: nobody waits for them.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A partition that this process has.
#[derive(Debug)]
pub(super) struct Lane {
    /// Which time it has it: what was given before it was handed over is none of ours any more.
    pub(super) epoch: u64,
    /// What is not settled, with what is needed to give it; what is settled is forgotten at once.
    open: BTreeMap<i64, Open>,
    /// Behind the last that came.
    next: i64,
    /// As it was noted before this process had it.
    before: Given,
    /// What the group has committed, for whoever waits for it.
    committed: watch::Sender<i64>,
    /// What is on its way to be committed.
    committing: Option<i64>,
    /// What is given is being noted.
    is_noting: bool,
    /// A note that failed is not tried again at once.
    rests_until: Option<Instant>,
    pub(super) is_paused: bool,
    /// What is next in it cannot be decoded.
    held_until: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    what: What,
    /// How often it was given, as far as that counts.
    count: u32,
    state: State,
}

#[derive(Debug)]
enum What {
    Message(Arc<Envelope>),
    /// It is none, and goes to the dead letters by itself.
    Unreadable(Arc<Unreadable>),
}

/// What came and is no message.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) headers: Headers,
    pub(super) body: Bytes,
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be given, and not before.
    Waits {
        until: Option<Instant>,
        noted: Noted,
    },
    Given,
    /// It is on its way to the dead letters.
    Leaves,
}

/// Whether it is noted that it is about to be given: a crash is no way not to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    No,
    Asked,
    Yes,
}

/// What a lane has for a receiver.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) offset: i64,
    pub(super) envelope: Arc<Envelope>,
    pub(super) attempts: u32,
}

impl Lane {
    pub(super) fn new(epoch: u64, begin: i64, committed: Option<i64>, before: Given) -> Self {
        Self {
            epoch,
            open: BTreeMap::new(),
            next: begin,
            before,
            committed: watch::channel(committed.unwrap_or(-1)).0,
            committing: None,
            is_noting: false,
            rests_until: None,
            is_paused: false,
            held_until: None,
        }
    }

    /// All in front of it is settled. What never came, because nothing is at that offset, counts.
    pub(super) fn position(&self) -> i64 {
        self.open.first_key_value().map_or(self.next, |(offset, _)| *offset)
    }

    /// How many are not settled.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether it has as much as it may.
    pub(super) fn is_full(&self) -> bool {
        self.next - self.position() >= AHEAD_MAX
    }

    /// Takes no more before `until`.
    pub(super) const fn hold(&mut self, until: Instant) {
        self.held_until = Some(until);
    }

    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| until > now)
    }

    /// Where it reads on.
    pub(super) const fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn came(&mut self, offset: i64, message: Result<Arc<Envelope>, Unreadable>) {
        if offset < self.next {
            return; // It is here already, or settled.
        }
        let state = State::Waits { until: None, noted: Noted::No };
        let what = match message {
            Ok(envelope) => What::Message(envelope),
            Err(unreadable) => What::Unreadable(Arc::new(unreadable)),
        };
        self.open.insert(offset, Open { what, count: self.before.count(offset), state });
        self.next = offset + 1;
    }

    /// Nothing that is given lies between what came and `position`.
    pub(super) fn passed(&mut self, position: i64) {
        self.next = self.next.max(position);
    }

    /// The next message that may be given now. Where order is kept, what is put off holds up what is behind it.
    pub(super) fn give(&mut self, now: Instant, in_order: bool) -> Option<Offer> {
        for (offset, open) in &mut self.open {
            let (State::Waits { until, noted }, What::Message(envelope)) = (open.state, &open.what) else { continue };
            if until.is_some_and(|until| until > now) || noted != Noted::Yes {
                if in_order {
                    return None;
                }
                continue;
            }
            open.state = State::Given;
            open.count = open.count.saturating_add(1);
            return Some(Offer { offset: *offset, envelope: envelope.clone(), attempts: open.count });
        }
        None
    }

    /// When something that is put off is to be given, at the earliest.
    pub(super) fn later(&self) -> Option<Instant> {
        let until = self.open.values().filter_map(|open| match open.state {
            State::Waits { until, .. } => until,
            State::Given | State::Leaves => None,
        });
        until.min()
    }

    pub(super) fn envelope(&self, offset: i64) -> Option<(Arc<Envelope>, u32)> {
        match self.open.get(&offset) {
            Some(Open { what: What::Message(envelope), count, state: State::Given }) => {
                Some((envelope.clone(), *count))
            }
            _ => None,
        }
    }

    /// Settles one for good. Whether it is as good as committed already: something in front of it is not settled.
    pub(super) fn settle(&mut self, offset: i64) -> bool {
        self.open.remove(&offset);
        self.position() <= offset
    }

    /// Puts one off.
    pub(super) fn retry(&mut self, offset: i64, now: Instant, delay: Duration, counts: bool) {
        let Some(open) = self.open.get_mut(&offset) else { return };
        open.count = open.count.saturating_sub(u32::from(!counts));
        open.state = State::Waits { until: Some(now + delay.min(FAR)), noted: Noted::No };
    }

    /// For whoever waits until something is committed.
    pub(super) fn watch(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    /// What is to be committed now, unless that is under way.
    pub(super) fn commits(&mut self) -> Option<i64> {
        let position = self.position();
        if self.committing.is_some() || *self.committed.borrow() == position {
            return None;
        }
        self.committing = Some(position);
        Some(position)
    }

    /// What is settled and not known to be committed, whatever is under way.
    pub(super) fn uncommitted(&self) -> Option<i64> {
        let position = self.position();
        (*self.committed.borrow() != position).then_some(position)
    }

    /// It is committed, and about to be handed over.
    pub(super) fn last_commit(&mut self, offset: i64) {
        self.committed.send_replace(offset);
    }

    /// How a commit has ended that was under way. One that failed is wanted again.
    pub(super) fn commit_ended(&mut self, offset: i64, done: bool) {
        if self.committing != Some(offset) {
            return; // Of a time before it was handed over and came back.
        }
        self.committing = None;
        if done {
            self.committed.send_replace(offset);
        }
    }

    /// What is to be noted before anything more is given, if there is something. It says of each message how often it was given if this process
    /// dies from now on.
    pub(super) fn notes(&mut self, now: Instant) -> Option<Given> {
        let is_due = |until: Option<Instant>| until.is_none_or(|until| until <= now);
        let wants = |open: &Open| {
            matches!(open.what, What::Message(_))
                && matches!(open.state, State::Waits { until, noted: Noted::No } if is_due(until))
        };
        if self.is_noting || self.rests_until.is_some_and(|until| until > now) || !self.open.values().any(wants) {
            return None;
        }
        self.is_noting = true;
        for open in self.open.values_mut().filter(|open| wants(open)) {
            let State::Waits { noted, .. } = &mut open.state else { continue };
            *noted = Noted::Asked;
        }
        let about_to = |open: &Open| matches!(open.state, State::Waits { noted: Noted::Asked | Noted::Yes, .. });
        Some(self.given(|open| open.count + u32::from(about_to(open))))
    }

    /// How it was noted.
    pub(super) fn noted(&mut self, done: bool, now: Instant, rest: Duration) {
        self.is_noting = false;
        self.rests_until = if done { None } else { Some(now + rest) };
        for open in self.open.values_mut() {
            if let State::Waits { noted: noted @ Noted::Asked, .. } = &mut open.state {
                *noted = if done { Noted::Yes } else { Noted::No };
            }
        }
    }

    /// How often each was given, nothing being about to: for whoever has it next.
    pub(super) fn last_notes(&self) -> Given {
        self.given(|open| open.count)
    }

    fn given(&self, count: impl Fn(&Open) -> u32) -> Given {
        let counts = || self.open.iter().map(|(offset, open)| (*offset, count(open)));
        let position = self.position();
        let last = counts().filter(|(_, count)| *count > 0).map(|(offset, _)| offset + 1).max();
        // Of what has not come to this process, what was noted before it still holds.
        let end = last.unwrap_or(position).max(self.before.end).max(position);
        let unread = self.before.counts.range(self.next..).map(|(offset, count)| (*offset, *count));
        let counts = counts().chain(unread).filter(|(offset, count)| *count != 1 && *offset < end).collect();
        Given { position, end, counts }
    }

    /// What is no message and is to go to the dead letters now.
    pub(super) fn leaving(&mut self, now: Instant) -> Vec<(i64, Arc<Unreadable>)> {
        let mut leaving = Vec::new();
        for (offset, open) in &mut self.open {
            let What::Unreadable(unreadable) = &open.what else { continue };
            if matches!(open.state, State::Waits { until, .. } if until.is_none_or(|until| until <= now)) {
                open.state = State::Leaves;
                leaving.push((*offset, unreadable.clone()));
            }
        }
        leaving
    }
}

#[cfg(test)]
mod tests;
