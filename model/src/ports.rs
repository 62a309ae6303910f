//! The small ports of a world: clock, ids, back-off, metrics.

use std::time::Duration;

use async_trait::async_trait;
use hapax_core::{
    envelope::Outgoing,
    ids::AttemptId,
    metrics::{Event, Metrics},
    ports::{Backoff, Cause, Clock, Granted, Ids},
    time::{Monotonic, Timestamp},
};

use crate::{Call, Seen, Side, World};

/// A clock that moves by a millisecond each time somebody looks.
#[derive(Debug, Clone)]
pub struct WorldClock(pub World);

#[async_trait]
impl Clock for WorldClock {
    async fn now(&self) -> (Timestamp, Monotonic) {
        /// 2026-01-01, so that dates look like dates.
        const START: u64 = 1_767_225_600_000;
        self.0.point(Call::Now, Side::Before).await;
        let number = self.0.number();
        let now = (Timestamp::from_millis(START + number), Monotonic(Duration::from_millis(number)));
        self.0.point(Call::Now, Side::After).await;
        now
    }

    async fn monotonic(&self) -> Monotonic {
        self.0.point(Call::Monotonic, Side::Before).await;
        let now = Monotonic(Duration::from_millis(self.0.number()));
        self.0.point(Call::Monotonic, Side::After).await;
        now
    }
}

/// Counts attempts.
#[derive(Debug, Clone)]
pub struct WorldIds(pub World);

#[async_trait]
impl Ids for WorldIds {
    async fn attempt(&self) -> AttemptId {
        self.0.point(Call::Attempt, Side::Before).await;
        let attempt = AttemptId::from_bytes(u128::from(self.0.number()).to_be_bytes());
        self.0.point(Call::Attempt, Side::After).await;
        attempt
    }

    fn numbers(&self) -> bool {
        false
    }

    async fn number(&self, _: &mut [Outgoing]) {}
}

/// Grants a number of tries for each cause, without waiting.
#[derive(Debug, Clone)]
pub struct Patience {
    /// The world.
    pub world: World,
    /// After a lost race or an unknown outcome.
    pub conflict: u32,
    /// After the handler failed.
    pub failure: u32,
    /// After dispatching or marking failed.
    pub unsent: u32,
    /// While a store cannot be reached.
    pub unavailable: u32,
}

impl Patience {
    /// A few tries of each.
    #[must_use]
    pub const fn new(world: World) -> Self {
        Self { world, conflict: 4, failure: 1, unsent: 1, unavailable: 2 }
    }
}

#[async_trait]
impl Backoff for Patience {
    async fn pause(&self, cause: Cause, tries: u32) -> Granted {
        self.world.point(Call::Pause, Side::Before).await;
        let max = match cause {
            Cause::Conflict => self.conflict,
            Cause::Failure => self.failure,
            Cause::Unsent => self.unsent,
            Cause::Unavailable => self.unavailable,
        };
        self.world.point(Call::Pause, Side::After).await;
        if tries > max { Granted::Stop } else { Granted::Try }
    }
}

/// Counts events as coverage.
#[derive(Debug, Clone)]
pub struct WorldMetrics(pub World);

impl Metrics for WorldMetrics {
    fn observe(&self, event: Event<'_>) {
        self.0.count(match event {
            Event::Handled(_) => Seen::Handled,
            Event::Duplicate(_) => Seen::DedupHit,
            Event::Dropped(_, "timeout not live" | "timeout of no saga") => Seen::TimeoutCancelled,
            Event::Dropped(_, "saga completed") => Seen::Completed,
            Event::DeadLettered(_) => Seen::DeadLettered,
            Event::OutgoingDeadLettered(_) => Seen::OutgoingDeadLettered,
            Event::Retried(_, Cause::Failure) => Seen::HandlerFailed,
            Event::LeftToSweeper(_) => Seen::LeftToSweeper,
            Event::Swept(..) => Seen::Swept,
            _ => return,
        });
    }
}
