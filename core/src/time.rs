//! Points in time: wall-clock time for what is written down, monotonic time for deadlines, never one for the other.

use std::{fmt, time::Duration};

use crate::ids::InvalidId;

/// A wall-clock time in milliseconds since 1970-01-01T00:00:00Z. Never before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last time that fits the formats we speak: the end of the year 9999.
    pub const MAX: Self = Self(253_402_207_200_000);

    /// A time from milliseconds since the epoch, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The system's wall clock, now. For adapters and shells; the manager asks its `Clock` port.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// This time and `delay`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Self::from_millis(self.0.saturating_add(delay))
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Reads RFC 3339 text with any offset; finer than a millisecond is cut off.
    ///
    /// # Errors
    /// [`InvalidId`] for other text and for times outside 1970 to 9999.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|e| InvalidId::new("timestamp", format!("`{}` is not RFC 3339: {e}", text.escape_debug())))?;
        u64::try_from(time.as_millisecond())
            .map(Self::from_millis)
            .map_err(|_| InvalidId::new("timestamp", format!("`{}` is before 1970", text.escape_debug())))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).map(jiff::Timestamp::from_millisecond) {
            Ok(Ok(time)) => write!(f, "{time:.3}"),
            _ => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A reading of a clock that never goes back: the time since some start that only this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// This reading and `delay`.
    #[must_use]
    pub const fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}
