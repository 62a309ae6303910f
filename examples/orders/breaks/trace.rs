//! What the workers asked of their ports and what they were told, in the order of the answers: written down by the
//! adapters, read by the story at the end, and by an ambush that waits for a rival.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hapax::{
    MessageId,
    entity::Version,
    ids::{DedupKey, EntityKey, TypeName},
    ports::Receipt,
};
use tokio::{
    sync::Notify,
    time::{Instant as Moment, timeout_at},
};

/// Calls that are remembered: those of some thousand orders, in some tens of megabytes. Older ones are forgotten.
const CALLS_MAX: usize = 100_000;
/// How far back an ambush looks for a rival: a copy that came earlier has been settled long ago.
const LOOK_BACK: usize = 2_000;

/// Which port was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    Receive,
    Check,
    Load,
    Save,
    Dispatch,
    Finish,
    Settle,
}

impl Port {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Check => "check",
            Self::Load => "load",
            Self::Save => "save",
            Self::Dispatch => "dispatch",
            Self::Finish => "finish",
            Self::Settle => "settle",
        }
    }
}

/// One call, when it was answered.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Counts all calls of the run.
    pub(super) number: u64,
    /// Since the shop opened.
    pub(super) at: Duration,
    /// Who called; the first is 1.
    pub(super) worker: usize,
    pub(super) port: Port,
    /// Which entity, where the port is told.
    pub(super) entity: Option<EntityKey>,
    /// Which messages, by what they are remembered under.
    pub(super) keys: Vec<DedupKey>,
    /// Those of them that are over when the call is answered: seen by a load, marked by a save or a finish.
    pub(super) over: Vec<DedupKey>,
    /// The message received, or the one whose outgoing messages are dispatched.
    pub(super) message: Option<MessageId>,
    /// Type of the message received.
    pub(super) message_type: Option<TypeName>,
    /// What is dispatched.
    pub(super) outgoing: Vec<MessageId>,
    /// Under which lease.
    pub(super) receipt: Option<Receipt>,
    /// The version that was loaded, or that a save expects.
    pub(super) before: Option<Version>,
    /// The version that a save or a clean-up has made.
    pub(super) after: Option<Version>,
    /// What was asked and answered, in a few words.
    pub(super) says: String,
    /// The worker died in this call: its pass was dropped.
    pub(super) cut_off: bool,
    /// Here the rule was broken, and it made a difference.
    pub(super) fatal: bool,
    /// To this message, where the adapter knows.
    pub(super) victim: Option<DedupKey>,
}

/// The calls of all workers. Cloning gives another handle to the same.
#[derive(Clone)]
pub(super) struct Trace(Arc<Inner>);

struct Inner {
    opened: Instant,
    calls: Mutex<Calls>,
    /// A call was written down.
    written: Notify,
    /// Entities at which somebody lies in wait.
    ambushed: Mutex<HashSet<EntityKey>>,
}

#[derive(Default)]
struct Calls {
    recent: VecDeque<Call>,
    /// Number of the next call.
    next: u64,
    fatal: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            opened: Instant::now(),
            calls: Mutex::default(),
            written: Notify::new(),
            ambushed: Mutex::default(),
        }))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over what is still remembered.
    pub(super) fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls().recent).into()
    }

    /// How often the rule was broken to some effect.
    pub(super) fn fatal(&self) -> u64 {
        self.calls().fatal
    }

    /// Where somebody who waits for a rival begins to look.
    pub(super) fn look_back(&self) -> u64 {
        self.calls().next.saturating_sub(LOOK_BACK as u64)
    }

    fn write(&self, mut call: Call) {
        let mut calls = self.calls();
        call.at = self.0.opened.elapsed();
        call.number = calls.next;
        calls.next += 1;
        calls.fatal += u64::from(call.fatal);
        if calls.recent.len() == CALLS_MAX {
            calls.recent.pop_front();
        }
        calls.recent.push_back(call);
        drop(calls);
        self.0.written.notify_waiters();
    }

    /// Waits until a call is `wanted`, beginning with the one numbered `next`, but no longer than `limit`.
    pub(super) async fn wait(&self, mut next: u64, limit: Duration, wanted: impl Fn(&Call) -> bool + Send) -> bool {
        let end = Moment::now() + limit;
        loop {
            let mut written = std::pin::pin!(self.0.written.notified());
            written.as_mut().enable(); // Before the look, so that nothing written in between is missed.
            if self.find(&mut next, &wanted) {
                return true;
            }
            if timeout_at(end, written).await.is_err() {
                return false;
            }
        }
    }

    /// Looks at the calls from `next` on, each once.
    fn find(&self, next: &mut u64, wanted: impl Fn(&Call) -> bool) -> bool {
        let calls = self.calls();
        let oldest = calls.next - calls.recent.len() as u64;
        let skip = usize::try_from(next.saturating_sub(oldest)).unwrap_or(usize::MAX);
        *next = calls.next;
        calls.recent.iter().skip(skip).any(wanted)
    }

    /// Lies in wait at `entity`, unless somebody does already: two who waited for each other would wait for nothing.
    pub(super) fn ambush(&self, entity: &EntityKey) -> Option<Ambush<'_>> {
        let mut ambushed = self.0.ambushed.lock().unwrap_or_else(PoisonError::into_inner);
        ambushed.insert(entity.clone()).then(|| Ambush { trace: self, entity: entity.clone() })
    }
}

/// Somebody lies in wait at an entity.
pub(super) struct Ambush<'t> {
    trace: &'t Trace,
    entity: EntityKey,
}

impl Drop for Ambush<'_> {
    fn drop(&mut self) {
        self.trace.0.ambushed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.entity);
    }
}

/// A call that has begun. Written down when it is answered, or when it is dropped: then the worker has died in it.
pub(super) struct Open<'t> {
    trace: &'t Trace,
    call: Option<Call>,
    failed: bool,
}

impl<'t> Open<'t> {
    pub(super) const fn new(trace: &'t Trace, worker: usize, port: Port) -> Self {
        let call = Call {
            number: 0,
            at: Duration::ZERO,
            worker,
            port,
            entity: None,
            keys: Vec::new(),
            over: Vec::new(),
            message: None,
            message_type: None,
            outgoing: Vec::new(),
            receipt: None,
            before: None,
            after: None,
            says: String::new(),
            cut_off: false,
            fatal: false,
            victim: None,
        };
        Self { trace, call: Some(call), failed: false }
    }

    /// Notes more about the call.
    pub(super) fn with(mut self, note: impl FnOnce(&mut Call)) -> Self {
        if let Some(call) = &mut self.call {
            note(call);
        }
        self
    }

    /// The answer is an error.
    pub(super) fn failed(&mut self, error: &dyn fmt::Display) {
        self.failed = true;
        if let Some(call) = &mut self.call {
            call.says = error.to_string();
        }
    }

    /// The answer has come; `note` says what it is.
    pub(super) fn answered(mut self, note: impl FnOnce(&mut Call)) {
        if let Some(mut call) = self.call.take() {
            note(&mut call);
            self.trace.write(call);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.trace.write(Call { cut_off: !self.failed, ..call });
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("calls", &self.calls().next).finish_non_exhaustive()
    }
}
