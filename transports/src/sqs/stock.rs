//! What an endpoint has asked for, what has come of it, and what it holds.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use hapax_core::{
    envelope::Envelope,
    ports::{Delivery, Receipt, TransportError},
};

/// Messages that one call brings: the service gives no more.
pub(super) const POLL_MAX: usize = 10;
/// Leases that have run out and that nobody has settled are forgotten once there are as many.
const HELD_LOOKED_AT: usize = 1024;

/// A message under a lease.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) handle: String,
    pub(super) envelope: Arc<Envelope>,
    pub(super) attempts: u32,
    /// What it is in order with.
    pub(super) group: Option<String>,
    /// When it came.
    pub(super) since: Instant,
    /// When its lease ends, as far as it is used here. The service ends it later.
    pub(super) until: Instant,
}

impl Held {
    fn is_lost(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Stock {
    ready: VecDeque<Held>,
    held: HashMap<u64, Held>,
    next: u64,
    /// Calls under way, and how many messages they bring at most.
    polls: usize,
    asked: usize,
    /// The last one brought as many as it could.
    was_full: bool,
    failed: Option<TransportError>,
    /// Nobody receives any more.
    pub(super) is_closed: bool,
}

/// A call to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Poll {
    pub(super) max: usize,
    /// The service may wait for messages.
    pub(super) waits: bool,
}

impl Stock {
    /// What has come, up to `max`; and which of them have waited here for so long that their leases are to begin anew.
    pub(super) fn give(&mut self, max: usize, refresh_after: Duration) -> (Vec<Delivery>, Vec<u64>) {
        let (mut deliveries, mut refresh) = (Vec::new(), Vec::new());
        while deliveries.len() < max
            && let Some(held) = self.ready.pop_front()
        {
            // It comes again.
            if held.is_lost() {
                continue;
            }
            self.next += 1;
            let number = self.next;
            if held.since.elapsed() > refresh_after {
                refresh.push(number);
            }
            let (envelope, attempts) = (held.envelope.clone(), held.attempts);
            deliveries.push(Delivery { envelope, receipt: Receipt::number(number), attempts });
            self.held.insert(number, held);
        }
        (deliveries, refresh)
    }

    /// The calls that are to be made so that up to `max` messages come: one, and several while there are more than one brings.
    pub(super) fn ask(&mut self, max: usize, polls_max: usize) -> Vec<Poll> {
        let mut polls = Vec::new();
        let polls_max = if self.was_full { polls_max } else { 1 };
        while self.polls < polls_max && self.asked + self.ready.len() < max {
            let most = (max - self.asked - self.ready.len()).min(POLL_MAX);
            polls.push(Poll { max: most, waits: self.polls == 0 });
            self.polls += 1;
            self.asked += most;
        }
        polls
    }

    /// A call has ended with what it brought.
    pub(super) fn came(&mut self, poll: Poll, brought: Result<usize, TransportError>) {
        self.polls = self.polls.saturating_sub(1);
        self.asked = self.asked.saturating_sub(poll.max);
        match brought {
            Ok(brought) => self.was_full = brought == poll.max,
            Err(error) => {
                self.was_full = false;
                self.failed = Some(error);
            }
        }
        if self.held.len() >= HELD_LOOKED_AT {
            self.held.retain(|_, held| !held.is_lost());
        }
    }

    pub(super) fn ready(&mut self, held: Held) {
        self.ready.push_back(held);
    }

    /// Why a call failed, once.
    pub(super) fn failed(&mut self) -> Option<TransportError> {
        self.failed.take()
    }

    /// What a receipt stands for, while its lease lasts.
    pub(super) fn held(&self, number: u64) -> Option<Held> {
        self.held.get(&number).filter(|held| !held.is_lost()).cloned()
    }

    pub(super) fn extended(&mut self, number: u64, until: Instant) {
        if let Some(held) = self.held.get_mut(&number) {
            held.until = held.until.max(until);
        }
    }

    pub(super) fn let_go(&mut self, number: u64) {
        self.held.remove(&number);
    }

    /// Takes all that is there.
    pub(super) fn close(&mut self) -> Vec<Held> {
        self.is_closed = true;
        let mut all: Vec<Held> = std::mem::take(&mut self.ready).into();
        all.extend(std::mem::take(&mut self.held).into_values());
        all.retain(|held| !held.is_lost());
        all
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::ids::{MessageId, TypeName};

    use super::*;

    fn held(lease: Duration) -> Held {
        let kind = TypeName::parse("shop.added").unwrap();
        let envelope = Arc::new(Envelope::new(MessageId::random(), kind, "{}"));
        let since = Instant::now();
        Held { handle: "h".into(), envelope, attempts: 1, group: None, since, until: since + lease }
    }

    #[test]
    fn no_more_is_asked_for_than_is_wanted_and_several_calls_are_made_only_while_there_is_much() {
        let mut stock = Stock::default();
        assert_eq!(stock.ask(512, 4), [Poll { max: 10, waits: true }]);
        assert_eq!(stock.ask(512, 4), [], "one is under way");
        stock.came(Poll { max: 10, waits: true }, Ok(10));
        for _ in 0..10 {
            stock.ready(held(Duration::from_secs(60)));
        }
        let polls = stock.ask(33, 4);
        assert_eq!(polls.iter().map(|poll| poll.max).collect::<Vec<_>>(), [10, 10, 3]);
        assert_eq!(polls.iter().filter(|poll| poll.waits).count(), 1);
        for poll in polls {
            stock.came(poll, Ok(0));
        }
        assert_eq!(stock.ask(512, 4).len(), 1);
    }

    #[test]
    fn what_has_run_out_is_not_given_and_settles_nothing() {
        let mut stock = Stock::default();
        stock.ready(held(Duration::ZERO));
        stock.ready(held(Duration::from_secs(60)));
        let (given, refresh) = stock.give(10, Duration::from_secs(60));
        assert_eq!((given.len(), refresh.len()), (1, 0));
        let number = given[0].receipt.as_number().unwrap();
        assert!(stock.held(number).is_some());
        stock.held.get_mut(&number).unwrap().until = Instant::now();
        assert!(stock.held(number).is_none());
        assert!(stock.close().is_empty());
    }
}
