//! Who waits for which answer.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, PoisonError},
};

use super::RequestError;
use crate::{
    envelope::Envelope,
    ids::CorrelationId,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        oneshot,
    },
};

/// Requests that wait, by what their answers bear.
#[derive(Debug)]
pub(super) struct Waiting {
    state: Mutex<State>,
    max: usize,
    pub(super) unawaited: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// Several wait for one answer where they have asked the same.
    waiters: HashMap<CorrelationId, Vec<Waiter>>,
    count: usize,
    next: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    answer: oneshot::Sender<Arc<Handed>>,
}

/// A place among those who wait, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Wait {
    waiting: Arc<Waiting>,
    correlation: CorrelationId,
    number: u64,
    /// An error once the client was stopped.
    pub(super) answer: oneshot::Receiver<Arc<Handed>>,
}

/// An answer on its way to those who wait for it. Some may give up at that moment: if none of them takes it, nobody has waited.
#[derive(Debug)]
pub(super) struct Handed {
    answer: Arc<Envelope>,
    is_taken: AtomicBool,
    unawaited: Arc<AtomicU64>,
}

impl Waiting {
    pub(super) fn new(max: usize) -> Self {
        Self { state: Mutex::default(), max, unawaited: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.state().count
    }

    pub(super) fn begin(self: &Arc<Self>, correlation: CorrelationId) -> Result<Wait, RequestError> {
        let mut state = self.state();
        if state.stopped {
            return Err(RequestError::Stopped);
        }
        if state.count >= self.max {
            return Err(RequestError::TooMany { max: self.max });
        }
        let (sender, answer) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.count += 1;
        state.waiters.entry(correlation.clone()).or_default().push(Waiter { number, answer: sender });
        drop(state);
        Ok(Wait { waiting: self.clone(), correlation, number, answer })
    }

    /// Hands an answer to all who wait for it; counts one that nobody waits for.
    pub(super) fn answer(&self, correlation: &CorrelationId, answer: &Arc<Envelope>) {
        let waiters = {
            let mut state = self.state();
            let waiters = state.waiters.remove(correlation).unwrap_or_default();
            state.count -= waiters.len();
            waiters
        };
        let (answer, unawaited) = (answer.clone(), self.unawaited.clone());
        let handed = Arc::new(Handed { answer, is_taken: AtomicBool::new(false), unawaited });
        for waiter in waiters {
            drop(waiter.answer.send(handed.clone())); // Who has given up takes nothing.
        }
    }

    /// Nothing is received any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.waiters.clear();
        state.count = 0;
    }
}

impl Handed {
    pub(super) fn take(&self) -> Arc<Envelope> {
        self.is_taken.store(true, Ordering::Relaxed);
        self.answer.clone()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if !self.is_taken.load(Ordering::Relaxed) {
            let Envelope { message_type, correlation_id, .. } = &*self.answer;
            tracing::debug!(?correlation_id, %message_type, "an answer that nobody waits for");
            self.unawaited.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut state = self.waiting.state();
        let Entry::Occupied(mut waiters) = state.waiters.entry(self.correlation.clone()) else { return };
        let before = waiters.get().len();
        waiters.get_mut().retain(|waiter| waiter.number != self.number);
        let left = waiters.get().len();
        if left == 0 {
            waiters.remove();
        }
        state.count -= before - left;
    }
}
