//! What is asked for at the same time goes together: whatever came while the service had others, without a timer.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Things in a call: the service takes no more.
pub(super) const TOGETHER_MAX: usize = 10;
/// What waits, each with who waits for its answer.
pub(super) struct Batches<T, A> {
    waiting: Mutex<Waiting<T, A>>,
    calls_max: usize,
}

struct Waiting<T, A> {
    asked: Vec<(T, oneshot::Sender<A>)>,
    /// Tasks that take care of them.
    carers: usize,
}

impl<T: Send + 'static, A: Send + 'static> Batches<T, A> {
    /// With as many calls under way at a time; with one, in the order in which they are asked for.
    pub(super) const fn new(calls_max: usize) -> Self {
        Self { waiting: Mutex::new(Waiting { asked: Vec::new(), carers: 0 }), calls_max }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T, A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `care` called with it, and with others. It goes on if whoever asks is dropped. `None` if the runtime is ending.
    pub(super) async fn ask<C, F>(&self, asked: T, care: C) -> Option<A>
    where
        C: FnOnce() -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let needs_carer = {
            let mut waiting = self.waiting();
            waiting.asked.push((asked, answer));
            // One at once; a further one as soon as there is more than the others can have taken.
            let is_needed =
                waiting.carers == 0 || (waiting.carers < self.calls_max && waiting.asked.len() >= TOGETHER_MAX);
            waiting.carers += usize::from(is_needed);
            is_needed
        };
        if needs_carer {
            tokio::spawn(care());
        }
        answered.await.ok()
    }

    /// For a carer: the next of them, and it goes on; with none it has ended.
    pub(super) fn next(&self) -> Vec<(T, oneshot::Sender<A>)> {
        let mut waiting = self.waiting();
        let count = waiting.asked.len().min(TOGETHER_MAX);
        if count == 0 {
            waiting.carers -= 1;
        }
        waiting.asked.drain(..count).collect()
    }
}
