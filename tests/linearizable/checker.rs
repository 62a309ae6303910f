//! Whether calls that overlapped can have happened one after the other, each at some moment while it was under way.
//!
//! The search of Wing and Gong, with Lowe's memory of where it has been: from the steps that no other one has to precede,
//! each is tried as the next; a set of steps that was reached before with the same data is not searched again. A step
//! that changes nothing is taken at once, for it is in nobody's way.
//!
//! Stateright's tester is not used: it remembers nothing, which takes hours for a few dozen calls; it lets nobody go on
//! after an unknown outcome; and it asks a model for the answer of an unanswered save, while the version is the store's
//! to choose and is learnt only by a later load.

use std::collections::{BTreeSet, HashSet};

use crate::reference::{Content, Key, Mark, Message, Number, Reference, Row};

/// A part of a call that happens at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) invoked: u64,
    /// `None`: nobody knows whether it has happened or will; it may at any time from `invoked` on.
    pub(crate) returned: Option<u64>,
    /// A step of the same call that comes before it.
    pub(crate) after: Option<usize>,
    pub(crate) act: Act,
}

/// What was done, and what was answered.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Row(Option<(Number, Content)>),
    Version(Option<Number>),
    Marked(Message, Option<u8>),
    Insert(Mark),
    Save { expected: Option<Number>, content: Content, processed: Vec<Mark>, told: Told },
}

/// What was told of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    At(Number),
    Conflict,
    Unknown,
}

impl Act {
    /// Whether it has changed nothing, whenever it was.
    pub(crate) const fn is_read(&self) -> bool {
        match self {
            Self::Row(_) | Self::Version(_) | Self::Marked(..) => true,
            Self::Save { told, .. } => matches!(told, Told::Conflict),
            Self::Insert(_) => false,
        }
    }
}

/// More than any history here needs: one that is beyond is too long to be checked.
const PLACES_MAX: usize = 1_000_000;

/// Whether the steps, all of one entity and its messages, can have happened one after the other.
///
/// # Panics
/// When there are too many to tell.
pub(crate) fn is_linearizable(key: Key, steps: &[Step]) -> bool {
    assert!(steps.len() <= 128, "{} steps in one history: draw shorter rounds", steps.len());
    let told = steps.iter().filter_map(|step| match step.act {
        Act::Save { told: Told::At(version), .. } => Some(version),
        _ => None,
    });
    let told: Vec<Number> = told.collect();
    let versions: BTreeSet<Number> = told.iter().copied().collect();
    if versions.len() < told.len() {
        return false; // A version was given twice.
    }
    Search { key, steps, versions, been: HashSet::new() }.goes_on(0, Reference::default())
}

struct Search<'s> {
    key: Key,
    steps: &'s [Step],
    /// Those that savers were told.
    versions: BTreeSet<Number>,
    been: HashSet<(u128, Reference)>,
}

impl Search<'_> {
    /// Whether the steps that are not in `done` can follow.
    fn goes_on(&mut self, mut done: u128, state: Reference) -> bool {
        loop {
            let idle = self.next(done).find(|(_, step)| {
                step.returned.is_some() && self.take(&step.act, &state).is_some_and(|after| after == state)
            });
            match idle {
                Some((index, _)) => done |= 1 << index,
                None => break,
            }
        }
        if self.steps.iter().enumerate().all(|(index, step)| done & 1 << index != 0 || step.returned.is_none()) {
            return true;
        }
        if !self.been.insert((done, state.clone())) {
            return false;
        }
        assert!(self.been.len() < PLACES_MAX, "the history is too long: draw shorter rounds");
        let next: Vec<(u128, Reference)> = self
            .next(done)
            .filter_map(|(index, step)| Some((done | 1 << index, self.take(&step.act, &state)?)))
            .collect();
        next.into_iter().any(|(done, state)| self.goes_on(done, state))
    }

    /// Steps that may come next: nothing that is left had returned before they were invoked.
    fn next(&self, done: u128) -> impl Iterator<Item = (usize, &Step)> {
        let is_left = move |index: usize| done & 1 << index == 0;
        let left = self.steps.iter().enumerate().filter(move |(index, _)| is_left(*index));
        let first_return = left.clone().filter_map(|(_, step)| step.returned).min().unwrap_or(u64::MAX);
        left.filter(move |(_, step)| step.invoked <= first_return && step.after.is_none_or(|after| !is_left(after)))
    }

    /// The data after `act`; `None` when it cannot have been answered so.
    fn take(&self, act: &Act, state: &Reference) -> Option<Reference> {
        let stored = state.rows.get(&self.key);
        let mut after = state.clone();
        match act {
            Act::Row(None) | Act::Version(None) => stored.is_none().then_some(after),
            Act::Row(Some((version, content))) => {
                let stored = stored.filter(|row| row.content == *content)?;
                after.rows.insert(self.key, self.told(stored, *version)?);
                Some(after)
            }
            Act::Version(Some(version)) => {
                after.rows.insert(self.key, self.told(stored?, *version)?);
                Some(after)
            }
            Act::Marked(message, attempt) => (state.marks.get(message) == attempt.as_ref()).then_some(after),
            Act::Insert(mark) => {
                after.insert(&[*mark]);
                Some(after)
            }
            Act::Save { expected, content, processed, told } => {
                if let (Some(row), Some(expected)) = (stored, expected)
                    && let Some(row) = self.told(row, *expected)
                {
                    after.rows.insert(self.key, row);
                }
                let version = if let Told::At(version) = told { Some(*version) } else { None };
                let row = Row { version, content: content.clone() };
                let wins = after.save(self.key, *expected, row, processed);
                match told {
                    Told::At(_) | Told::Unknown => wins.then_some(after),
                    // Of a version that was never told, it may have been another; and a mark of another attempt may be the race
                    // that was lost.
                    Told::Conflict => {
                        let other =
                            |mark: &Mark| state.marks.get(&mark.message).is_some_and(|known| *known != mark.attempt);
                        let may_lose = stored.is_some_and(|row| row.version.is_none()) || processed.iter().any(other);
                        (!wins || may_lose).then(|| state.clone())
                    }
                }
            }
        }
    }

    /// The row at that version: its own, or one that nobody has been told of.
    fn told(&self, row: &Row, version: Number) -> Option<Row> {
        let is_it = match row.version {
            Some(own) => own == version,
            None => !self.versions.contains(&version),
        };
        is_it.then(|| Row { version: Some(version), content: row.content.clone() })
    }
}
