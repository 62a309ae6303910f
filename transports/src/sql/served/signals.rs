//! Who waits for messages in this process, when to look for those of other processes, and where to begin.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// While nothing comes, the next look is after this part of the time for which nothing has come: what comes at long
/// intervals is waited for with few looks, what comes at short ones with many.
const PART: u32 = 16;
/// A full look passes what may not be given in at most this part of the time, however long the line behind one key.
const FULL_PART: u32 = 5;
/// Keys that are looked at for their own next messages; more of them are found by a full look.
const FREED_MAX: usize = 256;

/// How far behind the newest message that was given a look begins, in milliseconds: what was sent earlier may be committed
/// later. Long enough that only what a slow transaction commits waits for a full look; no longer, because whatever is under a
/// lease there is locked and let go by each take, and what is gone stays in the index until it is cleared away.
///
/// Where it is measured, it is twice as long as it has taken lately to write here what has the time of the beginning of its
/// transaction.
#[derive(Debug)]
pub(crate) struct Late {
    /// At least and at most, in milliseconds.
    within: RangeInclusive<i64>,
    measured: AtomicI64,
}

impl Late {
    /// A transaction has taken so long. What took longer is forgotten bit by bit.
    #[cfg(any(test, feature = "mysql"))]
    pub(crate) fn written_in(&self, took: Duration) {
        let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX).saturating_mul(2).min(*self.within.end());
        let before = self.measured.load(Ordering::Relaxed);
        self.measured.store(took.max(before - before / 16), Ordering::Relaxed);
    }

    pub(crate) fn ms(&self) -> i64 {
        self.measured.load(Ordering::Relaxed).clamp(*self.within.start(), *self.within.end())
    }
}

/// The signals of all queues that are received from in this process.
#[derive(Debug)]
pub(crate) struct Signals {
    queues: Mutex<HashMap<i64, Arc<Signal>>>,
    busy: Duration,
    idle: Duration,
    late: Arc<Late>,
    /// The server tells what others send.
    told: AtomicBool,
    /// Held by the one receiver that looks, for all.
    pub(crate) looking: tokio::sync::Mutex<()>,
    /// When something last came.
    last: Mutex<Instant>,
    /// What was seen at the last look has changed: something may be available sooner.
    pub(crate) sooner: Notify,
}

/// That there may be something for a queue.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) queue: i64,
    ready: AtomicBool,
    pub(crate) given: Notify,
    /// Receivers that wait.
    waiting: AtomicUsize,
    full_every: Duration,
    late: Arc<Late>,
    look: Mutex<Look>,
}

/// A place in the order in which messages become due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) due: i64,
    pub(crate) id: i64,
}

impl Position {
    /// Before every message: none has become due in 1970.
    pub(crate) const START: Self = Self { due: 0, id: 0 };
}

/// Where the next take begins. A hint, which saves looking at what is gone or under a lease: a message may be committed
/// behind it, and a lease may run out there. So every now and then a take begins at the start.
#[derive(Debug)]
struct Look {
    from: Position,
    /// The last that the last take saw, where it could give nothing of what it saw: its keys are held up. No look before a take
    /// begins ahead of it; it would find the same again and again, for as long as it is new.
    held_up: Option<Position>,
    /// A full look has not come to the end. What its takes that gave nothing have taken.
    full_runs: bool,
    full_took: Duration,
    /// When the next one may begin.
    full_next: Instant,
    /// Somebody has said that the next one is to begin at once.
    anew: bool,
    /// When a take last began at the start.
    start: Instant,
    /// Keys of which something was settled here.
    freed: HashSet<Arc<str>>,
}

/// How far a take has looked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    pub(crate) now: i64,
    /// The last one that was looked at, if there was any.
    pub(crate) last: Option<Position>,
    /// There may be more behind it.
    pub(crate) more: bool,
    /// What was looked at may be given as well.
    pub(crate) left: bool,
    /// What it took the server, if nothing was given.
    pub(crate) idle: Duration,
}

impl Signals {
    pub(crate) fn new(busy: Duration, idle: Duration, late_ms: RangeInclusive<i64>) -> Self {
        Self {
            queues: Mutex::default(),
            busy,
            idle,
            late: Arc::new(Late { within: late_ms, measured: AtomicI64::default() }),
            told: AtomicBool::new(false),
            looking: tokio::sync::Mutex::default(),
            last: Mutex::new(Instant::now()),
            sooner: Notify::new(),
        }
    }

