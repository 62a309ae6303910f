//! Messages that were read from the log and are not over, and how far the log may be forgotten.

use std::collections::{BTreeMap, VecDeque};

use hapax_core::envelope::Outgoing;

/// Of messages without a table: the log is all there is of them. Each has a number, in the order in which they were read.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    last: i64,
    open: BTreeMap<i64, Outgoing>,
    /// Ends of transactions: the last number before each, and the place in the log.
    ends: VecDeque<(i64, u64)>,
    reached: u64,
    /// Whose log it is.
    system: i64,
}

impl Ledger {
    /// Everything is read from `place` on; what was open is read again. Numbers go on, so that what is told of an old one is never
    /// taken for a new one's.
    pub(super) fn begin(&mut self, place: u64, system: i64) {
        *self = Self { last: self.last, reached: place, system, ..Self::default() };
    }

    /// Whose log it is: places in that of another one mean nothing.
    pub(super) const fn system(&self) -> i64 {
        self.system
    }

    /// A message was read: its number.
    pub(super) fn open(&mut self, outgoing: &Outgoing) -> i64 {
        self.last += 1;
        self.open.insert(self.last, outgoing.clone());
        self.last
    }

    /// All that was read so far lies before `place`.
    pub(super) fn end(&mut self, place: u64) {
        match self.ends.back_mut() {
            // Places in between are of no use: what lies before them is the same.
            Some((last, end)) if *last == self.last => *end = (*end).max(place),
            _ => self.ends.push_back((self.last, place)),
        }
        self.settle();
    }

    pub(super) fn get(&self, number: i64) -> Option<&Outgoing> {
        self.open.get(&number)
    }

    /// All that is open.
    pub(super) fn all(&self) -> Vec<(i64, Outgoing)> {
        self.open.iter().map(|(number, outgoing)| (*number, outgoing.clone())).collect()
    }

    /// Up to where the log is needed no more once `numbers` are over as well.
    pub(super) fn reaches(&self, numbers: &[i64]) -> u64 {
        let over: std::collections::HashSet<&i64> = numbers.iter().collect();
        let first_open = self.open.keys().find(|number| !over.contains(number)).copied().unwrap_or(i64::MAX);
        let passed = self.ends.iter().take_while(|(last, _)| *last < first_open).last();
        passed.map_or(self.reached, |(_, place)| *place)
    }

    /// `numbers` are over.
    pub(super) fn close(&mut self, numbers: &[i64]) {
        for number in numbers {
            self.open.remove(number);
        }
        self.settle();
    }

    /// Up to where the log is needed no more.
    pub(super) const fn reached(&self) -> u64 {
        self.reached
    }

    fn settle(&mut self) {
        let first_open = self.open.keys().next().copied().unwrap_or(i64::MAX);
        while let Some((_, place)) = self.ends.pop_front_if(|(last, _)| *last < first_open) {
            self.reached = self.reached.max(place);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use hapax_core::{
        envelope::{Destination, Envelope, Outgoing},
        ids::{MessageId, TypeName},
    };

    use super::Ledger;

    fn message() -> Outgoing {
        let envelope = Envelope::new(MessageId::random(), TypeName::parse("t").unwrap(), "");
        Outgoing { destination: Destination::parse("topic:t").unwrap(), envelope: Arc::new(envelope) }
    }

    #[test]
    fn the_log_is_kept_from_the_first_transaction_on_that_is_not_over() {
        let mut ledger = Ledger::default();
        ledger.begin(10, 1);
        let (a, b) = (ledger.open(&message()), ledger.open(&message()));
        ledger.end(20);
        let c = ledger.open(&message());
        ledger.end(30);
        assert_eq!(ledger.reached(), 10);
        ledger.close(&[c]);
        assert_eq!(ledger.reached(), 10, "one before it is open");
        assert_eq!((ledger.reaches(&[a]), ledger.reaches(&[a, b])), (10, 30));
        ledger.close(&[a]);
        assert_eq!(ledger.reached(), 10, "half of a transaction");
        ledger.close(&[b]);
        assert_eq!(ledger.reached(), 30);
    }

    #[test]
    fn a_transaction_that_is_still_read_is_not_over() {
        let mut ledger = Ledger::default();
        ledger.begin(10, 1);
        let a = ledger.open(&message());
        ledger.close(&[a]);
        assert_eq!(ledger.reached(), 10, "its end was not read");
        ledger.end(20);
        assert_eq!(ledger.reached(), 20);
        ledger.end(40);
        assert_eq!(ledger.reached(), 40, "what lies there was of others");
    }

    #[test]
    fn what_is_told_of_an_old_number_ends_nothing_new() {
        let mut ledger = Ledger::default();
        let old = ledger.open(&message());
        ledger.begin(10, 1);
        let new = ledger.open(&message());
        ledger.end(20);
        ledger.close(&[old]);
        assert!(new != old && ledger.reached() == 10);
        assert!(ledger.get(old).is_none() && ledger.get(new).is_some() && ledger.all().len() == 1);
    }
}
