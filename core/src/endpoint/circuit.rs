//! A circuit breaker before the stores: while they cannot be read, take no writes, or take no marks, one message at a time tries.
//!
//! Without it, every message that is held would ask a store that is down again and again, and so would all that are received
//! meanwhile; each for its own budget, after which the broker gives them again. Where only marks are not taken, all that a message has to
//! send would be sent at each try.
//!
//! It closes when a pass has taken what could not be taken. Where no pass comes any more nobody would ever know: it lapses, some time after
//! the last failure.
//!
//! # Source
//! M. Nygard, *Release It!*, "Circuit Breaker".

mod state;
mod strays;
mod unreadable;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use state::{State, Step, TROUBLED};
use strays::Strays;
use tokio::time::Instant;
use unreadable::Unreadable;

use crate::{
    ids::{EntityKey, SagaName},
    manager::TIMEOUT_OF_NO_SAGA,
    metrics::{Event, Metrics},
    ports::{Backoff, Cause, Granted},
    sync::{
        Mutex, MutexGuard, Notify, Semaphore,
        atomic::{AtomicU8, AtomicU32, Ordering},
        sleep, sleep_until, timeout,
    },
};

/// So many entities in a row whose passes could not take one step, and none that could, and it opens: with fewer it may be these
/// entities.
const ENTITIES_MIN: usize = 3;
/// It does not open while others have taken that step within this time: entities that alone are away would keep it open, and the others
/// would come one by one. Counted from when that was found out, at the endpoint's next turn or at the first failure since: no message reads a
/// clock for it. So it opens later than it might, by a second at most, and never sooner.
const QUIET: Duration = Duration::from_secs(1);
/// How long a message is held at most before it goes back to its broker: brokers mind who holds one for long.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// So long after the last failure, or longer, nothing is known any more, if nobody waits to try. Twice as long as the longest wait: what went back to
/// the broker may come again, and fail again, before it lapses.
const LAPSES_MIN: Duration = HOLD_MAX.saturating_mul(2);
/// Nor before so many sweeps: where only a sweeper tries, each would find it closed, and try all that waits.
const LAPSES_SWEEPS: u32 = 2;
/// When it closes, those who waited go on within this time, not in one moment.
const SPREAD: Duration = Duration::from_millis(100);

/// Stands between the passes and their waits, and learns from what is observed whether the stores answer.
#[derive(Debug)]
pub(super) struct Circuit {
    backoff: Arc<dyn Backoff>,
    metrics: Arc<dyn Metrics>,
    /// Else it never opens, and only passes on what is observed.
    breaks: bool,
    /// Handlers that work in an inbox, and ask nothing of the stores.
    inboxes: Vec<SagaName>,
    /// Where a store answers, and not what this program understands.
    unreadable: Unreadable,
    /// Where a saga has another name than it had.
    strays: Strays,
    /// The [`bit`](Step::bit) of each step that one has taken since it was last [noted](Self::note), and [`TROUBLED`]. It says nothing of other
    /// memory, so its operations are relaxed: an answer that does not see a failure yet is one that came before it.
    flags: AtomicU8,
    /// Sweeps that have finished what they were for.
    swept: AtomicU32,
    /// See [`LAPSES_MIN`].
    lapses: Duration,
    state: Mutex<State>,
    closed: Notify,
    /// Whose turn it is to try.
    turn: Semaphore,
}

/// One who waits for its turn.
struct Waits<'c>(&'c Circuit);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Circuit {
    pub(super) fn new(backoff: Arc<dyn Backoff>, metrics: Arc<dyn Metrics>) -> Self {
        Self {
            backoff,
            metrics,
            breaks: true,
            inboxes: Vec::new(),
            unreadable: Unreadable::default(),
            strays: Strays::default(),
            flags: AtomicU8::new(0),
            swept: AtomicU32::new(0),
            lapses: LAPSES_MIN,
            state: Mutex::default(),
            closed: Notify::new(),
            turn: Semaphore::new(1),
        }
    }

    /// What these tell is not of the stores.
    pub(super) fn inboxes(self, inboxes: Vec<SagaName>) -> Self {
        Self { inboxes, ..self }
    }