    pub(crate) fn of_queue(&self, queue: i64) -> Arc<Signal> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(queue).or_insert_with(|| Arc::new(Signal::new(queue, self.idle, self.late.clone()))).clone()
    }

    /// How late things are committed, for those who commit them and measure it.
    #[cfg(any(test, feature = "mysql"))]
    pub(crate) fn late(&self) -> Arc<Late> {
        self.late.clone()
    }

    /// Gives the signal of a queue, if it is received from here.
    pub(crate) fn give(&self, queue: i64) {
        if let Some(signal) = self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(&queue) {
            signal.give();
        }
    }

    /// The server tells what others send, or it does not any more. What was sent before it did is looked for.
    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn are_told(&self, told: bool) {
        self.told.store(told, Ordering::Relaxed);
        for signal in self.queues.lock().unwrap_or_else(PoisonError::into_inner).values() {
            signal.give();
        }
        self.sooner.notify_one();
    }

    /// Queues that somebody waits at, and where to look for something.
    pub(crate) fn waiting(&self) -> Vec<(Arc<Signal>, Position)> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |signal: &&Arc<Signal>| signal.waiting.load(Ordering::Relaxed) > 0;
        queues.values().filter(waits).map(|signal| (signal.clone(), signal.position())).collect()
    }

    /// Something came.
    pub(crate) fn came(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long to wait with the next look.
    pub(crate) fn interval(&self) -> Duration {
        if self.told.load(Ordering::Relaxed) {
            return self.idle;
        }
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.elapsed() / PART).clamp(self.busy, self.idle)
    }
}

impl Signal {
    fn new(queue: i64, full_every: Duration, late: Arc<Late>) -> Self {
        let look = Look {
            from: Position::START,
            held_up: None,
            full_runs: false,
            full_took: Duration::ZERO,
            full_next: Instant::now(),
            anew: true,
            start: Instant::now(),
            freed: HashSet::new(),
        };
        Self {
            queue,
            ready: AtomicBool::new(true), // Nobody has looked yet.
            given: Notify::new(),
            waiting: AtomicUsize::new(0),
            full_every,
            late,
            look: Mutex::new(look),
        }
    }

    pub(crate) fn give(&self) {
        self.ready.store(true, Ordering::Release);
        self.given.notify_one();
    }

    /// Whether it has been given since the last time that this was asked.
    pub(crate) fn take(&self) -> bool {
        self.ready.swap(false, Ordering::AcqRel)
    }

    /// Counts a receiver as waiting while the guard lives.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Where a look has to begin now.
    fn position(&self) -> Position {
        let look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if look.is_full_due() { Position::START } else { look.held_up.unwrap_or(look.from).max(look.from) }
    }

    /// Begins a take: where, and at which keys besides.
    pub(crate) fn begin(&self) -> (Position, Vec<Arc<str>>) {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let freed = look.freed.drain().collect();
        if look.is_full_due() {
            look.from = Position::START;
            (look.full_runs, look.full_took, look.anew) = (true, Duration::ZERO, false);
        } else if look.full_runs && look.start.elapsed() >= self.full_every {
            // A full look that passes a long line, or gives all the time, still is to find what came free before it.
            look.start = Instant::now();
            return (Position::START, freed);
        }
        if look.from == Position::START {
            look.start = Instant::now();
        }
        (look.from, freed)
    }

    /// A take or a look that began at `from` has come as far as that.
    pub(crate) fn looked(&self, from: Position, looked: Looked) {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = from == Position::START && (look.from == from || look.is_full_due());
        if looked.left || !(is_full || look.from == from) {
            return; // Or another take has been quicker, or this one was beside a full look.
        }
        look.full_took += looked.idle;
        if looked.more {
            look.from = looked.last.unwrap_or(look.from);
        } else {
            // To the end: from here on, what is committed late is looked for.
            look.from = Position { due: looked.now - self.late.ms(), id: 0 };
            if look.full_runs || is_full {
                look.full_runs = false;
                look.full_next = Instant::now() + self.full_every.max(look.full_took * FULL_PART);
            }
        }
    }

    /// A take has given something, or has seen no further than that and could give nothing of it.
    pub(crate) fn held_up(&self, last: Option<Position>) {
        self.look.lock().unwrap_or_else(PoisonError::into_inner).held_up = last;
    }

    /// Somebody else may have what lies before: the next take begins at the start.
    pub(crate) fn anew(&self) {
        self.look.lock().unwrap_or_else(PoisonError::into_inner).anew = true;
    }

    /// One of `key` was settled: its next ones may lie where no take looks any more.
    pub(crate) fn free(&self, key: impl Into<Arc<str>>) {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if look.freed.len() < FREED_MAX {
            look.freed.insert(key.into());
        } else {
            look.anew = true;
        }
    }

    /// Of these keys not all was looked at.
    pub(crate) fn free_again(&self, keys: Vec<Arc<str>>) {
        keys.into_iter().for_each(|key| self.free(key));
    }
}

impl Look {
    fn is_full_due(&self) -> bool {
        self.anew || !self.full_runs && self.full_next <= Instant::now()
    }
}

pub(crate) struct Waiting<'s>(&'s Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
