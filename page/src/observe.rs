//! Numbers of the page's own process: what its endpoints tell their observer.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use hapax_core::{
    ids::{EntityKey, Scope},
    metrics::{Event, Metrics},
    ports::Answer,
};

use crate::counts::{Counts, History, Numbers, SAGAS_MAX, STEP, Sagas, counted};

/// Counts what endpoints of this process tell their observer, for the page. Clones count together.
#[derive(Debug, Clone)]
pub struct PageMetrics(Arc<Observed>);

#[derive(Debug)]
struct Observed {
    began: Instant,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    sagas: BTreeMap<Arc<Scope>, Numbers>,
    history: History,
}

impl Default for PageMetrics {
    fn default() -> Self {
        Self(Arc::new(Observed { began: Instant::now(), seen: Mutex::default() }))
    }
}

impl PageMetrics {
    /// Which step it is.
    fn now(&self) -> u64 {
        self.0.began.elapsed().as_secs() / STEP.as_secs()
    }
}

impl Metrics for PageMetrics {
    fn observe(&self, event: Event<'_>) {
        let (key, numbers) = match event {
            Event::Handled(key) => (key, Numbers { handled: 1, ..Numbers::default() }),
            Event::Duplicate(key) => (key, Numbers { duplicates: 1, ..Numbers::default() }),
            Event::Dropped(key, _) => (key, Numbers { dropped: 1, ..Numbers::default() }),
            Event::DeadLettered(key) => (key, Numbers { dead_letters: 1, ..Numbers::default() }),
            _ => return,
        };
        let now = self.now();
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).add(now, key, numbers);
    }
}

impl Seen {
    fn add(&mut self, now: u64, key: &EntityKey, numbers: Numbers) {
        // Where nothing was told in between, there was nothing.
        self.history.step(now, Some(Numbers::default())).get_or_insert_default().add(numbers);
        if let Some(saga) = self.sagas.get_mut(key.scope()) {
            saga.add(numbers);
        } else if self.sagas.len() < SAGAS_MAX {
            self.sagas.insert(key.scope().clone(), numbers);
        }
    }
}

impl From<PageMetrics> for Counts {
    fn from(metrics: PageMetrics) -> Self {
        Self::by(move || {
            let now = metrics.now();
            let mut seen = metrics.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
            // The history goes on while nothing happens.
            seen.history.step(now, Some(Numbers::default()));
            let name = |scope: &Scope| (scope.endpoint.to_string(), scope.saga.to_string());
            let sagas: Sagas = seen.sagas.iter().map(|(scope, numbers)| (name(scope), *numbers)).collect();
            Answer::Is(counted(&sagas, seen.history.told(now, ""), Vec::new()))
        })
    }
}

/// Tells two observers, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Metrics, B: Metrics> Metrics for Both<A, B> {
    fn observe(&self, event: Event<'_>) {
        self.0.observe(event);
        self.1.observe(event);
    }
}
