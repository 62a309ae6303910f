//! What is asked for at the same time goes together: whatever came while others were under way, without a timer.
//!
//! One call at a time would leave the broker idle while its answer travels; a call for each message costs both sides more than the
//! message. So a few calls are under way at most, and the next takes all that waits then, up to a number and a size. Who asks gets an
//! answer for what it has asked for and for nothing else, and gets it when its own part of a call is known. What waits has a bound, and
//! goes when nobody waits for its answer any more.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hapax_core::ports::{DispatchError, ErrorKind, TransportError};
use tokio::{sync::oneshot, time::timeout};

/// Bytes of one call, unless one thing alone has more: on its connection the first of them waits for the last, and drivers copy all of
/// them before they write.
const TOGETHER_BYTES_MAX: usize = 8 << 20;
/// What may wait for a call, and its bytes: some hundred calls' worth, which a server that is well takes in seconds. With more it takes
/// less than comes, for long, and what waits in memory would only grow.
const WAITING_MAX: usize = 1 << 16;
const WAITING_BYTES_MAX: usize = 256 << 20;
/// How many times as long as a server is waited for an answer is waited for: a call may have to connect, open and ask, and is
/// behind others that have to. Beyond it something has gone wrong that no other limit has seen.
const PATIENCES: u32 = 8;

/// What is under way at a time, in one call, and what may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    calls_max: usize,
    together_max: usize,
    together_bytes_max: usize,
    waiting_max: usize,
    waiting_bytes_max: usize,
    longest: Duration,
}

impl Bounds {
    /// For as many calls at a time, and as many things in each, unless one asks for more by itself. `patience`: how long a server is
    /// waited for.
    pub(crate) fn of(calls_max: usize, together_max: usize, patience: Duration) -> Self {
        Self {
            calls_max,
            together_max,
            together_bytes_max: TOGETHER_BYTES_MAX,
            waiting_max: WAITING_MAX,
            waiting_bytes_max: WAITING_BYTES_MAX,
            longest: patience.saturating_mul(PATIENCES),
        }
    }
}

/// What waits for a call, and how many are under way.
pub(crate) struct Together<T, A> {
    state: Mutex<State<T, A>>,
    bounds: Bounds,
}

struct State<T, A> {
    asked: VecDeque<Asked<T, A>>,
    /// How much that is.
    size: Size,
    /// Tasks that make calls.
    callers: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Size {
    things: usize,
    bytes: usize,
}

impl Size {
    const fn and(self, other: Self) -> Self {
        Self { things: self.things.saturating_add(other.things), bytes: self.bytes.saturating_add(other.bytes) }
    }

    const fn is_within(self, things: usize, bytes: usize) -> bool {
        self.things <= things && self.bytes <= bytes
    }
}

struct Asked<T, A> {
    these: Vec<T>,
    bytes: usize,
    answer: oneshot::Sender<Vec<A>>,
}

impl<T, A> Asked<T, A> {
    fn size(&self) -> Size {
        Size { things: self.these.len(), bytes: self.bytes }
    }
}

/// One who has asked, for what goes in a call.
pub(crate) struct Asker<A> {
    count: usize,
    answer: oneshot::Sender<Vec<A>>,
}

/// What goes in one call, and who has asked for it, in their order.
pub(crate) type Batch<T, A> = (Vec<T>, Vec<Asker<A>>);

/// Who makes calls, one after the other, as long as something waits.
pub(crate) struct Caller<T, A> {
    together: Arc<Together<T, A>>,
    has_ended: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too much waits; this was not asked for.
    Full,
    /// Nothing came for so long.
    Late(Duration),
    /// Who was to answer is gone.
    Ended,
}

impl<T, A> State<T, A> {
    /// What nobody waits for any more is not sent: nobody would know of it, and who gave up may have asked again.
    fn forget_unawaited(&mut self) {
        let mut size = Size::default();
        self.asked.retain(|asked| {
            let is_awaited = !asked.answer.is_closed();
            if is_awaited {
                size = size.and(asked.size());
            }
            is_awaited
        });
        self.size = size;
    }

    /// Whether that much may wait as well. Where nothing does, it goes next, however much it is.
    fn has_room_for(&mut self, more: Size, bounds: &Bounds) -> bool {
        let fits = |state: &Self| {
            state.asked.is_empty() || state.size.and(more).is_within(bounds.waiting_max, bounds.waiting_bytes_max)
        };
        fits(self) || {
            self.forget_unawaited();
            fits(self)
        }
    }
}

impl<T: Send + 'static, A: Send + 'static> Together<T, A> {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        let state = State { asked: VecDeque::new(), size: Size::default(), callers: 0 };
        Arc::new(Self { state: Mutex::new(state), bounds })
    }

