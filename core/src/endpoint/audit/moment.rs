//! Time that has passed, by two clocks.

use std::time::Duration;

use crate::time::{Monotonic, Timestamp};

/// A time by both clocks of the process. A monotonic clock stands still while a machine sleeps, and a wall clock may be set: what has
/// to be well before a limit takes the longer of the two, what has to be well after it the shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) wall: Timestamp,
    mono: Monotonic,
}

impl Moment {
    pub(super) const fn new((wall, mono): (Timestamp, Monotonic)) -> Self {
        Self { wall, mono }
    }

    fn both(self, earlier: Self) -> (Duration, Duration) {
        (self.wall.since(earlier.wall), self.mono.0.saturating_sub(earlier.mono.0))
    }

    pub(super) fn longest_since(self, earlier: Self) -> Duration {
        let (wall, mono) = self.both(earlier);
        wall.max(mono)
    }

    pub(super) fn shortest_since(self, earlier: Self) -> Duration {
        let (wall, mono) = self.both(earlier);
        wall.min(mono)
    }
}
