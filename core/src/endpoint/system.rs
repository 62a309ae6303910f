//! The ports of a running process: its clocks, random ids, and waiting with jitter.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{self, Poll},
    time::Instant,
};

use async_trait::async_trait;
use uuid::Uuid;

use super::sequences::Sequences;
use crate::{
    deliver::Recoverability,
    envelope::Outgoing,
    ids::AttemptId,
    ports::{Backoff, Cause, Clock, Granted, Ids},
    time::{Monotonic, Timestamp},
};

/// What all of a process's clocks count from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What is drawn once in a process, and how many attempts it has named.
static PROCESS: LazyLock<[u8; 10]> = LazyLock::new(|| {
    let mut process = [0; 10];
    process.copy_from_slice(&Uuid::new_v4().as_bytes()[6..]);
    process
});
static ATTEMPTS: AtomicU64 = AtomicU64::new(0);

/// What is known at once. Every pass asks three times or more, so it is not a future of `async`: this one has no size, and its box takes no
/// memory.
struct AtOnce<T: Answer>(PhantomData<T>);

trait Answer: Send + Sized {
    fn now() -> Self;
}

impl<T: Answer> AtOnce<T> {
    fn boxed<'a>() -> Pin<Box<dyn Future<Output = T> + Send + 'a>>
    where
        T: 'a,
    {
        Box::pin(Self(PhantomData))
    }
}

impl<T: Answer> Future for AtOnce<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<T> {
        Poll::Ready(T::now())
    }
}

impl Answer for Monotonic {
    fn now() -> Self {
        Self(START.elapsed())
    }
}

impl Answer for (Timestamp, Monotonic) {
    fn now() -> Self {
        (Timestamp::now(), Answer::now())
    }
}

/// Ten bytes drawn once, and a count. Unique without a system call for each, as long as two processes do not draw the same: 74 of the 80
/// bits are random, the other six are the UUID's version and variant.
impl Answer for AttemptId {
    fn now() -> Self {
        let count = ATTEMPTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; Self::BYTES];
        bytes[..10].copy_from_slice(&*PROCESS);
        bytes[10..].copy_from_slice(&count[2..]);
        Self::from_bytes(bytes)
    }
}

/// The process's own clocks.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now<'life, 'answer>(&'life self) -> Pin<Box<dyn Future<Output = (Timestamp, Monotonic)> + Send + 'answer>>
    where
        'life: 'answer,
        Self: 'answer,
    {
        AtOnce::boxed()
    }

    fn monotonic<'life, 'answer>(&'life self) -> Pin<Box<dyn Future<Output = Monotonic> + Send + 'answer>>
    where
        'life: 'answer,
        Self: 'answer,
    {
        AtOnce::boxed()
    }
}

/// Attempt ids that no other process gives, and sequence numbers, where they are asked for.
#[derive(Debug, Default)]
pub struct RandomIds {
    sequences: Option<Sequences>,
}

impl RandomIds {
    /// Such that what is sent is numbered.
    #[must_use]
    pub fn numbering() -> Self {
        Self { sequences: Some(Sequences::default()) }
    }
}

#[async_trait]
impl Ids for RandomIds {
    fn attempt<'life, 'answer>(&'life self) -> Pin<Box<dyn Future<Output = AttemptId> + Send + 'answer>>
    where
        'life: 'answer,
        Self: 'answer,
    {
        AtOnce::boxed()
    }

    fn numbers(&self) -> bool {
        self.sequences.is_some()
    }

    async fn number(&self, outgoing: &mut [Outgoing]) {
        let Some(sequences) = &self.sequences else { return };
        for outgoing in outgoing {
            let number = sequences.next(&outgoing.destination, &outgoing.envelope.message_type);
            Arc::make_mut(&mut outgoing.envelope).sequence = number;
        }
    }
}

/// Waits longer each time, at random within bounds so that rivals do not meet again, within the budgets of a [`Recoverability`].
///
/// # Source
/// M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog): the "full jitter" variant.
#[derive(Debug, Clone, Default)]
pub struct Jittered {
    recoverability: Recoverability,
}

impl Jittered {
    /// Waits as `recoverability` says.
    #[must_use]
    pub const fn new(recoverability: Recoverability) -> Self {
        Self { recoverability }
    }
}

#[async_trait]
impl Backoff for Jittered {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        let budget = self.recoverability.budget(cause);
        if tries > budget.max {
            return Granted::Stop;
        }
        tokio::time::sleep(budget.wait_max(tries).mul_f64(fastrand::f64())).await;
        Granted::Try
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: promise 1 of [`Backoff`]. Method: each cause is asked until it stops, in virtual time.
    #[tokio::test(start_paused = true)]
    async fn bounded() {
        let recoverability = Recoverability::default();
        let backoff = Jittered::new(recoverability.clone());
        for cause in [Cause::Conflict, Cause::Failure, Cause::Unsent, Cause::Unavailable] {
            let mut tries = 1;
            while backoff.pause(cause, tries).await == Granted::Try {
                tries += 1;
            }
            assert_eq!(tries, recoverability.budget(cause).max + 1, "{cause:?}");
        }
    }
}
