//! How a relay spares a transport that takes nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::ids::MessageId;

/// After two calls in a row that failed altogether.
const FIRST: Duration = Duration::from_secs(1);
/// The longest time until one message is tried again. Short beside the back-off of a message, since a few bad ones at a quiet time
/// look like a transport that is away, and a good one must not wait for long.
const LONGEST: Duration = Duration::from_secs(5);

/// Whether the transport takes messages, as the last calls have shown.
///
/// A call that fails altogether may be the fault of its messages: the next one is made at once, with one message. If that fails
/// as well, and it is another message, it is taken for the transport's, which is left alone for a while.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Calls in a row of which nothing went through.
    failures: u32,
    until: Option<Instant>,
    /// The message of the last one, if it was of one.
    last: Option<MessageId>,
}

impl Pause {
    /// Nothing of a call went through. For how long the transport is left alone now, if it was not before: calls that were under
    /// way beside the others say nothing new.
    pub(super) fn failed(&mut self, now: Instant, only: Option<MessageId>) -> Option<Duration> {
        if self.is_on(now) || only.is_some() && self.last == only {
            return None;
        }
        self.last = only;
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.checked_sub(2)?;
        let pause = FIRST.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST);
        self.until = Some(now + pause);
        Some(pause)
    }

    /// Something went through. `true`: for the first time since nothing did.
    pub(super) fn succeeded(&mut self) -> bool {
        (self.until, self.last) = (None, None);
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether it is to be left alone for now.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether one message is to be tried, since nothing has gone through since the pause.
    pub(super) const fn is_probing(&self) -> bool {
        self.failures > 0
    }

    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Pause;
    use crate::ids::MessageId;

    #[test]
    fn pauses_grow_and_end_with_the_first_success() {
        let (mut pause, mut now) = (Pause::default(), Instant::now());
        let mut pauses = Vec::new();
        let bad = Some(MessageId::random());
        assert_eq!(pause.failed(now, bad.clone()), None, "it may be the message's fault");
        assert_eq!(pause.failed(now, bad), None, "and then always is");
        assert!(!pause.is_on(now) && pause.is_probing());
        for _ in 0..7 {
            let seconds = pause.failed(now, None).map(|pause| pause.as_secs());
            assert_eq!(pause.failed(now, None), None, "under way beside it");
            assert!(pause.is_on(now) && pause.is_probing());
            pauses.extend(seconds);
            now = pause.until().unwrap_or(now) + Duration::from_millis(1);
            assert!(!pause.is_on(now));
        }
        assert_eq!(pauses, [1, 2, 4, 5, 5, 5, 5]);
        assert!(pause.succeeded() && !pause.succeeded());
        assert!(!pause.is_probing() && !pause.is_on(now));
    }
}
