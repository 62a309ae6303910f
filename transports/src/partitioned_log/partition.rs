//! One partition of a log, and where each group is in it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hapax_core::{envelope::Envelope, ids::EndpointName};
use tokio::time::Instant;

/// How far a group goes ahead of what it has committed in one partition: what is given again after a restart is no more.
const AHEAD_MAX: u64 = 4096;

/// Messages in the order in which they came, by offset.
#[derive(Default)]
pub(super) struct Partition {
    /// Offset of the first that is kept.
    first: u64,
    kept: VecDeque<Arc<Envelope>>,
    cursors: BTreeMap<EndpointName, Cursor>,
}

/// Where a group is.
#[derive(Default)]
struct Cursor {
    /// Everything in front of it is settled, and never given again.
    committed: u64,
    /// What comes next, all in front of it having been given since somebody began at `committed`.
    next: u64,
    /// Who reads, as long as something between the two is not settled.
    reader: Option<u64>,
    /// Settled, behind a gap. Nobody knows of it but the reader.
    settled: BTreeSet<u64>,
    /// To be given again, and not before.
    again: BTreeMap<u64, Instant>,
    /// How often each was given that is not committed.
    deliveries: BTreeMap<u64, u32>,
}

/// What a partition has for a receiver.
pub(super) enum Turn {
    /// With its offset, and how often it has been given.
    Given(Arc<Envelope>, u64, u32),
    /// Nothing before that.
    Later(Instant),
    Nothing,
}

impl Partition {
    pub(super) fn append(&mut self, envelope: Arc<Envelope>) {
        self.kept.push_back(envelope);
    }

    /// The offset that the next message will have.
    pub(super) fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// A group that reads from here on.
    pub(super) fn join(&mut self, group: &EndpointName) {
        let end = self.end();
        self.cursors.insert(group.clone(), Cursor { committed: end, next: end, ..Cursor::default() });
    }

    /// All in front of this offset is settled by `group`.
    pub(super) fn committed(&self, group: &EndpointName) -> u64 {
        self.cursors.get(group).map_or(0, |cursor| cursor.committed)
    }

    /// Gives one message to `reader`, which is of `group`.
    pub(super) fn take(&mut self, group: &EndpointName, reader: u64, now: Instant) -> Turn {
        let (first, end) = (self.first, self.end());
        let Some(cursor) = self.cursors.get_mut(group) else { return Turn::Nothing };
        let offset = match cursor.turn(reader, end, now) {
            Ok(offset) => offset,
            Err(turn) => return turn,
        };
        let place = usize::try_from(offset - first).ok();
        let Some(envelope) = place.and_then(|place| self.kept.get(place)) else { return Turn::Nothing };
        Turn::Given(envelope.clone(), offset, cursor.give(reader, offset))
    }

    /// Settles one for good. How many messages no group has to read any more.
    pub(super) fn settle(&mut self, group: &EndpointName, offset: u64) -> usize {
        if let Some(cursor) = self.cursors.get_mut(group) {
            cursor.settle(offset);
        }
        let read = self.cursors.values().map(|cursor| cursor.committed).min().unwrap_or_else(|| self.end());
        let dropped = usize::try_from(read.saturating_sub(self.first)).unwrap_or_default().min(self.kept.len());
        self.kept.drain(..dropped);
        self.first += dropped as u64;
        dropped
    }

    /// Puts one off.
    pub(super) fn retry(&mut self, group: &EndpointName, offset: u64, until: Instant, counts: bool) {
        let Some(cursor) = self.cursors.get_mut(group) else { return };
        cursor.again.insert(offset, until);
        if let Some(deliveries) = cursor.deliveries.get_mut(&offset) {
            *deliveries = deliveries.saturating_sub(u32::from(!counts));
        }
    }

    /// `reader` is gone: whoever comes next begins at the committed offset.
    pub(super) fn leave(&mut self, group: &EndpointName, reader: u64) {
        if let Some(cursor) = self.cursors.get_mut(group)
            && cursor.reader == Some(reader)
        {
            cursor.reader = None;
            cursor.next = cursor.committed;
            cursor.settled.clear();
        }
    }
}

impl Cursor {
    /// Which offset is given next. One that is put off is in front of what was never given.
    fn turn(&self, reader: u64, end: u64, now: Instant) -> Result<u64, Turn> {
        if self.reader.is_some_and(|other| other != reader) {
            return Err(Turn::Nothing);
        }
        let put_off = || self.again.range(..=self.next);
        if let Some((offset, _)) = put_off().find(|(_, until)| **until <= now) {
            return Ok(*offset);
        }
        if let Some(until) = put_off().map(|(_, until)| *until).min() {
            return Err(Turn::Later(until));
        }
        let is_there = self.next < end && self.next - self.committed < AHEAD_MAX;
        if is_there { Ok(self.next) } else { Err(Turn::Nothing) }
    }

    fn give(&mut self, reader: u64, offset: u64) -> u32 {
        self.reader = Some(reader);
        self.again.remove(&offset);
        self.next = self.next.max(offset + 1);
        let deliveries = self.deliveries.entry(offset).or_default();
        *deliveries = deliveries.saturating_add(1);
        *deliveries
    }

    fn settle(&mut self, offset: u64) {
        self.settled.insert(offset);
        while self.settled.remove(&self.committed) {
            self.deliveries.remove(&self.committed);
            self.committed += 1;
        }
        if self.committed == self.next {
            self.reader = None;
        }
    }
}

/// When what is put off now is given again.
pub(super) fn until(now: Instant, delay: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    now + delay.min(FAR)
}
