//! A circuit breaker before each destination: what a broker does not take for a while is not offered again and again.
//!
//! Without it, every message for a broker that is down, or for a queue that is full, would be offered as often as its budget
//! allows, and then at every sweep. What is held back here stays in its outbox entry.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::{join_all, poll_immediate};
use tokio::time::Instant;

use crate::{
    envelope::{Destination, Outgoing},
    ports::{DispatchError, Dispatcher, ErrorKind, Refused, TransportError},
    sync::{Mutex, MutexGuard, timeout},
};

/// So many failures in a row before a destination is held back: fewer than a pass tries by itself.
const FAILURES_MIN: u32 = 5;
/// First rest after it was held back; doubled for each try that fails.
const REST_FIRST: Duration = Duration::from_millis(100);
/// Longest rest: as long as an outage goes unnoticed to have ended.
const REST_LONGEST: Duration = Duration::from_secs(5);
/// Destinations that are known to fail at a time. What comes beyond is tried each time.
const FAILING_MAX: usize = 10_000;

/// Offers a destination that fails one message now and then, and others none meanwhile.
#[derive(Debug)]
pub(super) struct Outlets {
    dispatcher: Arc<dyn Dispatcher>,
    /// How long an answer is waited for.
    limit: Duration,
    failing: Mutex<HashMap<Destination, Outlet>>,
}

#[derive(Debug)]
struct Outlet {
    failures: u32,
    /// When the next one may try.
    next: Instant,
}

impl Outlets {
    pub(super) fn new(dispatcher: Arc<dyn Dispatcher>, limit: Duration) -> Self {
        Self { dispatcher, limit, failing: Mutex::default() }
    }

    /// Whoever never answers holds up its pass no longer than the limit, nor a sweep of other sagas or what is due behind it. What was offered may be
    /// sent all the same, and is sent again under its id.
    async fn offer(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut answer = self.dispatcher.dispatch(outgoing);
        // Who answers at once needs no timer.
        if let Some(results) = poll_immediate(&mut answer).await {
            return results;
        }
        let unanswered = |outgoing: &Outgoing| Err(unanswered(&outgoing.destination, self.limit));
        timeout(self.limit, answer).await.unwrap_or_else(|_| outgoing.iter().map(unanswered).collect())
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<Destination, Outlet>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of them, by place, may be offered now, and with which others. Of those for a destination that fails, the first whose time has come;
    /// and nothing with it: a broker that does not answer for one destination answers for nothing that it was given in the same call.
    fn admit(&self, outgoing: &[Outgoing]) -> Vec<Vec<usize>> {
        let (mut failing, now) = (self.failing(), Instant::now());
        let (mut together, mut alone) = (Vec::new(), BTreeMap::<&Destination, Vec<usize>>::new());
        for (place, outgoing) in outgoing.iter().enumerate() {
            match failing.get_mut(&outgoing.destination) {
                Some(outlet) if outlet.failures >= FAILURES_MIN => {
                    let admitted = outlet.next <= now;
                    if admitted {
                        // Whatever becomes of this try, and if nobody ever hears of it, the next one has to wait.
                        outlet.next = now + outlet.rest();
                        alone.entry(&outgoing.destination).or_default().push(place);
                    }
                }
                Some(_) => alone.entry(&outgoing.destination).or_default().push(place),
                None => together.push(place),
            }
        }
        alone.into_values().chain((!together.is_empty()).then_some(together)).collect()
    }

    /// Offers those at these places, and takes down what became of it.
    async fn offer_some(&self, outgoing: &[Outgoing], places: &[usize]) -> Vec<Result<(), DispatchError>> {
        let offered: Vec<Outgoing> = places.iter().filter_map(|place| outgoing.get(*place)).cloned().collect();
        let results = self.offer(&offered).await;
        for (outgoing, result) in offered.iter().zip(&results) {
            self.learn(&outgoing.destination, result);
        }
        results
    }

    fn learn(&self, destination: &Destination, result: &Result<(), DispatchError>) {
        let mut failing = self.failing();
        if !matches!(result, Err(DispatchError::Transient(_))) {
            // A broker that refuses for good has answered.
            if failing.remove(destination).is_some_and(|outlet| outlet.failures >= FAILURES_MIN) {
                tracing::info!(%destination, "the destination takes messages again");
            }
            return;
        }
        if failing.len() >= FAILING_MAX && !failing.contains_key(destination) {
            return;
        }
        let outlet = failing.entry(destination.clone());
        let outlet = outlet.or_insert_with(|| Outlet { failures: 0, next: Instant::now() });
        outlet.failures = outlet.failures.saturating_add(1);
        if outlet.failures == FAILURES_MIN {
            outlet.next = Instant::now() + outlet.rest();
            tracing::warn!(%destination, "the destination takes no messages; it is offered one now and then until it does");
        }
    }
}

impl Outlet {
    fn rest(&self) -> Duration {
        const DOUBLINGS_MAX: u32 = 10;
        let doublings = self.failures.saturating_sub(FAILURES_MIN).min(DOUBLINGS_MAX);
        REST_FIRST.saturating_mul(1 << doublings).min(REST_LONGEST)
    }
}

fn held_back(destination: &Destination) -> DispatchError {
    let why = format!("{destination} has not taken the last messages; it is tried again within {REST_LONGEST:?}");
    DispatchError::Transient(TransportError::new(ErrorKind::Unavailable, "dispatching", why))
}

fn unanswered(destination: &Destination, limit: Duration) -> DispatchError {
    let why = format!("whether {destination} has it is not known: the broker has not answered within {limit:?}");
    DispatchError::Transient(TransportError::new(ErrorKind::UnknownOutcome, "dispatching", why))
}

#[async_trait]
impl Dispatcher for Outlets {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        if self.failing().is_empty() {
            let results = self.offer(outgoing).await;
            for (outgoing, result) in outgoing.iter().zip(&results).filter(|(_, result)| result.is_err()) {
                self.learn(&outgoing.destination, result);
            }
            return results;
        }
        let groups = self.admit(outgoing);
        let answers = join_all(groups.iter().map(|places| self.offer_some(outgoing, places))).await;
        let mut results: Vec<_> = outgoing.iter().map(|outgoing| Err(held_back(&outgoing.destination))).collect();
        for (place, answer) in groups.iter().zip(answers).flat_map(|(places, answers)| places.iter().zip(answers)) {
            if let Some(result) = results.get_mut(*place) {
                *result = answer;
            }
        }
        results
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/outlets.rs"]
mod interleaved;
