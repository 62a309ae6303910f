//! What a process has of an endpoint's partitions, shared by the thread that reads and by whoever receives and settles.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use hapax_core::ports::{Delivery, Receipt, TransportError};

use super::{
    asker::Place,
    commits::Ended,
    lane::{Lane, Unreadable},
};

/// A message that somebody has.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) epoch: u64,
    pub(super) offset: i64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) lanes: BTreeMap<Place, Lane>,
    /// Partitions taken so far.
    pub(super) epochs: u64,
    /// The thread is there.
    pub(super) runs: bool,
    /// For the next who asks.
    pub(super) failed: Option<TransportError>,
    /// Something that the thread needs may not be there any more.
    pub(super) doubts: bool,
    /// The thread has failed in itself.
    pub(super) is_dead: bool,
    /// What is given, by receipt.
    given: HashMap<u64, Held>,
    receipts: u64,
    /// Where the next call begins, so that no partition waits for another.
    turn: usize,
}

/// Partitions, and whether they are to be held back.
type Pauses = [(Vec<Place>, bool); 2];

impl State {
    /// The lane at `place`, if it is still the one of then.
    pub(super) fn lane(&mut self, place: &Place, epoch: u64) -> Option<&mut Lane> {
        self.lanes.get_mut(place).filter(|lane| lane.epoch == epoch)
    }

    /// Gives up to `max` messages, or says when to look again.
    pub(super) fn give(&mut self, max: usize, now: Instant, in_order: bool) -> Result<Vec<Delivery>, Option<Instant>> {
        self.turn = self.turn.wrapping_add(1);
        let (count, mut deliveries) = (self.lanes.len(), Vec::new());
        let first = if count == 0 { 0 } else { self.turn % count };
        let places: Vec<Place> = self.lanes.keys().cycle().skip(first).take(count).cloned().collect();
        for place in places {
            let Some(lane) = self.lanes.get_mut(&place) else { continue };
            while deliveries.len() < max
                && let Some(next) = lane.give(now, in_order)
            {
                self.receipts += 1;
                let held = Held { place: place.clone(), epoch: lane.epoch, offset: next.offset };
                self.given.insert(self.receipts, held);
                let receipt = Receipt::number(self.receipts);
                deliveries.push(Delivery { envelope: next.envelope, receipt, attempts: next.attempts });
            }
        }
        // What is put off is noted before it is given, which is told when it is done.
        let later = || self.lanes.values().filter_map(Lane::later).filter(|later| *later > now).min();
        if deliveries.is_empty() { Err(later()) } else { Ok(deliveries) }
    }

    /// Of a receipt, what it stands for; it stands for nothing any more.
    pub(super) fn take_back(&mut self, receipt: u64) -> Option<Held> {
        self.given.remove(&receipt)
    }

    /// Nothing is ours any more.
    pub(super) fn let_go(&mut self) {
        self.lanes.clear();
        self.given.clear();
    }

    /// Whether something is not settled, or not committed.
    pub(super) fn is_busy(&self) -> bool {
        self.lanes.values().any(|lane| lane.open() > 0 || lane.uncommitted().is_some())
    }

    /// What is to be committed now.
    pub(super) fn commits(&mut self) -> Vec<(Place, i64)> {
        self.lanes.iter_mut().filter_map(|(place, lane)| Some((place.clone(), lane.commits()?))).collect()
    }

    pub(super) fn commit_ended(&mut self, place: &Place, offset: i64, done: bool) {
        if let Some(lane) = self.lanes.get_mut(place) {
            lane.commit_ended(offset, done);
        }
    }

    /// All that is settled and not known to be committed.
    pub(super) fn uncommitted(&self) -> Vec<(Place, i64)> {
        let wanted = self.lanes.iter().filter_map(|(place, lane)| Some((place.clone(), lane.uncommitted()?)));
        wanted.collect()
    }

    /// How the last commit before they are handed over has ended.
    pub(super) fn handed_over(&mut self, ended: Vec<Ended>) {
        for (place, offset, _) in ended.into_iter().filter(|(_, _, is_done)| *is_done) {
            if let Some(lane) = self.lanes.get_mut(&place) {
                lane.last_commit(offset);
            }
        }
    }

