use std::time::Duration;

/// A budget of tries in place and the waits between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    /// How many.
    pub max: u32,
    /// Longest first wait; doubled for each further one.
    pub first: Duration,
    /// Longest wait.
    pub longest: Duration,
}

impl Tries {
    /// Not even one.
    pub const NONE: Self = Self::new(0, Duration::ZERO, Duration::ZERO);

    /// `max` tries with waits of up to `first`, doubled each time, to `longest`.
    #[must_use]
    pub const fn new(max: u32, first: Duration, longest: Duration) -> Self {
        Self { max, first, longest }
    }

    /// The longest wait before the try of this number.
    pub(crate) fn wait_max(&self, tries: u32) -> Duration {
        const DOUBLINGS_MAX: u32 = 20;
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}
