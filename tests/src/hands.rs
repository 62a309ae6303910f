//! A clock that is set by hand.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    ports::Clock,
    time::{Monotonic, Timestamp},
};

/// A clock that stands still until it is set.
#[derive(Debug, Clone)]
pub struct Hands(Arc<Mutex<HandsState>>);

#[derive(Debug)]
struct HandsState {
    now: Timestamp,
    since: Duration,
    readings_to_come: Option<u32>,
    readings: u32,
    step: Duration,
}

impl Default for Hands {
    fn default() -> Self {
        /// 2026-01-01.
        const START: u64 = 1_767_225_600_000;
        let now = Timestamp::from_millis(START);
        let state =
            HandsState { now, since: Duration::ZERO, readings_to_come: None, readings: 0, step: Duration::ZERO };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Hands {
    fn state(&self) -> MutexGuard<'_, HandsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After so many more readings of the monotonic clock, an hour has passed.
    pub fn jump_after(&self, readings: u32) {
        self.state().readings_to_come = Some(readings);
    }

    /// Each reading of the monotonic clock takes so long.
    pub fn step(&self, step: Duration) {
        self.state().step = step;
    }

    /// How often the monotonic clock was read.
    #[must_use]
    pub fn readings(&self) -> u32 {
        self.state().readings
    }

    /// The time on the wall.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.state().now
    }

    /// So much time passes, on the wall alone.
    pub fn pass(&self, time: Duration) {
        let mut state = self.state();
        state.now = state.now.after(time);
    }

    fn read(&self) -> Monotonic {
        const HOUR: Duration = Duration::from_secs(3600);
        let mut state = self.state();
        state.readings += 1;
        let step = state.step;
        state.since += step;
        match &mut state.readings_to_come {
            Some(0) => {
                state.readings_to_come = None;
                state.since += HOUR;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Monotonic(state.since)
    }
}

#[async_trait]
impl Clock for Hands {
    async fn now(&self) -> (Timestamp, Monotonic) {
        (self.wall(), self.read())
    }

    async fn monotonic(&self) -> Monotonic {
        self.read()
    }
}
