//! Sessions: the messages of one group, which one link has at a time, under a lock that is the lock of each of them.

use std::{
    collections::{HashMap, VecDeque},
    time::{Instant, SystemTime},
};

use tokio::sync::mpsc::UnboundedSender;

use super::{Event, Namespace, Place, Queue, Taker, group_of, millis};

const TIMEOUT: &str = "com.microsoft:timeout";
const LOST: &str = "com.microsoft:session-lock-lost";

#[derive(Default)]
pub(super) struct Sessions {
    owners: HashMap<String, Owner>,
    waiting: VecDeque<Waiter>,
    /// How many each connection has had.
    granted: HashMap<u64, u32>,
}

struct Owner {
    place: Place,
    until: Instant,
}

/// Who wants the next session that nobody has, for a while.
struct Waiter {
    place: Place,
    until: Instant,
    gives: UnboundedSender<Event>,
}

impl Namespace {
    pub(in super::super) fn has_sessions(&self, name: &str) -> bool {
        self.queues.get(name).is_some_and(|queue| queue.sessions.is_some())
    }

    pub(in super::super) fn wait_for_session(
        &mut self,
        name: &str,
        place: Place,
        until: Instant,
        gives: UnboundedSender<Event>,
    ) {
        if let Some(sessions) = self.queues.get_mut(name).and_then(|queue| queue.sessions.as_mut()) {
            sessions.waiting.push_back(Waiter { place, until, gives });
        }
        self.hand_out(name);
    }

    /// Lets the lock of a session begin anew, with those of its messages; the time until which it lasts.
    pub(in super::super) fn renew_session(&mut self, name: &str, id: &str) -> Option<i64> {
        let queue = self.queues.get_mut(name)?;
        let until = Instant::now() + queue.lock;
        let owner = queue.sessions.as_mut()?.owners.get_mut(id)?;
        if owner.until <= Instant::now() {
            return None;
        }
        owner.until = until;
        for kept in queue.messages.iter_mut().filter(|kept| kept.is_in(id)) {
            kept.lock = kept.lock.map(|(token, _)| (token, until));
        }
        queue.renewed += 1;
        Some(millis(SystemTime::now() + queue.lock))
    }
}

impl Queue {
    /// Ends those that have run out, and gives those that nobody has to whoever waits.
    pub(super) fn grant_sessions(&mut self) {
        let now = Instant::now();
        let Some(sessions) = &mut self.sessions else { return };
        sessions.waiting.retain(|waiter| {
            let is_late = waiter.until <= now;
            if is_late {
                // Who waited may be gone.
                let _ = waiter.gives.send(Event::Ended(waiter.place, TIMEOUT));
            }
            !is_late
        });
        for taker in &self.takers {
            let owner = taker.session.as_ref().and_then(|id| sessions.owners.get(id));
            if owner.is_some_and(|owner| owner.until <= now) {
                let _ = taker.gives.send(Event::Ended(taker.place, LOST));
            }
        }
        let lost = |id: &String| sessions.owners.get(id).is_some_and(|owner| owner.until <= now);
        self.takers.retain(|taker| taker.session.as_ref().is_none_or(|id| !lost(id)));
        sessions.owners.retain(|_, owner| owner.until > now);
        while !sessions.waiting.is_empty() {
            let free =
                self.messages.iter().filter(|kept| kept.lock.is_none()).filter_map(|kept| group_of(&kept.message));
            let Some(id) = free.map(str::to_owned).find(|id| !sessions.owners.contains_key(id)) else { break };
            // Whose connection has had the fewest.
            let granted = &sessions.granted;
            let count = |(_, waiter): &(usize, &Waiter)| granted.get(&waiter.place.connection).copied().unwrap_or(0);
            let next = sessions.waiting.iter().enumerate().min_by_key(count).map(|(at, _)| at);
            let Some(Waiter { place, gives, .. }) = next.and_then(|at| sessions.waiting.remove(at)) else { break };
            if gives.send(Event::Session(place, id.clone())).is_err() {
                continue; // It is gone.
            }
            *sessions.granted.entry(place.connection).or_default() += 1;
            sessions.owners.insert(id.clone(), Owner { place, until: now + self.lock });
            self.takers.push_back(Taker { place, given: 0, limit: 0, gives, session: Some(id) });
        }
    }

    /// Until when what this one is given is locked.
    pub(super) fn locked_until(&self, taker: &Taker) -> Instant {
        let sessions = self.sessions.as_ref();
        let owner = taker.session.as_ref().and_then(|id| sessions?.owners.get(id));
        owner.map_or_else(|| Instant::now() + self.lock, |owner| owner.until)
    }

    /// With the leave that one takes its session is free, and so are its messages.
    pub(super) fn leave_sessions(&mut self, is_told: bool, is_over: &impl Fn(Place) -> bool) {
        let Some(sessions) = &mut self.sessions else { return };
        sessions.waiting.retain(|waiter| !is_over(waiter.place));
        if !is_told {
            return;
        }
        let left: Vec<String> =
            sessions.owners.iter().filter(|(_, owner)| is_over(owner.place)).map(|(id, _)| id.clone()).collect();
        for id in left {
            sessions.owners.remove(&id);
            for kept in self.messages.iter_mut().filter(|kept| kept.is_in(&id)) {
                kept.lock = None;
            }
        }
    }
}
