//! What time it is at the service.
//!
//! DynamoDB cannot be asked, but every answer says in its header `Date` in which second it was made. An answer is made before it
//! is received, so the service's clock is at least so far ahead of ours as any answer says; the best of many comes close.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use aws_sdk_dynamodb::{
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeDeserializationInterceptorContextRef},
    error::BoxError,
    primitives::{DateTime, DateTimeFormat},
};

/// How long what was learned is trusted: within it, two clocks drift apart by less than the second that a `Date` tells.
const WINDOW: Duration = Duration::from_secs(600);

/// The service's clock, as far as its answers tell it. Behind by at most a second and the way of an answer.
#[derive(Debug)]
pub(super) struct ServiceClock {
    begun: Instant,
    /// The service's time at `begun`, in milliseconds since 1970: the latest it can be told to have been.
    learned: Mutex<Learned>,
}

#[derive(Debug)]
struct Learned {
    /// Our own until the service has spoken.
    fallback: i64,
    last: Option<i64>,
    current: Option<i64>,
    since: Instant,
}

impl ServiceClock {
    pub(super) fn new() -> Self {
        let begun = Instant::now();
        let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let fallback = i64::try_from(ours.as_millis()).unwrap_or(i64::MAX);
        Self { begun, learned: Mutex::new(Learned { fallback, last: None, current: None, since: begun }) }
    }

    /// Milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let at_begin = learned.last.max(learned.current).unwrap_or(learned.fallback);
        drop(learned);
        u64::try_from(at_begin.saturating_add(self.elapsed(Instant::now()))).unwrap_or(0)
    }

    fn elapsed(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(i64::MAX)
    }

    /// An answer of the second `date` has come.
    fn learn(&self, date: i64, now: Instant) {
        let at_begin = date.saturating_mul(1000).saturating_sub(self.elapsed(now));
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(learned.since) > WINDOW {
            learned.last = learned.current.take();
            learned.since = now;
        }
        learned.current = learned.current.max(Some(at_begin));
    }
}

/// Reads the header of each answer.
#[derive(Debug)]
pub(super) struct Listen(pub(super) std::sync::Arc<ServiceClock>);

impl Intercept for Listen {
    fn name(&self) -> &'static str {
        "hapax service clock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        if let Some(Ok(date)) = date.map(|date| DateTime::from_str(date, DateTimeFormat::HttpDate)) {
            self.0.learn(date.secs(), Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_clock_of_dynamodb_is_the_services_not_ours() {
        let clock = ServiceClock::new();
        clock.learn(1_000_000, clock.begun + 5 * SECOND); // Received late.
        clock.learn(1_000_000, clock.begun + SECOND);
        clock.learn(1_000_001, clock.begun + 3 * SECOND);
        let learned = clock.learned.lock().unwrap_or_else(PoisonError::into_inner).current;
        assert_eq!(learned, Some(999_999_000));
        assert!(clock.now() < 1_000_100_000);
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed_after_a_while() {
        let clock = ServiceClock::new();
        clock.learn(2_000_000, clock.begun);
        clock.learn(1_000_000, clock.begun + WINDOW + SECOND);
        clock.learn(1_000_000, clock.begun + 3 * WINDOW);
        assert!(clock.now() < 1_000_001_000);
    }
}