    /// What is no message and is to go to the dead letters now.
    pub(super) fn leaving(&mut self, now: Instant) -> Vec<(Held, Arc<Unreadable>)> {
        let mut leaving = Vec::new();
        for (place, lane) in &mut self.lanes {
            let epoch = lane.epoch;
            let of_lane = lane.leaving(now).into_iter();
            leaving.extend(of_lane.map(|(offset, it)| (Held { place: place.clone(), epoch, offset }, it)));
        }
        leaving
    }

    /// Where partitions are read on that are not held back.
    pub(super) fn ahead(&self) -> Vec<(Place, u64, i64)> {
        let ahead = self.lanes.iter().filter(|(_, lane)| !lane.is_paused);
        ahead.map(|(place, lane)| (place.clone(), lane.epoch, lane.next())).collect()
    }

    /// Partitions that are held back.
    pub(super) fn paused(&self) -> Vec<Place> {
        self.lanes.iter().filter(|(_, lane)| lane.is_paused).map(|(place, _)| place.clone()).collect()
    }

    /// Whether as many are not settled as may be.
    pub(super) fn is_full(&self, open_max: usize) -> bool {
        self.lanes.values().map(Lane::open).sum::<usize>() >= open_max
    }

    /// Partitions of which no more is to be taken now, and those of which more is again.
    pub(super) fn pauses(&mut self, open_max: usize, now: Instant) -> Pauses {
        let is_full = self.is_full(open_max);
        let (mut paused, mut resumed) = (Vec::new(), Vec::new());
        for (place, lane) in &mut self.lanes {
            let wanted = is_full || lane.is_full() || lane.is_held(now);
            if lane.is_paused != wanted {
                lane.is_paused = wanted;
                if wanted { paused.push(place.clone()) } else { resumed.push(place.clone()) }
            }
        }
        [(paused, true), (resumed, false)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::notes::Given;

    fn place(partition: i32) -> Place {
        ("hapax.queue.shop".into(), partition)
    }

    fn unreadable() -> Unreadable {
        Unreadable { headers: Vec::new(), body: Vec::new().into(), reason: String::new() }
    }

    /// Two partitions, and something that is not settled in each.
    fn state() -> State {
        let mut state = State::default();
        for partition in 0..2 {
            let mut lane = Lane::new(1, 0, Some(0), Given::default());
            lane.came(0, Err(unreadable()));
            state.lanes.insert(place(partition), lane);
        }
        state
    }

    #[test]
    fn what_is_held_back_is_known_and_is_not_looked_into() {
        let (mut state, now) = (state(), Instant::now());
        let [(paused, _), _] = state.pauses(10, now);
        assert_eq!((paused, state.ahead().len()), (Vec::new(), 2));
        if let Some(lane) = state.lane(&place(1), 1) {
            lane.hold(now + std::time::Duration::from_secs(1));
        }
        let [(paused, _), _] = state.pauses(10, now);
        assert_eq!((paused, state.paused()), (vec![place(1)], vec![place(1)]));
        assert_eq!(state.ahead(), [(place(0), 1, 1)]);
        let [_, (resumed, _)] = state.pauses(10, now + std::time::Duration::from_secs(1));
        assert_eq!((resumed, state.paused()), (vec![place(1)], Vec::new()), "it is tried again");
        let [(paused, _), _] = state.pauses(2, now + std::time::Duration::from_secs(1));
        assert_eq!(paused.len(), 2, "there is no room");
    }

    #[test]
    fn of_commits_that_ended_differently_each_counts_for_its_own_partition() {
        let mut state = state();
        for partition in 0..2 {
            if let Some(lane) = state.lane(&place(partition), 1) {
                lane.settle(0);
            }
        }
        let wanted = vec![(place(0), 1), (place(1), 1)];
        assert_eq!(state.commits(), wanted);
        state.commit_ended(&place(0), 1, true);
        state.commit_ended(&place(1), 1, false);
        assert_eq!(state.uncommitted(), wanted[1..], "it is wanted again");
        state.handed_over(vec![(place(1), 1, false)]);
        assert_eq!(state.uncommitted(), wanted[1..]);
        state.handed_over(vec![(place(1), 1, true)]);
        assert_eq!(state.uncommitted(), []);
    }
}
