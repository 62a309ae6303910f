//! The same as std and tokio have, where whoever else is ready may run before each step; and how tests go through the orders.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler},
};
pub(crate) use shuttle::{
    future::{block_on, spawn},
    sync::{Mutex, MutexGuard, atomic},
};
use tokio::sync::{AcquireError, SemaphorePermit, futures};

pub(crate) mod mpsc;
pub(crate) mod oneshot;
mod timers;

pub(crate) use timers::{Timers, resting, sleep, sleep_until, timeout, timeout_at};

/// Orders that each kind of random walk goes through: a mistake that one order in a thousand shows is missed once in twenty thousand.
const WALKS: usize = 10_000;
/// Turns that a walk of the second kind takes where they hurt: nearly every mistake needs three at most.
const TURNS: usize = 3;
/// Of each task. Backtraces and formatted errors need more than shuttle's own 60 KiB.
const STACK_BYTES: usize = 256 << 10;
/// Orders of a test that goes through all of them: a test with more is too large for it, and fails.
const ORDERS_MAX: usize = 300_000;

/// Runs `test` in many orders: at random, and with few turns that are drawn before.
pub(crate) fn explore(test: fn()) {
    go_through(RandomScheduler::new(WALKS), test);
    go_through(PctScheduler::new(TURNS, WALKS), test);
}

/// Runs `test` in all orders that there are.
pub(crate) fn exhaust(test: fn()) {
    let orders = go_through(DfsScheduler::new(Some(ORDERS_MAX), false), test);
    assert!(orders < ORDERS_MAX, "{orders} orders and not all: make the test smaller");
}

fn go_through(scheduler: impl Scheduler + 'static, test: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true; // Of `Relaxed`: see the module above.
    let orders = Runner::new(scheduler, config).run(test);
    println!("{orders} orders");
    orders
}

/// Runs futures as tasks beside each other, until all are done.
pub(crate) fn all<T: Send + 'static>(
    tasks: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(spawn).collect();
    tasks.into_iter().map(|task| block_on(task).expect("the task has panicked")).collect()
}

/// Whoever else is ready may run here.
pub(crate) fn step() {
    thread_local! { static STEP: atomic::AtomicBool = const { atomic::AtomicBool::new(false) } }
    STEP.with(|step| step.load(atomic::Ordering::SeqCst));
}

/// [`tokio::sync::Notify`].
#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        step();
        self.0.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        step();
        self.0.notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        step();
        Notified(Box::pin(self.0.notified()))
    }
}

/// [`futures::Notified`].
#[derive(Debug)]
pub(crate) struct Notified<'n>(Pin<Box<futures::Notified<'n>>>);

impl Notified<'_> {
    pub(crate) fn enable(self: Pin<&mut Self>) -> bool {
        step();
        self.get_mut().0.as_mut().enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        step();
        self.get_mut().0.as_mut().poll(cx)
    }
}

/// [`tokio::sync::Semaphore`].
#[derive(Debug)]
pub(crate) struct Semaphore(tokio::sync::Semaphore);

impl Semaphore {
    pub(crate) fn new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::new(permits))
    }

    pub(crate) async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        step();
        self.0.acquire().await
    }

    pub(crate) fn available_permits(&self) -> usize {
        step();
        self.0.available_permits()
    }
}

/// [`tokio::sync::Mutex`]: one that is held while something is waited for.
#[derive(Debug)]
pub(crate) struct AsyncMutex<T>(tokio::sync::Mutex<T>);

impl<T> AsyncMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(tokio::sync::Mutex::new(value))
    }

    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, T> {
        step();
        self.0.lock().await
    }
}