    /// Beside a sweeper that looks so often.
    pub(super) fn swept_every(self, interval: Duration) -> Self {
        Self { lapses: interval.saturating_mul(LAPSES_SWEEPS).max(LAPSES_MIN), ..self }
    }

    /// With `false` it never opens: where time is a test's own, what is held back would not come to its turn by itself.
    pub(super) fn breaks(self, breaks: bool) -> Self {
        Self { breaks, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stores do not do what passes ask of them.
    pub(super) fn is_open(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TROUBLED != 0 && self.look(|state| state.is_open())
    }

    /// Whether one sweep more should try all that waits: no step is open that a sweep needs. It saves nothing, but for what is already over.
    pub(super) fn takes_sweeps(&self) -> bool {
        self.look(|state| [Step::Read, Step::Mark].iter().all(|step| state.steps[*step as usize].open.is_none()))
    }

    /// How many sweeps have finished what they were for, so far.
    pub(super) fn swept(&self) -> u32 {
        self.swept.load(Ordering::Relaxed)
    }

    /// What they do not do.
    pub(super) fn troubles(&self) -> Vec<&'static str> {
        self.look(|state| {
            let open = |step: &Step| state.steps[*step as usize].open.is_some();
            Step::ALL.into_iter().filter(open).map(Step::trouble).collect()
        })
    }

    /// Nobody's task sees to it that it lapses: whoever asks finds that it has.
    fn look<T>(&self, seen: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let has_lapsed = state.lapse(self.lapses);
        self.tell_trouble(&state);
        let seen = seen(&mut state);
        drop(state);
        if has_lapsed {
            tracing::info!(
                "nobody has tried for {:?} whether the stores do again what is asked of them; all go on",
                self.lapses
            );
            self.closed.notify_waiters();
        }
        seen
    }

    /// Under the lock, so that who answers after a failure waits for what became of it.
    fn tell_trouble(&self, state: &State) {
        if !state.is_troubled() {
            self.flags.fetch_and(!TROUBLED, Ordering::Relaxed);
        }
    }

    /// To be called each second or so: else what was taken long before an outage would put off that it opens.
    pub(super) fn turned(&self) {
        let steps = TROUBLED - 1;
        if self.flags.load(Ordering::Relaxed) & steps != 0 {
            let (mut state, now) = (self.state(), Instant::now());
            self.note(&mut state, steps, now);
        }
    }

    /// Writes down, for these steps, whether one has taken them.
    fn note(&self, state: &mut State, steps: u8, now: Instant) {
        let taken = self.flags.fetch_and(!steps, Ordering::Relaxed) & steps;
        for (step, watched) in Step::ALL.iter().zip(&mut state.steps) {
            if taken & step.bit() != 0 {
                watched.answered = Some(now);
            }
        }
    }

    fn failed(&self, step: Step, key: &EntityKey) {
        if !self.breaks {
            return;
        }
        let (mut state, now) = (self.state(), Instant::now());
        // In this order: who answers in between waits for the lock, and is not forgotten either.
        self.flags.fetch_or(TROUBLED, Ordering::Relaxed);
        self.note(&mut state, step.bit(), now);
        let was_open = state.is_open();
        let watched = &mut state.steps[step as usize];
        if let Some(failed) = &mut watched.open {
            *failed = now;
            return;
        }
        if watched.failing.len() < ENTITIES_MIN {
            watched.failing.insert(key.clone());
        }
        let quiet = watched.answered.is_none_or(|answered| now.duration_since(answered) >= QUIET);
        if quiet && watched.failing.len() >= ENTITIES_MIN {
            watched.failing.clear();
            watched.open = Some(now);
            if !was_open {
                (state.probes, state.tried) = (0, Some(now));
            }
            drop(state);
            tracing::warn!("{}; one message at a time tries until that is over", step.trouble());
        }
    }

    /// Where the passes of this entity begin.
    fn first_step(&self, key: &EntityKey) -> Step {
        // Most endpoints have none, and then nothing is compared.
        if self.inboxes.contains(&key.scope().saga) { Step::Inbox } else { Step::Read }
    }

    /// And where they end.
    fn last_step(&self, key: &EntityKey) -> Step {
        if self.inboxes.contains(&key.scope().saga) { Step::Inbox } else { Step::Mark }
    }

    /// A pass has read, and has taken this step. One that only read says nothing of writes: copies would close it all the time. Nor does one
    /// whose mark is taken say that anything was saved: what it has sent may have been there already.
    fn answered(&self, step: Step) {
        let taken = step.with_reading();
        // The rule, for each message: no lock, no clock, and nothing is written that others read.
        if self.flags.load(Ordering::Relaxed) & (taken | TROUBLED) == taken {
            return;
        }
        if self.flags.fetch_or(taken, Ordering::Relaxed) & TROUBLED == 0 {
            return;
        }
        let mut state = self.state();
        let was_open = state.is_open();
        for (step, watched) in Step::ALL.iter().zip(&mut state.steps) {
            if taken & step.bit() != 0 {
                watched.failing.clear();
                watched.open = None;
            }
        }
        self.tell_trouble(&state);
        if was_open && !state.is_open() {
            drop(state);
            tracing::info!("the stores do again what is asked of them");
            self.closed.notify_waiters();
        }
    }

    /// A pass has read, who knows when: its handler may have taken a minute since, and the outage be younger. So it closes nothing, and is no
    /// answer. But it was not reading that it failed at: it is not one of a row of entities that cannot be read.
    fn has_read(&self) {
        if self.flags.load(Ordering::Relaxed) & TROUBLED != 0 {
            let mut state = self.state();
            state.steps[Step::Read as usize].failing.clear(); // None while it is open.
            self.tell_trouble(&state);
        }
    }

    /// Is counted among those who wait, if it is open.
    fn waits(&self) -> Option<Waits<'_>> {
        let is_counted = self.look(|state| {
            state.waiting += usize::from(state.is_open());
            state.is_open()
        });
        is_counted.then(|| Waits(self))
    }

