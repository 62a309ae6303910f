//! What goes wrong, where and how often: decided in one place and drawn from one seed, so that a run can be had again.

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use crate::{Coverage, Ghost, Seen};

/// Everything that the tasks of one run share, and what goes wrong in it. Cloning gives another handle.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

/// A write that takes effect by itself, whatever has become of its caller.
pub type Write = Pin<Box<dyn Future<Output = ()> + Send>>;

struct State {
    random: fastrand::Rng,
    plan: Plan,
    /// Port calls so far.
    calls: u64,
    /// Writes under way, with the number of calls after which they take effect.
    limbo: Vec<(u64, Write)>,
    /// Points reached since [`World::crash_at`].
    reached: u32,
    crash_at: Option<u32>,
    crash_on: Option<Point>,
    pause_on: Option<Point>,
    /// A task that is never answered was caught here.
    silent: Option<Point>,
    trace: Vec<Point>,
    coverage: Coverage,
    ghost: Ghost,
    violation: Option<String>,
    /// Last number given to anything.
    number: u64,
}

/// What may go wrong, and how often. Every fault has a budget, so that runs end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Of a thousand calls that may go wrong, about so many do, as long as there is budget.
    pub per_mille: u16,
    /// How often each fault may happen.
    pub budgets: BTreeMap<Fault, u32>,
    /// Late writes take effect within so many calls of the whole world.
    pub late_max: u64,
    /// Tasks give way before and after each call, so that others come in between and drops have a place.
    pub yields: bool,
    /// Points are written down, for [`World::trace`].
    pub traced: bool,
}

/// A way for one port call to go wrong that its contract allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Refused before anything was written.
    Refused,
    /// Took effect; the answer says that the outcome is unknown.
    UnknownApplied,
    /// Never takes effect; the answer says that the outcome is unknown.
    UnknownNotApplied,
    /// The answer says that the outcome is unknown; it takes effect later.
    Late,
    /// A save won; the answer says that it lost, as when a client library repeats a request.
    OwnConflict,
    /// A clean-up is left for later, and the process ends before it is made.
    CleanUpLeft,
    /// An older version of the entity.
    Stale,
    /// Never answered, nothing done.
    SilentBefore,
    /// Never answered, done.
    SilentAfter,
}

/// A port call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Call {
    Load,
    Save,
    Finish,
    Version,
    Pending,
    Purge,
    Contains,
    Insert,
    Evict,
    Dispatch,
    SetAside,
    List,
    Receive,
    Extend,
    Settle,
    Now,
    Monotonic,
    Attempt,
    Pause,
}

/// Where a task stands in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Nothing has been done yet.
    Before,
    /// Some of several messages have been dispatched.
    Between,
    /// Everything has been done; the caller does not know yet.
    After,
}

/// A place where a task may be stopped for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// In which call.
    pub call: Call,
    /// On which side of it.
    pub side: Side,
}

impl World {
    /// A world in which happens what `plan` says.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: fastrand::Rng::with_seed(plan.seed),
            plan,
            calls: 0,
            limbo: Vec::new(),
            reached: 0,
            crash_at: None,
            crash_on: None,
            pause_on: None,
            silent: None,
            trace: Vec::new(),
            coverage: Coverage::default(),
            ghost: Ghost::default(),
            violation: None,
            number: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing goes wrong. What is under way still lands.
    pub fn calm(&self) {
        let mut state = self.state();
        state.plan.budgets.clear();
        state.crash_at = None;
        state.crash_on = None;
    }

    /// Stops the task that reaches the `point`-th point from now on, counted from 0. Whoever drives it learns that by
    /// [`World::take_silent`] and drops it.
    pub fn crash_at(&self, point: u32) {
        let mut state = self.state();
        state.reached = 0;
        state.crash_at = Some(point);
    }

    /// Stops the task that is the first to reach `point` from now on.
    pub fn crash_on(&self, point: Point) {
        self.state().crash_on = Some(point);
    }

