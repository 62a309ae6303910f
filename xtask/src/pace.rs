//! How the shared checks keep to their time on a slow machine: they say when they began, and what matters less than the rest gives way, aloud. By hand
//! nothing does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When the shared checks began, in seconds since 1970: `.ci/run` sets it.
pub(crate) const BEGUN: &str = "HAPAX_CI_BEGUN";

/// Whether that is longer ago. Where nobody has said when, nothing is late.
pub(crate) fn is_past(limit: Duration) -> bool {
    is_longer_ago(std::env::var(BEGUN).ok().as_deref(), SystemTime::now(), limit)
}

fn is_longer_ago(begun: Option<&str>, now: SystemTime, limit: Duration) -> bool {
    let seconds = begun.and_then(|seconds| seconds.trim().parse().ok());
    let begun = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    begun.and_then(|begun| now.duration_since(begun).ok()).is_some_and(|gone| gone > limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_said_when_he_began_is_late() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let is_late = |begun| is_longer_ago(begun, now, Duration::from_secs(100));
        assert_eq!(
            [Some("899"), Some("900"), Some("1001"), Some("18446744073709551615"), Some("soon"), None].map(is_late),
            [true, false, false, false, false, false]
        );
    }
}
