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

/// Awaits that a drop may come at. Over a store with its own tasks a pass waits three or four times: for its load, its
/// save and its finish.
const AWAITS_MAX: u32 = 4;

impl Drops {
    /// Drops this share of all futures, each at a random await, drawn from `seed`.
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
        let mut left = {
            let mut random = self.0.random.lock().unwrap_or_else(PoisonError::into_inner);
            (random.f64() < self.0.probability).then(|| random.u32(1..=AWAITS_MAX))
        };
        let mut future = pin!(future);
        poll_fn(move |cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => match &mut left {
                Some(1) => {
                    self.0.dropped.fetch_add(1, Ordering::Relaxed);
                    Poll::Ready(None)
                }
                Some(left) => {
                    *left -= 1;
                    Poll::Pending
                }
                None => Poll::Pending,
            },
        })
        .await
    }
}
