//! Crashes by the thousand without a process to kill: what a pass holds is gone when its future is dropped at an await.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

/// Drops futures at random awaits: for what they hold, a crash of the process at that point (S16). Cloning gives another
/// handle to the same.
#[derive(Debug, Clone)]
pub struct Drops(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    random: Mutex<fastrand::Rng>,
    probability: f64,
    dropped: AtomicU64,
}

/// Share of the awaits of a chosen future at which it is dropped. Over a store with its own tasks a pass waits three or
/// four times: for its load, its save and its finish; so each of them is hit often. No await is certain to be
/// the last: a pass of many awaits would never come to its end, however often its messages came again.
const DROP_AT_AWAIT: f64 = 0.2;

impl Drops {
    /// Chooses this share of all futures and drops each of them at a random await, drawn from `seed`; one that is done
    /// before has escaped.
    #[must_use]
    pub fn new(seed: u64, probability: f64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self(Arc::new(Inner { random, probability, dropped: AtomicU64::new(0) }))
    }

    /// How many futures have been dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Runs `future` to its end, or drops it on the way and gives `None`.
    pub async fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        let chosen = self.draw(self.0.probability);
        let mut future = pin!(future);
        poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if chosen && self.draw(DROP_AT_AWAIT) => {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }
    fn draw(&self, probability: f64) -> bool {
        self.0.random.lock().unwrap_or_else(PoisonError::into_inner).f64() < probability
    }
}
