//! Who waits for messages in this process, and when to look for those of other processes.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hapax_core::ids::TypeName;
use tokio::{sync::Notify, time::Instant};

/// While nothing comes, the next look is after this part of the time for which nothing has come: what comes at long
/// intervals is waited for with few looks, what comes at short ones with many.
const PART: u32 = 16;

/// What a clock may go back between two looks without having been set, in milliseconds.
pub(super) const SET_BACK_MS: i64 = 1000;

/// The signals of all queues that are received from in this process.
#[derive(Debug)]
pub(super) struct Signals {
    queues: Mutex<HashMap<i64, Arc<Signal>>>,
    busy: Duration,
    idle: Duration,
    /// Held by the one receiver that looks, for all.
    pub(super) looking: tokio::sync::Mutex<()>,
    /// When something last came.
    last: Mutex<Instant>,
    /// What the host's clock said at the last look.
    clock: Mutex<(i64, Instant)>,
    /// What was seen at the last look has changed: something may be available sooner.
    pub(super) sooner: Notify,
}

/// That there may be something for a queue.
#[derive(Debug)]
pub(super) struct Signal {
    pub(super) queue: i64,
    types: Mutex<HashSet<TypeName>>,
    ready: AtomicBool,
    pub(super) given: Notify,
    /// Receivers that wait.
    waiting: AtomicUsize,
}

impl Signals {
    pub(super) fn new(busy: Duration, idle: Duration, now: i64) -> Self {
        Self {
            queues: Mutex::default(),
            busy,
            idle,
            looking: tokio::sync::Mutex::default(),
            last: Mutex::new(Instant::now()),
            clock: Mutex::new((now, Instant::now())),
            sooner: Notify::new(),
        }
    }

    /// The signal of a queue, which also stands for `types` from now on.
    pub(super) fn of_queue(&self, queue: i64, types: &[TypeName]) -> Arc<Signal> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = queues.entry(queue).or_insert_with(|| Arc::new(Signal::new(queue)));
        signal.types.lock().unwrap_or_else(PoisonError::into_inner).extend(types.iter().cloned());
        signal.clone()
    }

    /// Gives the signal of a queue, if it is received from here.
    pub(super) fn give(&self, queue: i64) {
        if let Some(signal) = self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(&queue) {
            signal.give();
        }
    }

    /// Gives the signals of who subscribes to a type here.
    pub(super) fn give_subscribers(&self, subscribed: &TypeName) {
        for signal in self.queues.lock().unwrap_or_else(PoisonError::into_inner).values() {
            if signal.types.lock().unwrap_or_else(PoisonError::into_inner).contains(subscribed) {
                signal.give();
            }
        }
    }

    /// Queues that somebody waits at.
    pub(super) fn waiting(&self) -> Vec<i64> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().filter(|signal| signal.waiting.load(Ordering::Relaxed) > 0).map(|signal| signal.queue).collect()
    }

    /// Something came.
    pub(super) fn came(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether the host's clock, which says `now`, has been set back since this was last asked.
    pub(super) fn was_set_back(&self, now: i64) -> bool {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, at) = std::mem::replace(&mut *clock, (now, Instant::now()));
        let passed = i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX);
        now.saturating_add(SET_BACK_MS) < before.saturating_add(passed)
    }

    /// How long to wait with the next look.
    pub(super) fn interval(&self) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.elapsed() / PART).clamp(self.busy, self.idle)
    }
}

impl Signal {
    fn new(queue: i64) -> Self {
        Self {
            queue,
            types: Mutex::default(),
            ready: AtomicBool::new(true), // Nobody has looked yet.
            given: Notify::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) fn give(&self) {
        self.ready.store(true, Ordering::Release);
        self.given.notify_one();
    }

    /// Whether it has been given since the last time that this was asked.
    pub(super) fn take(&self) -> bool {
        self.ready.swap(false, Ordering::AcqRel)
    }

    /// Counts a receiver as waiting while the guard lives.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }
}

pub(super) struct Waiting<'s>(&'s Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
