//! How far a table was looked at.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use hapax_core::ports::{Claimed, Claiming};

/// Once all was claimed that was ready, looks begin so long before: what a slow transaction has stored may become visible late.
/// Rows that are gone are in the index until they are cleared away, and a look from the beginning goes through all of them.
const LATE: i64 = 15_000;
/// How often to look from the beginning all the same.
const FULL_LOOK: Duration = Duration::from_secs(30);
/// Where order is kept: how often relays look whether their shares are fair, where a lease is not shorter.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const SHARE_EVERY: Duration = Duration::from_secs(5);

/// `L` is a lane's place in their order.
#[derive(Debug)]
pub(in crate::sql) struct Looked<L> {
    /// Where order is kept: the lane after which the next look begins.
    pub(in crate::sql) after: Option<L>,
    /// How many lanes the last look has seen.
    #[cfg(feature = "mysql")]
    pub(in crate::sql) lanes: i64,
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    shared: Option<Instant>,
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    has_just_shared: bool,
    /// By the server's clock: what was ready before was claimed, but for what came late.
    pub(in crate::sql) up_to: i64,
    fully: Option<Instant>,
}

impl<L> Default for Looked<L> {
    fn default() -> Self {
        Self {
            after: None,
            #[cfg(feature = "mysql")]
            lanes: 1,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            shared: None,
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            has_just_shared: false,
            up_to: 0,
            fully: None,
        }
    }
}

/// Where order is kept: of `lanes`, those of the rows that a look has claimed, the last, where there may be others behind it
/// that could have been claimed as well. All that fits is claimed lane by lane, one row of each before a second one of any.
pub(in crate::sql) fn cut<L: Ord>(claimed: &[Claimed], wanted: Claiming, lane: impl Fn(&Claimed) -> L) -> Option<L> {
    let bytes = claimed.iter().filter_map(|row| row.outgoing.as_ref().ok()).map(|row| row.envelope.body.len());
    let is_full = claimed.len() >= wanted.rows || bytes.sum::<usize>() >= wanted.bytes;
    let lanes: BTreeSet<L> = claimed.iter().filter(|_| is_full).map(lane).collect();
    if lanes.len() == claimed.len() { lanes.into_iter().next_back() } else { None }
}

impl<L> Looked<L> {
    /// Where the next look begins.
    pub(in crate::sql) fn start(&mut self, now: Instant) -> i64 {
        if self.fully.is_some_and(|at| now.duration_since(at) < FULL_LOOK) {
            return self.up_to - LATE;
        }
        self.fully = Some(now);
        0
    }

    /// Where order is kept: whether shares are to be looked at now.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(in crate::sql) fn shares(&mut self, now: Instant, lease: Duration) -> bool {
        let due = self.shared.is_none_or(|at| now.duration_since(at) >= SHARE_EVERY.min(lease / 3));
        // Never twice in a row, however short the lease: something has to be claimed in between.
        self.has_just_shared = due && !self.has_just_shared;
        self.shared = if self.has_just_shared { Some(now) } else { self.shared };
        self.has_just_shared
    }

    /// The relay was forgotten: what was its is others'.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(in crate::sql) fn forget_shares(&mut self) {
        self.shared = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{FULL_LOOK, LATE, Looked};

    #[test]
    fn what_is_committed_later_than_looks_go_back_is_found_by_the_next_full_one() {
        let (mut looked, begun) = (Looked::<i64> { up_to: 100_000, ..Looked::default() }, Instant::now());
        assert_eq!(looked.start(begun), 0, "the first one");
        let late = begun + FULL_LOOK.saturating_sub(Duration::from_millis(1));
        assert_eq!(looked.start(late), 100_000 - LATE, "a short one goes back for what is a little late");
        assert_eq!(looked.start(begun + FULL_LOOK), 0, "whatever was ready before what is looked at in between");
        assert_eq!(looked.start(begun + FULL_LOOK), 100_000 - LATE, "and not each time");
    }
}
