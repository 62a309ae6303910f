//! Timers without time: each ends when it is the turn of a task of its own, or never.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::step;

thread_local! {
    /// What takes longer never ends. A test, with all its tasks, is one thread.
    static LONGEST: Cell<Duration> = const { Cell::new(Duration::MAX) };
    /// Timers that go on.
    static RESTING: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, timers of this test that take longer than it was told never end.
pub(crate) struct Timers(());

impl Timers {
    #[must_use]
    pub(crate) fn up_to(longest: Duration) -> Self {
        LONGEST.set(longest);
        Self(())
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        LONGEST.set(Duration::MAX);
    }
}

/// Timers that were begun, have not ended and will.
pub(crate) fn resting() -> usize {
    RESTING.get()
}

/// [`tokio::time::sleep`].
pub(crate) fn sleep(time: Duration) -> Sleep {
    sleep_until(Instant::now() + time)
}

/// [`tokio::time::sleep_until`].
pub(crate) fn sleep_until(until: Instant) -> Sleep {
    Sleep { until, ends: ends(until), bell: None }
}

fn ends(until: Instant) -> bool {
    until.saturating_duration_since(Instant::now()) <= LONGEST.get()
}

/// [`tokio::time::timeout`]. What is done as time is over is done.
pub(crate) async fn timeout<F: Future>(time: Duration, work: F) -> Result<F::Output, TimeIsOver> {
    let (mut work, mut over) = (pin!(work), sleep(time));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => Pin::new(&mut over).poll(cx).map(|()| Err(TimeIsOver)),
    })
    .await
}

/// [`tokio::time::timeout_at`].
pub(crate) async fn timeout_at<F: Future>(until: Instant, work: F) -> Result<F::Output, TimeIsOver> {
    timeout(until.saturating_duration_since(Instant::now()), work).await
}

#[derive(Debug)]
pub(crate) struct TimeIsOver;

#[derive(Debug)]
pub(crate) struct Sleep {
    until: Instant,
    ends: bool,
    /// Once it was polled.
    bell: Option<Arc<Mutex<Bell>>>,
}

#[derive(Debug, Default)]
struct Bell {
    rung: bool,
    sleeper: Option<Waker>,
}

impl Sleep {
    pub(crate) const fn deadline(&self) -> Instant {
        self.until
    }

    pub(crate) fn reset(mut self: Pin<&mut Self>, until: Instant) {
        self.set(sleep_until(until));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        step();
        if !self.ends {
            return Poll::Pending;
        }
        let bell = self.bell.get_or_insert_with(|| {
            RESTING.set(RESTING.get() + 1);
            let bell = Arc::<Mutex<Bell>>::default();
            let ringing = bell.clone();
            // It is no matter if it never comes to it, for the test has ended before.
            drop(super::spawn(async move { ring(&ringing) }));
            bell
        });
        let mut bell = bell.lock().unwrap_or_else(PoisonError::into_inner);
        if bell.rung {
            return Poll::Ready(());
        }
        bell.sleeper = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn ring(bell: &Mutex<Bell>) {
    let mut bell = bell.lock().unwrap_or_else(PoisonError::into_inner);
    bell.rung = true;
    let sleeper = bell.sleeper.take();
    drop(bell);
    if let Some(sleeper) = sleeper {
        sleeper.wake();
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.bell.is_some() {
            RESTING.set(RESTING.get() - 1);
        }
    }
}
