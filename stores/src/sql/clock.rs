//! The server's clock beside this process's: delays are told by one and end by the other.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A clock of the server that is further from this process's is told of. A second: what is kept by time service is some
/// milliseconds off, and no delay or retention is set as fine as that.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(1);

/// Says so when the server's clock, which said `server` between `before` and `after`, and this process's are far apart, once
/// until they are not: `told` remembers.
pub(super) fn compare(place: &str, told: &AtomicBool, before: SystemTime, server: i64, after: SystemTime) {
    let skew = skew(millis(before), server, millis(after));
    let is_far = skew.unsigned_abs() > CLOCK_SKEW_MAX.as_millis() as u64;
    if is_far && !told.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            place,
            "the server's clock is {} ms {} of this host's, so that delayed messages come as much {}: let a time service \
             (NTP) set both",
            skew.unsigned_abs(),
            if skew > 0 { "ahead" } else { "behind" },
            if skew > 0 { "too early" } else { "too late" },
        );
    }
    if !is_far {
        told.store(false, Ordering::Relaxed);
    }
}

/// How far the server's clock is ahead at least, or behind if less than nothing. It was read between `before` and `after`:
/// the middle of the two, give or take half of what is between them.
fn skew(before: i64, server: i64, after: i64) -> i64 {
    let (way, middle) = ((after - before).max(0) / 2, before.midpoint(after));
    let ahead = server - middle;
    ahead.signum() * (ahead.abs() - way).max(0)
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::skew;

    #[test]
    fn a_clock_is_no_further_off_than_the_way_to_it_leaves_no_doubt_of() {
        assert_eq!(skew(1000, 1000, 1000), 0);
        assert_eq!(skew(1000, 1300, 1400), 0, "read somewhere on the way");
        assert_eq!(skew(1000, 1000, 1400), 0);
        assert_eq!(skew(1000, 5400, 1400), 4000);
        assert_eq!(skew(9000, 5000, 9400), -4000);
        assert_eq!(skew(9000, 5000, 8000), -3500, "this process's own was set back meanwhile");
    }
}
