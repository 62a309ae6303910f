//! What an audit has found so far.

use std::sync::PoisonError;

use super::look::Found;
use crate::{
    metrics::{Backlog, Invariant, Violation},
    sync::{Mutex, MutexGuard},
};

const INVARIANTS: usize = Invariant::ALL.len();

/// How often an invariant was looked at, and how often it did not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditCount {
    /// Looks at one message or one entity, of those in which the invariant had something to say.
    pub looked_at: u64,
    /// Those that found it not to hold; the same message's counts once.
    pub violations: u64,
}

/// What the audit of an endpoint has found since the process began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditReport {
    /// Looks at an entity.
    pub looks: u64,
    /// Of these, looks at one that was saved all the time, or that was read from a replica: they say less.
    pub overtaken: u64,
    /// Rounds that a store has cut short by an error.
    pub failed: u64,
    /// Entities that are watched now.
    pub watched: usize,
    /// What waited to be sent among the entities with old outbox entries, as far as they were looked at one after the other: with how
    /// old the oldest is. It is no violation: see [`Event::Waiting`](crate::metrics::Event::Waiting) for all of it.
    pub waiting: Backlog,
    /// Entries among these that were over and not cleaned up yet. It is none either, as long as they go.
    pub left_over: usize,
    /// The violation that was found last. All are logged as errors, and told to the endpoint's observer.
    pub last: Option<Violation>,
    counts: [AuditCount; INVARIANTS],
}

impl AuditReport {
    /// Of one invariant.
    #[must_use]
    pub fn of(&self, invariant: Invariant) -> AuditCount {
        let index = Invariant::ALL.iter().position(|of| *of == invariant);
        index.and_then(|index| self.counts.get(index)).copied().unwrap_or_default()
    }

    /// Of all invariants, in the order of [`Invariant::ALL`].
    pub fn by_invariant(&self) -> impl Iterator<Item = (Invariant, AuditCount)> + '_ {
        Invariant::ALL.into_iter().zip(self.counts)
    }

    /// How often an invariant was looked at.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.counts.iter().map(|count| count.looked_at).sum()
    }

    /// How many violations there were: none, if the promise holds of all that was looked at.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.counts.iter().map(|count| count.violations).sum()
    }
}

/// A report in the making.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<AuditReport>);

impl Tally {
    fn locked(&self) -> MutexGuard<'_, AuditReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self) -> AuditReport {
        self.locked().clone()
    }

    pub(super) fn looked(&self, is_fresh: bool) {
        let mut report = self.locked();
        report.looks += 1;
        report.overtaken += u64::from(!is_fresh);
    }

    pub(super) fn checked(&self, invariant: Invariant, violation: Option<&Violation>) {
        let mut report = self.locked();
        let index = Invariant::ALL.iter().position(|of| *of == invariant);
        if let Some(count) = index.and_then(|index| report.counts.get_mut(index)) {
            count.looked_at += 1;
            count.violations += u64::from(violation.is_some());
        }
        if let Some(violation) = violation {
            report.last = Some(violation.clone());
        }
    }

    pub(super) fn watched(&self, entities: usize) {
        self.locked().watched = entities;
    }

    pub(super) fn found<'a>(&self, all: impl Iterator<Item = &'a Found>) {
        let (mut waiting, mut left_over) = (Backlog::default(), 0);
        for found in all {
            waiting.entities += found.waiting.entities;
            waiting.entries += found.waiting.entries;
            waiting.oldest = waiting.oldest.max(found.waiting.oldest);
            left_over += found.left_over;
        }
        let mut report = self.locked();
        (report.waiting, report.left_over) = (waiting, left_over);
    }

    pub(super) fn failed(&self) {
        self.locked().failed += 1;
    }
}
