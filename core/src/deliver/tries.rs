//! How often something is tried at once, in place, and how long it rests in between.

use std::time::Duration;

/// A budget of tries in place and the waits between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    /// How many; 0: not even one.
    pub max: u32,
    /// Wait before the first, at most; doubled for each further one.
    pub delay: Duration,
    /// Longest wait.
    pub delay_max: Duration,
}

impl Tries {
    /// Not even one.
    pub const NONE: Self = Self::new(0, Duration::ZERO, Duration::ZERO);

    /// `max` tries with waits of up to `delay`, doubled each time, to `delay_max`.
    #[must_use]
    pub const fn new(max: u32, delay: Duration, delay_max: Duration) -> Self {
        Self { max, delay, delay_max }
    }

    /// The longest wait before the try of this number.
    pub(crate) fn wait_max(&self, tries: u32) -> Duration {
        const DOUBLINGS_MAX: u32 = 20;
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        self.delay.saturating_mul(1 << doublings).min(self.delay_max)
    }
}
