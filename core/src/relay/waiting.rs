//! What this process has and has not sent yet.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::{envelope::Outgoing, ids::PartitionKey, ports::Claim};

/// The right to one row, while this process has it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Claim,
    pub(super) attempts: u32,
    pub(super) until: Instant,
    pub(super) renew_at: Instant,
}

impl Held {
    pub(super) fn new(claim: Claim, attempts: u32, begun: Instant, lease: std::time::Duration) -> Self {
        Self { claim, attempts, until: begun + lease, renew_at: begun + lease / 3 }
    }
}

type Row = (Held, Outgoing);

/// Rows that wait. Where order is kept, only the first of each key may go, until it is known what has become of it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ordered: bool,
    ready: VecDeque<Row>,
    /// Of each key of which something is ready or on its way, what comes behind that.
    lanes: HashMap<PartitionKey, VecDeque<Row>>,
    behind: usize,
    bytes: usize,
}

impl Waiting {
    pub(super) fn new(ordered: bool) -> Self {
        Self { ordered, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.behind
    }

    /// Of all that waits.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing can be sent now.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn push(&mut self, held: Held, outgoing: Outgoing) {
        self.bytes += outgoing.envelope.size();
        if let Some(key) = outgoing.envelope.partition_key.as_ref().filter(|_| self.ordered) {
            if let Some(lane) = self.lanes.get_mut(key) {
                self.behind += 1;
                return lane.push_back((held, outgoing));
            }
            self.lanes.insert(key.clone(), VecDeque::new());
        }
        self.ready.push_back((held, outgoing));
    }

    /// The next that may be sent.
    pub(super) fn pop(&mut self) -> Option<Row> {
        let (held, outgoing) = self.ready.pop_front()?;
        self.bytes -= outgoing.envelope.size();
        Some((held, outgoing))
    }

    /// `outgoing` is sent, or need not be: what comes behind it may go.
    pub(super) fn is_done(&mut self, outgoing: &Outgoing) {
        let Some(key) = self.key(outgoing) else { return };
        match self.lanes.get_mut(key).and_then(VecDeque::pop_front) {
            Some(row) => {
                self.behind -= 1;
                self.ready.push_back(row);
            }
            None => drop(self.lanes.remove(key)),
        }
    }

    /// `outgoing` is not sent: what comes behind it must not go, and is given out of hand.
    pub(super) fn is_stuck(&mut self, outgoing: &Outgoing) -> VecDeque<Row> {
        let lane = self.key(outgoing).and_then(|key| self.lanes.remove(key)).unwrap_or_default();
        self.behind -= lane.len();
        self.bytes -= lane.iter().map(|(_, outgoing)| outgoing.envelope.size()).sum::<usize>();
        lane
    }

    /// Everything, in the order in which it came.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Row> + use<> {
        let none = Self::new(self.ordered);
        let Self { ready, lanes, .. } = std::mem::replace(self, none);
        ready.into_iter().chain(lanes.into_values().flatten())
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.ready.iter().chain(self.lanes.values().flatten()).map(|(held, _)| held)
    }

    pub(super) fn held_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.ready.iter_mut().chain(self.lanes.values_mut().flatten()).map(|(held, _)| held)
    }

    fn key<'o>(&self, outgoing: &'o Outgoing) -> Option<&'o PartitionKey> {
        outgoing.envelope.partition_key.as_ref().filter(|_| self.ordered)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::Arc, time::Duration};

    use tokio::time::Instant;

    use super::{Held, Waiting};
    use crate::{
        envelope::{Destination, Envelope, Outgoing},
        ids::{MessageId, TypeName},
        ports::Claim,
    };

    fn put(waiting: &mut Waiting, token: i64, key: Option<&str>) {
        let id = MessageId::random();
        let mut envelope = Envelope::new(id.clone(), TypeName::parse("t").unwrap(), "");
        envelope.partition_key = key.map(|key| key.parse().unwrap());
        let outgoing = Outgoing { destination: Destination::parse("topic:t").unwrap(), envelope: Arc::new(envelope) };
        waiting.push(Held::new(Claim { id, token }, 1, Instant::now(), Duration::from_secs(1)), outgoing);
    }

    fn next(waiting: &mut Waiting) -> Option<(i64, Outgoing)> {
        waiting.pop().map(|(held, outgoing)| (held.claim.token, outgoing))
    }

    #[test]
    fn only_the_first_of_a_key_goes_until_it_is_known_what_became_of_it() {
        let mut waiting = Waiting::new(true);
        for (token, key) in [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, Some("a")), (5, None), (6, None)] {
            put(&mut waiting, token, key);
        }
        assert_eq!(waiting.len(), 6);
        let each = waiting.bytes() / 6;
        let (first, of_a) = next(&mut waiting).unwrap();
        let others: Vec<(i64, Outgoing)> = std::iter::from_fn(|| next(&mut waiting)).collect();
        assert_eq!((first, others.iter().map(|(token, _)| *token).collect()), (1, vec![3, 5, 6]));
        others.iter().for_each(|(_, outgoing)| waiting.is_done(outgoing));
        assert!(waiting.is_idle() && waiting.len() == 2);
        waiting.is_done(&of_a);
        let (second, of_a) = next(&mut waiting).unwrap();
        assert_eq!((second, waiting.len()), (2, 1));
        let behind: Vec<i64> = waiting.is_stuck(&of_a).into_iter().map(|(held, _)| held.claim.token).collect();
        assert_eq!((behind, waiting.len(), waiting.bytes()), (vec![4], 0, 0));
        assert!(each > 0);
        // The key is free again.
        put(&mut waiting, 7, Some("a"));
        let (token, of_a) = next(&mut waiting).unwrap();
        waiting.is_done(&of_a);
        assert_eq!((token, waiting.lanes.len()), (7, 0));
    }

    #[test]
    fn without_order_keys_say_nothing() {
        let mut waiting = Waiting::new(false);
        put(&mut waiting, 1, Some("a"));
        put(&mut waiting, 2, Some("a"));
        let (_, of_a) = next(&mut waiting).unwrap();
        assert_eq!(next(&mut waiting).unwrap().0, 2);
        assert!(waiting.is_stuck(&of_a).is_empty() && waiting.lanes.is_empty());
    }
}
