//! A circuit breaker before the stores: while they cannot be read, take no writes, or take no marks, one message at a time tries.
//!
//! Without it, every message that is held would ask a store that is down again and again, and so would all that are received
//! meanwhile; each for its own budget, after which the broker gives them again. Where only marks are not taken, all that a message has to
//! send would be sent at each try.
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

/// So many entities in a row whose passes could not take one step, and none that could, and it opens: with fewer it may be these
/// entities.
const ENTITIES_MIN: usize = 3;
/// It does not open while others have taken that step within this time: entities that alone are away would keep it open, and the others
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

/// What a pass asks of the stores, in its order: whoever has come to one has taken those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// To read entity and dedup entries; or, for what is to be set aside, to take its letter.
    Read,
    /// To take the entity with what it has to send.
    Save,
    /// To take the dedup entry, when all is sent.
    Mark,
}

impl Step {
    const ALL: [Self; 3] = [Self::Read, Self::Save, Self::Mark];

    const fn trouble(self) -> &'static str {
        match self {
            Self::Read => "the stores cannot be reached",
            Self::Save => "the entity store takes no writes",
            Self::Mark => "the dedup store takes no entries, of messages that are handled and sent",
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// By [`Step`].
    steps: [Watched; Step::ALL.len()],
    probes: u32,
}

/// How one step goes.
#[derive(Debug, Default)]
struct Watched {
    /// Entities whose passes have failed at it since one took it.
    failing: HashSet<EntityKey>,
    /// When one took it last.
    answered: Option<Instant>,
    /// Since when it keeps the circuit open.
    open: Option<Instant>,
}

impl State {
    fn is_open(&self) -> bool {
        self.steps.iter().any(|watched| watched.open.is_some())
    }
}

impl Circuit {
    pub(super) fn new(backoff: Arc<dyn Backoff>, metrics: Arc<dyn Metrics>) -> Self {
        Self { backoff, metrics, state: Mutex::default(), closed: Notify::new(), turn: Semaphore::new(1) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stores do not do what passes ask of them.
    pub(super) fn is_open(&self) -> bool {
        self.state().is_open()
    }

    /// What they do not do.
    pub(super) fn troubles(&self) -> Vec<&'static str> {
        let state = self.state();
        let open = |step: &Step| state.steps[*step as usize].open.is_some();
        Step::ALL.into_iter().filter(open).map(Step::trouble).collect()
    }

    fn failed(&self, step: Step, key: &EntityKey) {
        let mut state = self.state();
        let was_open = state.is_open();
        let watched = &mut state.steps[step as usize];
        if watched.open.is_none() {
            if watched.failing.len() < ENTITIES_MIN {
                watched.failing.insert(key.clone());
            }
            let quiet = watched.answered.is_none_or(|answered| answered.elapsed() >= QUIET);
            if quiet && watched.failing.len() >= ENTITIES_MIN {
                watched.failing.clear();
                watched.open = Some(Instant::now());
                if !was_open {
                    state.probes = 0;
                }
                drop(state);
                tracing::warn!("{}; one message at a time tries until that is over", step.trouble());
            }
        }
    }

    /// A pass has taken this step, and those before it. One that only read says nothing of writes: copies would close it all the time.
    fn answered(&self, step: Step) {
        let mut state = self.state();
        let (now, was_open) = (Instant::now(), state.is_open());
        for watched in &mut state.steps[..=step as usize] {
            watched.failing.clear();
            (watched.answered, watched.open) = (Some(now), None);
        }
        if was_open && !state.is_open() {
            drop(state);
            tracing::info!("the stores do again what is asked of them");
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
        // Whatever the cause: a mark that is not taken is one of sending, a write that is not answered one of races.
        if cause != Cause::Failure && self.is_open() && timeout(HOLD_MAX, self.turn()).await.is_err() {
            return Granted::Stop;
        }
        self.backoff.pause(cause, tries).await
    }
}

impl Metrics for Circuit {
    fn observe(&self, event: Event<'_>) {
        match event {
            // Of what was read and not saved `Unsaved` has told before: for reads, one entity alone is counted at a time.
            Event::Retried(key, Cause::Unavailable) => self.failed(Step::Read, key),
            Event::Unsaved(key) => {
                self.answered(Step::Read);
                self.failed(Step::Save, key);
            }
            Event::Unmarked(key) => {
                self.answered(Step::Read);
                self.failed(Step::Mark, key);
            }
            // A pass that ended so has loaded. A conflict tells nothing: it may be an answer that never came.
            Event::Duplicate(_)
            | Event::Dropped(..)
            | Event::Failed { .. }
            | Event::DeadLettered(_)
            | Event::Retried(_, Cause::Failure | Cause::Unsent) => self.answered(Step::Read),
            Event::Saved(_) => self.answered(Step::Save),
            Event::Handled(_) | Event::Swept(..) => self.answered(Step::Mark),
            _ => {}
        }
        self.metrics.observe(event);
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/circuit.rs"]
mod interleaved;