    /// Runs `task` until it stands at `point`, and leaves it there.
    ///
    /// # Panics
    /// When it ends before.
    pub async fn until<F: Future + Unpin>(&self, point: Point, task: &mut F) {
        self.state().pause_on = Some(point);
        poll_fn(|cx| {
            assert!(Pin::new(&mut *task).poll(cx).is_pending(), "it ended before it came to {point:?}");
            if self.state().pause_on.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs `task` to its end, or drops it where it is stopped for good; then says where that was.
    pub async fn until_silent(&self, task: impl Future<Output = ()>) -> Option<Point> {
        let mut task = pin!(task);
        poll_fn(|cx| match task.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => match self.take_silent() {
                Some(point) => Poll::Ready(Some(point)),
                None => Poll::Pending,
            },
        })
        .await
    }

    /// Where a task was stopped for good, if one was since the last time.
    #[must_use]
    pub fn take_silent(&self) -> Option<Point> {
        self.state().silent.take()
    }

    /// The points reached so far, if the plan says to write them down.
    #[must_use]
    pub fn trace(&self) -> Vec<Point> {
        self.state().trace.clone()
    }

    /// Forgets the points reached so far.
    pub fn clear_trace(&self) {
        self.state().trace.clear();
    }

    /// A number below `end`, drawn from the seed; 0 when `end` is.
    pub fn below(&self, end: usize) -> usize {
        if end == 0 { 0 } else { self.state().random.usize(..end) }
    }

    /// True about `per_mille` of a thousand times.
    pub fn chance(&self, per_mille: u16) -> bool {
        self.state().random.u16(..1000) < per_mille
    }

    /// A number that this world has not given before.
    pub fn number(&self) -> u64 {
        let mut state = self.state();
        state.number += 1;
        state.number
    }

    /// Counts something that a run must have met.
    pub fn count(&self, seen: Seen) {
        self.state().coverage.count(seen);
    }

    /// What has been met.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.state().coverage.clone()
    }

    /// Looks at what has been seen of store and sink, or adds to it. An `Err` is kept as the world's violation.
    pub fn ghost<R>(&self, look: impl FnOnce(&mut Ghost) -> Result<R, String>) -> Option<R> {
        let mut state = self.state();
        match look(&mut state.ghost) {
            Ok(result) => Some(result),
            Err(why) => {
                state.violation.get_or_insert(why);
                None
            }
        }
    }

    /// The first sentence that was found broken.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.state().violation.clone()
    }

    /// The writes whose time has come: to be driven by whoever drives the tasks.
    #[must_use]
    pub fn landing(&self) -> Vec<Write> {
        let mut state = self.state();
        let calls = state.calls;
        let (due, limbo) = std::mem::take(&mut state.limbo).into_iter().partition(|(at, _)| *at <= calls);
        state.limbo = limbo;
        due.into_iter().map(|(_, write): (u64, Write)| write).collect()
    }

    /// Every write that is under way, due or not.
    #[must_use]
    pub fn landing_all(&self) -> Vec<Write> {
        std::mem::take(&mut self.state().limbo).into_iter().map(|(_, write)| write).collect()
    }

    /// Lets `write` take effect later, after some more calls of anybody.
    pub(crate) fn delay(&self, write: Write) {
        let mut state = self.state();
        let late_max = state.plan.late_max.max(1);
        let at = state.calls + state.random.u64(1..=late_max);
        state.limbo.push((at, write));
    }

    /// Draws what becomes of a call that may fail in the ways of `possible`; `None`: it succeeds.
    pub(crate) async fn fate(&self, call: Call, possible: &[Fault]) -> Option<Fault> {
        let fault = self.draw(possible)?;
        match fault {
            Fault::SilentBefore => {
                self.fall_silent(Point { call, side: Side::Before });
                pending().await
            }
            fault => Some(fault),
        }
    }

    fn draw(&self, possible: &[Fault]) -> Option<Fault> {
        let mut state = self.state();
        let silent = [Fault::SilentBefore, Fault::SilentAfter];
        let left = |fault: &Fault| state.plan.budgets.get(fault).is_some_and(|left| *left > 0);
        let left: Vec<Fault> = possible.iter().chain(&silent).copied().filter(left).collect();
        if left.is_empty() || state.random.u16(..1000) >= state.plan.per_mille {
            return None;
        }
        let fault = left[state.random.usize(..left.len())];
        if let Some(budget) = state.plan.budgets.get_mut(&fault) {
            *budget -= 1;
        }
        state.coverage.count(match fault {
            Fault::Refused => Seen::Refused,
            Fault::UnknownApplied => Seen::UnknownApplied,
            Fault::UnknownNotApplied => Seen::UnknownNotApplied,
            Fault::Late => Seen::LandedLate,
            Fault::OwnConflict => Seen::OwnConflict,
            Fault::CleanUpLeft => Seen::CleanUpLeft,
            Fault::Stale => Seen::StaleLoad,
            Fault::SilentBefore | Fault::SilentAfter => Seen::Crash,
        });
        Some(fault)
    }

    /// Stops here for good if `fate` says so.
    pub(crate) async fn silence(&self, call: Call, fate: Option<Fault>) {
        if fate == Some(Fault::SilentAfter) {
            self.fall_silent(Point { call, side: Side::After });
            pending().await
        }
    }

    fn fall_silent(&self, point: Point) {
        self.state().silent = Some(point);
    }

    /// A place where a task gives way and may be stopped.
    pub(crate) async fn point(&self, call: Call, side: Side) {
        let point = Point { call, side };
        let (stop, yields) = {
            let mut state = self.state();
            if side == Side::Before {
                state.calls += 1;
            }
            if state.plan.traced {
                state.trace.push(point);
            }
            state.reached += 1;
            let counted = state.crash_at.is_some_and(|at| at + 1 == state.reached);
            let stop = counted || state.crash_on == Some(point);
            if stop {
                (state.crash_at, state.crash_on) = (None, None);
                state.silent = Some(point);
            }
            let pause = state.pause_on == Some(point);
            if pause {
                state.pause_on = None;
            }
            (stop, pause || state.plan.yields)
        };
        if stop {
            pending::<()>().await;
        }
        if yields {
            yield_once().await;
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("World").field("calls", &state.calls).field("limbo", &state.limbo.len()).finish_non_exhaustive()
    }
}

/// Gives way once.
pub async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