    fn state(&self) -> MutexGuard<'_, State<T, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for `these`, in their order, which have about so many `bytes`. `call` is spawned if there is room for another call. A call that is under
    /// way goes on if whoever asks is dropped; what still waits then is not asked for.
    pub(crate) async fn ask<C, F>(self: &Arc<Self>, these: Vec<T>, bytes: usize, call: C) -> Result<Vec<A>, Unanswered>
    where
        C: FnOnce(Caller<T, A>) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let has_room = {
            let mut state = self.state();
            let asked = Asked { these, bytes, answer };
            if !state.has_room_for(asked.size(), &self.bounds) {
                return Err(Unanswered::Full);
            }
            state.size = state.size.and(asked.size());
            state.asked.push_back(asked);
            let has_room = state.callers < self.bounds.calls_max;
            state.callers += usize::from(has_room);
            has_room
        };
        if has_room {
            tokio::spawn(call(Caller { together: self.clone(), has_ended: false }));
        }
        match timeout(self.bounds.longest, answered).await {
            Ok(answer) => answer.map_err(|_| Unanswered::Ended),
            Err(_) => Err(Unanswered::Late(self.bounds.longest)),
        }
    }
}

impl<T: Send + 'static, A: Send + 'static> Caller<T, A> {
    /// What goes next; with nothing that waits this one has ended.
    pub(crate) fn next(&mut self) -> Option<Batch<T, A>> {
        let bounds = self.together.bounds;
        let mut state = self.together.state();
        state.forget_unawaited();
        let (mut count, mut size) = (0, Size::default());
        for asked in &state.asked {
            size = size.and(asked.size());
            if count > 0 && !size.is_within(bounds.together_max, bounds.together_bytes_max) {
                break;
            }
            count += 1;
        }
        if count == 0 {
            // In one with the look: what comes after it finds a place for a caller.
            state.callers -= 1;
            self.has_ended = true;
            return None;
        }
        let (mut these, mut askers) = (Vec::new(), Vec::with_capacity(count));
        for _ in 0..count {
            let Some(mut asked) = state.asked.pop_front() else { break };
            let went = asked.size();
            state.size.things -= went.things;
            state.size.bytes -= went.bytes;
            askers.push(Asker { count: went.things, answer: asked.answer });
            these.append(&mut asked.these);
        }
        Some((these, askers))
    }
}

impl<T, A> Drop for Caller<T, A> {
    /// With its runtime, or in a panic. If it was the last, nobody would care for what waits.
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.together.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.callers -= 1;
            if state.callers == 0 {
                state.asked.clear();
                state.size = Size::default();
            }
        }
    }
}

impl<A> Asker<A> {
    /// For how many things.
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Tells it what became of what it has asked for, which is what comes next of `answers`.
    pub(crate) fn answer_from(self, answers: &mut impl Iterator<Item = A>) {
        // Who asked may be gone.
        drop(self.answer.send(answers.take(self.count).collect()));
    }
}

impl Unanswered {
    pub(crate) fn error(self, operation: &'static str) -> TransportError {
        match self {
            Self::Full => {
                let why = format!(
                    "{WAITING_MAX} messages or {} MiB wait for the server already, which takes less than comes: send fewer at a time, or give it more room",
                    WAITING_BYTES_MAX >> 20
                );
                TransportError::new(ErrorKind::Unavailable, operation, why)
            }
            Self::Late(longest) => {
                let why = format!("nothing was answered within {longest:?}, what goes before it included");
                TransportError::new(ErrorKind::UnknownOutcome, operation, why)
            }
            Self::Ended => {
                let why = "who was to answer is gone: the runtime in which it was asked is ending, or a panic before this says why";
                TransportError::new(ErrorKind::UnknownOutcome, operation, why)
            }
        }
    }
}

/// Tells each of `results` that was asked for, and not refused before, what became of it.
pub(crate) fn tell<P>(
    results: &mut [Result<(), DispatchError>],
    answers: Result<Vec<Result<P, TransportError>>, Unanswered>,
    operation: &'static str,
) {
    let (answers, unanswered) = match answers {
        Ok(answers) => (answers, Unanswered::Ended),
        Err(unanswered) => (Vec::new(), unanswered),
    };
    let mut answers = answers.into_iter();
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        if let Err(e) = answers.next().unwrap_or_else(|| Err(unanswered.error(operation))) {
            *result = Err(DispatchError::Transient(e));
        }
    }
}

#[cfg(test)]
mod tests;
