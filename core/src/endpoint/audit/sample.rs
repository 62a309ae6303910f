//! What the observer writes down beside the messages.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use super::{moment::Moment, subject::Duty};
use crate::{
    ids::{DedupKey, EntityKey, MessageId, Scope},
    manager::Incoming,
    metrics::{Ending, Event, Metrics},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

/// Entities of whose sweeps it is remembered that they have failed; with more, all are taken to have.
pub(super) const FAILED_MAX: usize = 1024;

/// A uniform sample of the messages that have ended since it was taken last.
///
/// A message that is not drawn costs an addition and a comparison; no clock is read and nothing is locked for it.
///
/// # Source
/// K.-H. Li, "Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n)))" (1994), algorithm L.
#[derive(Debug)]
pub(super) struct Sample {
    ended: AtomicU64,
    /// The count at which the next message is drawn.
    next: AtomicU64,
    drawn: Mutex<Drawn>,
}

#[derive(Debug)]
struct Drawn {
    max: usize,
    told: Vec<Told>,
    /// No message in it has ended before.
    since: Moment,
    weight: f64,
}

/// A message, and what is to be true of it.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) entity: EntityKey,
    pub(super) key: DedupKey,
    pub(super) message_id: MessageId,
    pub(super) duty: Duty,
}

impl Sample {
    pub(super) fn new(max: usize, since: Moment) -> Self {
        let drawn = Drawn { max, told: Vec::new(), since, weight: 1.0 };
        Self { ended: AtomicU64::new(0), next: AtomicU64::new(0), drawn: Mutex::new(drawn) }
    }

    fn drawn(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entity: &EntityKey, message: &Incoming, duty: Duty) {
        let number = self.ended.fetch_add(1, Ordering::Relaxed);
        if number < self.next.load(Ordering::Relaxed) {
            return;
        }
        let message_id = message.envelope.message_id.clone();
        let told = Told { entity: entity.clone(), key: message.key, message_id, duty };
        let mut drawn = self.drawn();
        let skip = drawn.take(told);
        self.next.store(number.saturating_add(1).saturating_add(skip), Ordering::Relaxed);
    }

    /// What was drawn, and since when; the next sample begins `now`.
    pub(super) fn take(&self, now: Moment) -> (Vec<Told>, Moment) {
        let mut drawn = self.drawn();
        let since = std::mem::replace(&mut drawn.since, now);
        drawn.weight = 1.0;
        self.next.store(0, Ordering::Relaxed);
        (std::mem::take(&mut drawn.told), since)
    }
}

impl Drawn {
    /// Answers how many messages are passed over until the next.
    fn take(&mut self, told: Told) -> u64 {
        if self.told.len() < self.max {
            self.told.push(told);
            if self.told.len() < self.max {
                return 0;
            }
        } else if let Some(place) = self.told.get_mut(fastrand::usize(..self.max.max(1))) {
            *place = told;
        }
        let random = || fastrand::f64().max(f64::MIN_POSITIVE);
        self.weight *= (random().ln() / self.max.max(1) as f64).exp();
        (random().ln() / (-self.weight).ln_1p()).floor().clamp(0.0, 1e15) as u64
    }
}

/// How the endpoint's sweepers and its writes have gone, for whoever judges what stays.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Looks of the sweeper through all of a scope, that have come to their end. A list: an endpoint has few sagas, and this is asked
    /// for each message.
    sweeps: Vec<(Arc<Scope>, AtomicU64)>,
    /// Messages whose handling, or entries whose finishing, the stores have confirmed.
    writes: AtomicU64,
    failed: Mutex<Failed>,
}

#[derive(Debug, Default)]
struct Failed {
    /// How many sweeps there had been.
    at: HashMap<EntityKey, u64>,
    /// The same, of those that are not listed.
    others: HashMap<Arc<Scope>, u64>,
}

impl Rounds {
    pub(super) fn new<'a>(scopes: impl Iterator<Item = &'a Arc<Scope>>) -> Self {
        Self { sweeps: scopes.map(|scope| (scope.clone(), AtomicU64::new(0))).collect(), ..Self::default() }
    }

    fn of(&self, scope: &Scope) -> Option<&AtomicU64> {
        self.sweeps.iter().find(|(of, _)| **of == *scope).map(|(_, sweeps)| sweeps)
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub(super) fn sweeps(&self, scope: &Scope) -> u64 {
        self.of(scope).map_or(0, |sweeps| sweeps.load(Ordering::Relaxed))
    }

    /// How many sweeps there had been when the sweeper last said of `entity` that it could not finish it; 0 when it never did.
    pub(super) fn failed(&self, entity: &EntityKey) -> u64 {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let others = failed.others.get(entity.scope()).copied().unwrap_or_default();
        failed.at.get(entity).copied().unwrap_or_default().max(others)
    }

    /// Of a scope whose sweep tries one entity for all: that the others stay is no news.
    pub(super) fn held_back(&self, scope: &Arc<Scope>) {
        let sweeps = self.sweeps(scope).saturating_add(1);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.others.insert(scope.clone(), sweeps);
    }

    fn sweep_failed(&self, entity: &EntityKey) {
        // The sweep that has failed is not over: it counts with the next.
        let sweeps = self.sweeps(entity.scope()).saturating_add(1);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.at.len() >= FAILED_MAX && !failed.at.contains_key(entity) {
            for (entity, at) in std::mem::take(&mut failed.at) {
                let others = failed.others.entry(entity.scope().clone()).or_default();
                *others = at.max(*others);
            }
        }
        failed.at.insert(entity.clone(), sweeps);
    }
}

/// Passes on what is observed, and writes down what an audit needs of it.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) metrics: Arc<dyn Metrics>,
    pub(super) sample: Arc<Sample>,
    pub(super) rounds: Arc<Rounds>,
}

impl Metrics for Watching {
    fn observe(&self, event: Event<'_>) {
        self.metrics.observe(event);
        match event {
            // What a handler in a transaction of the user's own has handled is remembered elsewhere.
            Event::Ended(key, message, ending) if self.rounds.of(key.scope()).is_some() => match ending {
                Ending::Handled => {
                    self.rounds.writes.fetch_add(1, Ordering::Relaxed);
                    self.sample.add(key, message, Duty::Marked);
                }
                Ending::LeftToSweeper => self.sample.add(key, message, Duty::Saved),
                _ => {}
            },
            Event::Waiting(scope, _) => {
                if let Some(sweeps) = self.rounds.of(scope) {
                    sweeps.fetch_add(1, Ordering::Relaxed);
                }
            }
            Event::Swept(..) => drop(self.rounds.writes.fetch_add(1, Ordering::Relaxed)),
            Event::SweepFailed(key, _) => self.rounds.sweep_failed(key),
            _ => {}
        }
    }
}
