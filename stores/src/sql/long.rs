//! What is remembered of dedup entries that are gone, as far as all databases agree.

use hapax_core::{
    ids::{DedupKey, EndpointName},
    ports::{Keep, Passed},
};

use super::rows::millis_of;

/// Entries of numbers that are folded in one transaction: some hundredths of a second.
pub(super) const FOLDED_AT_ONCE: usize = 4096;
/// Entries that are put elsewhere in one transaction. They have replies, so they are fewer.
pub(super) const MOVED_AT_ONCE: usize = 500;
/// Generations that may wait to be shown each by itself: of more, the newest two become one. So a check looks into few tables, and the
/// oldest goes when it may, however far behind the others are.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const WAITING_MAX: usize = 2;

/// What an endpoint asks for beside a retention.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) endpoint: EndpointName,
    /// In milliseconds.
    pub(super) keys: i64,
    pub(super) fold: bool,
    pub(super) passed: Passed,
}

impl Asked {
    pub(super) fn of(keep: &Keep<'_>) -> Self {
        let Keep { endpoint, keys, fold, passed, .. } = keep;
        Self { endpoint: (*endpoint).clone(), keys: millis_of(*keys), fold: *fold, passed: *passed }
    }

    /// Whether a program that knows no long memory would do the same.
    pub(super) fn is_nothing(&self) -> bool {
        self.keys == 0 && !self.fold && self.passed == Passed::Unasked
    }

    /// `None`: it has to show nothing. `Some(None)`: it has shown nothing yet.
    pub(super) const fn shown(&self) -> Option<Option<i64>> {
        match self.passed {
            Passed::Unasked => None,
            Passed::Waits => Some(None),
            Passed::Until(moment) => Some(Some(moment.0)),
        }
    }
}

/// Numbers that are over and follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) first: DedupKey,
    pub(super) last: DedupKey,
}

impl Run {
    /// The last key at which another one begins that touches it.
    pub(super) fn touches(&self) -> DedupKey {
        self.last.next_number().unwrap_or(self.last)
    }

    /// Those of `keys`, in any order.
    pub(super) fn all(keys: impl IntoIterator<Item = DedupKey>) -> Vec<Self> {
        Self::join(keys.into_iter().map(|key| Self { first: key, last: key }).collect())
    }

    /// The same keys in as few runs as there can be, in their order.
    fn join(mut runs: Vec<Self>) -> Vec<Self> {
        runs.sort_unstable();
        let mut joined: Vec<Self> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(before) if run.first <= before.touches() => before.last = before.last.max(run.last),
                _ => joined.push(run),
            }
        }
        joined
    }
}

/// What becomes of the runs that are stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Joined {
    /// Those that are new, or longer than before.
    pub(super) put: Vec<Run>,
    /// First keys of those that are in others now.
    pub(super) gone: Vec<DedupKey>,
}

impl Joined {
    /// `new` ones beside those that are stored: of these, all that `new` ones overlap or touch.
    pub(super) fn of(new: &[Run], stored: &[Run]) -> Self {
        let put = Run::join([new, stored].concat());
        let begins = |first: &DedupKey| put.binary_search_by(|run| run.first.cmp(first)).is_ok();
        let gone = stored.iter().map(|run| run.first).filter(|first| !begins(first)).collect();
        Self { put: put.into_iter().filter(|run| !stored.contains(run)).collect(), gone }
    }
}

#[cfg(test)]
mod tests {
    use super::{DedupKey, Joined, Run};

    fn key(sequence: u8, number: u64) -> DedupKey {
        let mut bytes = [sequence; DedupKey::BYTES];
        bytes[..4].copy_from_slice(&DedupKey::NUMBERED);
        bytes[16..].copy_from_slice(&number.to_be_bytes());
        DedupKey::from_bytes(bytes)
    }

    fn run(sequence: u8, first: u64, last: u64) -> Run {
        Run { first: key(sequence, first), last: key(sequence, last) }
    }

    #[test]
    fn runs_join_those_that_they_touch_and_no_others() {
        let keys =
            [(1, 4), (1, 2), (1, 3), (2, 5), (1, u64::MAX), (2, 0)].map(|(sequence, number)| key(sequence, number));
        let new = Run::all(keys);
        let expected = [run(1, 2, 4), run(1, u64::MAX, u64::MAX), run(2, 0, 0), run(2, 5, 5)];
        assert_eq!(new, expected, "the end of one sequence and the beginning of the next are strangers");

        let stored = [run(1, 0, 1), run(1, 3, 3), run(1, 5, 9), run(2, 4, 8)];
        let joined = Joined::of(&new, &stored);
        assert_eq!(joined.put, [run(1, 0, 9), run(1, u64::MAX, u64::MAX), run(2, 0, 0)]);
        assert_eq!(joined.gone, [key(1, 3), key(1, 5)]);
        assert_eq!(Joined::of(&[run(2, 5, 6)], &stored[3..]), Joined::default(), "it was known");
    }
}
