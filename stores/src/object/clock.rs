//! The service's clock, which alone decides how old an entry is.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use object_store::ObjectMeta;

/// When the service wrote the object, in milliseconds.
pub(super) const fn stamp(meta: &ObjectMeta) -> i64 {
    meta.last_modified.timestamp_millis()
}

/// Whether what was stamped `then` is older than `than` milliseconds, at `now`. Both stamps are the service's.
pub(super) const fn is_older(then: i64, now: i64, than: i64) -> bool {
    // Stamps are cut to seconds on most services, so an age by them may be a second more than it is.
    let whole_seconds = then % 1000 == 0 && now % 1000 == 0;
    let resolution = if whole_seconds { 1000 } else { 1 };
    now.saturating_sub(then) > than.saturating_add(resolution)
}

/// `duration` in milliseconds; one of ages is as good as the longest there is.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// About what the service's clock says, from when it was last asked and the time since. A hint: it names buckets. The process's
/// own clock, which may be set, has no part in it.
#[derive(Debug)]
pub(super) struct Clock(Mutex<(i64, Instant)>);

impl Clock {
    pub(super) fn new(now: i64) -> Self {
        Self(Mutex::new((now, Instant::now())))
    }

    pub(super) fn set(&self, now: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (now, Instant::now());
    }

    pub(super) fn about(&self) -> i64 {
        let (then, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        then.saturating_add(millis(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_by_stamps_of_whole_seconds_may_be_a_second_less() {
        // 1000 may have been 1999.9, and 3000 was 3000 at least: a second old, or two.
        assert!(!is_older(1000, 3000, 1000));
        assert!(is_older(1000, 4000, 1000));
        assert!(is_older(1001, 3003, 1000));
        assert!(!is_older(1001, 3002, 2000));
    }

    #[test]
    fn no_age_is_over_the_longest_retention() {
        assert!(!is_older(i64::MIN, i64::MAX, i64::MAX));
        assert_eq!(millis(Duration::MAX), i64::MAX);
    }
}
