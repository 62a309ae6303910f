//! Of what comes again and again the first is warned of, and then how many there were, now and then: thousands may come in a second, and each of them
//! says the same.

use std::{mem, time::Duration};

use tokio::time::Instant;

/// So long after one was warned of, others are not.
const QUIET: Duration = Duration::from_secs(60);

/// When somebody was warned of one of many.
#[derive(Debug, Default)]
pub(super) struct Warned {
    /// When it was warned last.
    at: Option<Instant>,
    /// So many came since, and were not warned of.
    untold: u64,
}

impl Warned {
    /// How many were not warned of since the last time, if it is time again.
    pub(super) fn came(&mut self, now: Instant) -> Option<u64> {
        if self.at.is_some_and(|at| now.duration_since(at) < QUIET) {
            self.untold += 1;
            return None;
        }
        self.at = Some(now);
        Some(mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_of_and_of_the_others_how_many_they_were() {
        let (mut warned, begun) = (Warned::default(), Instant::now());
        let came: Vec<_> =
            [0, 1, 59, 60, 61, 180].map(|second| warned.came(begun + Duration::from_secs(second))).into();
        assert_eq!(came, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
