//! One lane: what is handled of an entity's messages, and what has come since.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::flow::Held;
use crate::{manager::Incoming, ports::Receipt};

/// A lane is slow when one of its messages has not begun for so long: a pass, of any number of them, takes milliseconds.
pub(super) const SLOW: Duration = Duration::from_secs(1);

pub(super) struct Lane {
    pub(super) manager: usize,
    /// Leases of what is being handled.
    pub(super) running: SmallVec<[Receipt; 1]>,
    /// Its part of what is held.
    pub(super) at_work: Held,
    /// What came since.
    pub(super) waiting: Vec<Incoming>,
    /// Of all that is here.
    pub(super) held: Held,
    /// When what is handled began.
    pub(super) begun: Instant,
    /// Others have waited for it: what it has no room for goes back, after this rest.
    pub(super) slow: Option<Duration>,
    /// What is handled may kill the process.
    pub(super) suspect: bool,
}

impl Lane {
    pub(super) fn new(manager: usize, first: Incoming, now: Instant) -> Self {
        Self {
            manager,
            running: SmallVec::new(),
            at_work: Held::default(),
            held: Held { messages: 1, bytes: first.bytes },
            waiting: vec![first],
            begun: now,
            slow: None,
            suspect: false,
        }
    }

    /// The first that wait, up to `most`, at least one.
    pub(super) fn next(&mut self, most: Held) -> Vec<Incoming> {
        let mut next = Held::default();
        let taken = self.waiting.iter().take_while(|message| {
            next.add(message.bytes);
            !next.exceeds(most)
        });
        let taken = taken.count();
        let rest = self.waiting.split_off(taken);
        let messages = std::mem::replace(&mut self.waiting, rest);
        self.running = messages.iter().map(|message| message.receipt.clone()).collect();
        self.at_work = Held { messages: messages.len(), bytes: messages.iter().map(|message| message.bytes).sum() };
        messages
    }

    /// What was handled is over; answers what that was.
    pub(super) fn ended(&mut self, now: Instant) -> Held {
        if now.saturating_duration_since(self.begun) < SLOW {
            self.slow = None;
        }
        self.running.clear();
        let ended = std::mem::take(&mut self.at_work);
        self.held.sub(ended);
        ended
    }
}
