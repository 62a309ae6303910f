//! One queue's turns: what is ready, held back or under a lease, and when there may be something to give although nothing arrives.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use hapax_core::envelope::Envelope;
use tokio::{sync::Notify, time::Instant};

/// The queue of one endpoint.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) ready: VecDeque<Queued>,
    /// Messages that are not to be given yet, soonest first.
    pub(super) held: BinaryHeap<Reverse<Held>>,
    pub(super) leased: HashMap<u64, (Queued, Instant), BuildHasherDefault<Counted>>,
    /// Leases in the order in which they run out: all last equally long, so a new one goes to the end. Extended and
    /// settled ones are skipped when they come up.
    leases: VecDeque<(Instant, u64)>,
    pub(super) arrived: Arc<Notify>,
}

/// Hashes our own count of receipts, which nobody can choose: a multiplication spreads it well enough, and every message
/// is looked up several times.
#[derive(Default)]
pub(super) struct Counted(u64);

impl Hasher for Counted {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, count: u64) {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
        self.0 = (self.0 ^ count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(super) struct Queued {
    pub(super) envelope: Arc<Envelope>,
    pub(super) deliveries: u32,
}

pub(super) struct Held {
    pub(super) until: Instant,
    pub(super) number: u64,
    pub(super) queued: Queued,
}

impl Queue {
    /// Keeps a message back. All who wait are told, not one: whoever is told may be gone before the time comes.
    pub(super) fn hold(&mut self, held: Held) {
        self.held.push(Reverse(held));
        self.arrived.notify_waiters();
    }

    /// Leases a message. Whoever waits is told when the lease runs out: its holder may not live to see it.
    pub(super) fn lease(&mut self, receipt: u64, queued: Queued, expires: Instant) {
        let sooner = self.next_turn().is_none_or(|turn| expires < turn);
        self.leased.insert(receipt, (queued, expires));
        self.leases.push_back((expires, receipt));
        if sooner {
            self.arrived.notify_waiters();
        }
    }

    /// Lets a lease that lasts begin anew. Its old turn stays, and is skipped when it comes up.
    pub(super) fn extend(&mut self, receipt: u64, expires: Instant) {
        if let Some((_, until)) = self.leased.get_mut(&receipt) {
            *until = expires;
            self.leases.push_back((expires, receipt));
        }
    }

    /// Moves what has come due, and what was leased too long, to where it can be given.
    pub(super) fn refresh(&mut self, now: Instant) {
        while self.held.peek().is_some_and(|Reverse(held)| held.until <= now) {
            if let Some(Reverse(held)) = self.held.pop() {
                self.ready.push_back(held.queued);
            }
        }
        while let Some((expires, receipt)) = self.leases.front().copied() {
            if expires > now {
                break;
            }
            self.leases.pop_front();
            // An extended lease has a later turn, a settled one is gone.
            if self.leased.get(&receipt).is_some_and(|(_, until)| *until <= now)
                && let Some((queued, _)) = self.leased.remove(&receipt)
            {
                self.ready.push_front(queued);
            }
        }
    }

    /// Forgets the turns of leases that were settled, so that they do not pile up while none runs out.
    pub(super) fn forget_settled(&mut self) {
        while self.leases.front().is_some_and(|(_, receipt)| !self.leased.contains_key(receipt)) {
            self.leases.pop_front();
        }
    }

    /// When there may be something to give although nothing arrives.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        let held = self.held.peek().map(|Reverse(held)| held.until);
        let lease = self.leases.front().map(|(expires, _)| *expires);
        held.into_iter().chain(lease).min()
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.until, self.number).cmp(&(other.until, other.number))
    }
}