    /// Until it is somebody's turn to try, or the circuit is closed.
    async fn turn(&self) {
        let mut closed = std::pin::pin!(self.closed.notified());
        closed.as_mut().enable(); // Before the look, so that no closing in between is missed.
        let Some(_waits) = self.waits() else { return };
        let probe = async {
            let _turn = self.turn.acquire().await;
            // Since the last try, whoever made that: who waits for its turn may be held for too long in the middle of its rest.
            let due = self.state().next_try();
            sleep_until(due).await;
            let mut state = self.state();
            state.probes = state.probes.saturating_add(1);
            state.tried = Some(Instant::now());
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
        if let Event::Dropped(key, TIMEOUT_OF_NO_SAGA) = event {
            self.strays.came(key);
        }
        match event {
            // Of what was read and not saved `Unsaved` has told before: for reads, one entity alone is counted at a time.
            Event::Retried(key, Cause::Unavailable) | Event::Unread(key) => self.failed(self.first_step(key), key),
            Event::Unsaved(key) => {
                self.has_read();
                self.failed(Step::Save, key);
            }
            Event::Unmarked(key) => {
                self.has_read();
                self.failed(Step::Mark, key);
            }
            // The broker may have taken long; and what was not marked ends so, too.
            Event::Retried(key, Cause::Unsent) if self.first_step(key) == Step::Read => self.has_read(),
            // A pass that ended so has loaded. A conflict tells nothing: it may be an answer that never came.
            Event::Duplicate(key)
            | Event::Dropped(key, _)
            | Event::Failed { key, .. }
            | Event::DeadLettered(key)
            | Event::Retried(key, Cause::Failure) => self.answered(self.first_step(key)),
            Event::Saved(_) => self.answered(Step::Save),
            Event::Handled(key) => self.answered(self.last_step(key)),
            Event::Swept(..) => {
                self.answered(Step::Mark);
                self.swept.fetch_add(1, Ordering::Relaxed);
            }
            Event::Unreadable { key, message_id, why } => self.unreadable.came(key, message_id, why),
            _ => {}
        }
        self.metrics.observe(event);
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/circuit.rs"]
mod interleaved;
