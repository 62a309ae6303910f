//! The ports of a running process: its clocks, random ids, and waiting with jitter.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    ids::AttemptId,
    ports::{Backoff, Cause, Clock, Granted, Ids},
    time::{Monotonic, Timestamp},
};

/// The process's own clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    async fn now(&self) -> (Timestamp, Monotonic) {
        (Timestamp::now(), Monotonic(self.start.elapsed()))
    }

    async fn monotonic(&self) -> Monotonic {
        Monotonic(self.start.elapsed())
    }
}

/// Attempt ids: ten bytes drawn once, and a count. Unique without a system call for each, as long as two processes do not
/// draw the same: 74 of the 80 bits are random, the other six are the UUID's version and variant.
#[derive(Debug)]
pub struct RandomIds {
    process: [u8; 10],
    next: AtomicU64,
}

impl Default for RandomIds {
    fn default() -> Self {
        let mut process = [0; 10];
        process.copy_from_slice(&Uuid::new_v4().as_bytes()[6..]);
        Self { process, next: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Ids for RandomIds {
    async fn attempt(&self) -> AttemptId {
        let count = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; AttemptId::BYTES];
        bytes[..10].copy_from_slice(&self.process);
        bytes[10..].copy_from_slice(&count[2..]);
        AttemptId::from_bytes(bytes)
    }
}

/// Waits longer each time, at random within bounds so that rivals do not meet again, up to a number of tries.
///
/// # Source
/// M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog): the "full jitter" variant.
#[derive(Debug, Clone, Copy)]
pub struct Jittered {
    /// After a lost race or an unknown outcome. Default 50 tries from 1 ms to 100 ms: races are short, and losing one is
    /// not a failure.
    pub conflict: Tries,
    /// After the handler failed. Default 2 tries from 10 ms to 100 ms: what passes at once, the rest is left to later
    /// deliveries.
    pub failure: Tries,
    /// After dispatching or marking failed. Default 8 tries from 10 ms to 1 s; then the sweeper has it.
    pub unsent: Tries,
    /// While a store cannot be reached. Default 20 tries from 50 ms to 5 s: giving the message back would not help.
    pub unavailable: Tries,
}

/// A budget of tries and the waits between them.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    /// How many.
    pub max: u32,
    /// Longest first wait; doubled for each further one.
    pub first: Duration,
    /// Longest wait.
    pub longest: Duration,
}

impl Tries {
    /// `max` tries with waits of up to `first`, doubled each time, to `longest`.
    #[must_use]
    pub const fn new(max: u32, first: Duration, longest: Duration) -> Self {
        Self { max, first, longest }
    }

    fn wait(&self, tries: u32) -> Duration {
        const DOUBLINGS_MAX: u32 = 20;
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        self.first.saturating_mul(1 << doublings).min(self.longest).mul_f64(fastrand::f64())
    }
}

impl Default for Jittered {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            conflict: Tries::new(50, ms(1), ms(100)),
            failure: Tries::new(2, ms(10), ms(100)),
            unsent: Tries::new(8, ms(10), ms(1000)),
            unavailable: Tries::new(20, ms(50), ms(5000)),
        }
    }
}

impl Jittered {
    /// The budget of `cause`.
    #[must_use]
    pub const fn budget(&self, cause: Cause) -> &Tries {
        match cause {
            Cause::Conflict => &self.conflict,
            Cause::Failure => &self.failure,
            Cause::Unsent => &self.unsent,
            Cause::Unavailable => &self.unavailable,
        }
    }
}

#[async_trait]
impl Backoff for Jittered {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        let budget = self.budget(cause);
        if tries > budget.max {
            return Granted::Stop;
        }
        tokio::time::sleep(budget.wait(tries)).await;
        Granted::Try
    }
}
