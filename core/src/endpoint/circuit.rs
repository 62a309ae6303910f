//! A circuit breaker before the stores: while they cannot be reached, one message at a time tries.
//!
//! Without it, every message that is held would ask a store that is down again and again, and so would all that are received
//! meanwhile; each for its own budget, after which the broker gives them again.
//!
//! # Source
//! M. Nygard, *Release It!*, "Circuit Breaker".

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    ids::EntityKey,
    metrics::{Event, Metrics},
    ports::{Backoff, Cause, Granted},
    sync::{Mutex, MutexGuard, Notify, Semaphore, sleep, timeout},
};

/// So many entities in a row whose passes could not reach the stores, and none that could, and it opens: with fewer it may be these
/// entities.
const ENTITIES_MIN: usize = 3;
/// It does not open while others have been reached within this time: entities that alone are away would keep it open, and the others
/// would come one by one.
const QUIET: Duration = Duration::from_secs(1);
/// The first try after it has opened; doubled for each further one that fails.
const PROBE_FIRST: Duration = Duration::from_millis(50);
/// Longest rest between two tries: as long as an outage goes unnoticed to have ended.
const PROBE_LONGEST: Duration = Duration::from_secs(5);
/// How long a message is held at most before it goes back to its broker: brokers mind who holds one for long.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// When it closes, those who waited go on within this time, not in one moment.
const SPREAD: Duration = Duration::from_millis(100);

/// Stands between the passes and their waits, and learns from what is observed whether the stores answer.
#[derive(Debug)]
pub(super) struct Circuit {
    backoff: Arc<dyn Backoff>,
    metrics: Arc<dyn Metrics>,
    state: Mutex<State>,
    closed: Notify,
    /// Whose turn it is to try.
    turn: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// Entities whose passes have failed since one succeeded.
    failing: HashSet<EntityKey>,
    /// When one succeeded last.
    answered: Option<Instant>,
    /// Since when it is open.
    open: Option<Instant>,
    probes: u32,
}

impl Circuit {
    pub(super) fn new(backoff: Arc<dyn Backoff>, metrics: Arc<dyn Metrics>) -> Self {
        Self { backoff, metrics, state: Mutex::default(), closed: Notify::new(), turn: Semaphore::new(1) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stores cannot be reached.
    pub(super) fn is_open(&self) -> bool {
        self.state().open.is_some()
    }

    fn failed(&self, key: &EntityKey) {
        let mut state = self.state();
        if state.open.is_none() {
            if state.failing.len() < ENTITIES_MIN {
                state.failing.insert(key.clone());
            }
            let quiet = state.answered.is_none_or(|answered| answered.elapsed() >= QUIET);
            if quiet && state.failing.len() >= ENTITIES_MIN {
                state.failing.clear();
                (state.open, state.probes) = (Some(Instant::now()), 0);
                drop(state);
                tracing::warn!("the stores cannot be reached; one message at a time tries until they can");
            }
        }
    }

    fn answered(&self) {
        let mut state = self.state();
        state.failing.clear();
        state.answered = Some(Instant::now());
        if let Some(since) = state.open.take() {
            drop(state);
            tracing::info!(after = ?since.elapsed(), "the stores can be reached again");
            self.closed.notify_waiters();
        }
    }

    /// Until it is somebody's turn to try, or the circuit is closed.
    async fn turn(&self) {
        let mut closed = std::pin::pin!(self.closed.notified());
        closed.as_mut().enable(); // Before the look, so that no closing in between is missed.
        if !self.is_open() {
            return;
        }
        let probe = async {
            let _turn = self.turn.acquire().await;
            let probes = {
                let mut state = self.state();
                state.probes = state.probes.saturating_add(1);
                state.probes
            };
            const DOUBLINGS_MAX: u32 = 10;
            let rest = PROBE_FIRST.saturating_mul(1 << (probes - 1).min(DOUBLINGS_MAX)).min(PROBE_LONGEST);
            sleep(rest).await;
        };
        tokio::select! {
            biased;
            () = closed => sleep(SPREAD.mul_f64(fastrand::f64())).await,
            () = probe => {}
        }
    }
}

#[async_trait]
impl Backoff for Circuit {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        if cause == Cause::Unavailable && self.is_open() && timeout(HOLD_MAX, self.turn()).await.is_err() {
            return Granted::Stop;
        }
        self.backoff.pause(cause, tries).await
    }
}

impl Metrics for Circuit {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Retried(key, Cause::Unavailable) => self.failed(key),
            // A pass that ended so has loaded, and most have saved. A conflict tells nothing: it may be an answer that never came.
            Event::Handled(_)
            | Event::Duplicate(_)
            | Event::Dropped(..)
            | Event::Swept(..)
            | Event::Failed { .. }
            | Event::DeadLettered(_)
            | Event::Retried(_, Cause::Failure | Cause::Unsent) => self.answered(),
            _ => {}
        }
        self.metrics.observe(event);
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/circuit.rs"]
mod interleaved;
