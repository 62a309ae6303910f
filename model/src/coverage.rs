//! A run without a conflict has shown nothing about conflicts. So what a run has met is counted, and one that has missed something is void.

use std::{collections::BTreeMap, fmt};

/// Something that a run must have met, or it has shown nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Seen {
    /// A message was handled for the first time.
    Handled,
    /// A save lost its race.
    Conflict,
    /// A message was recognised and dropped.
    DedupHit,
    /// A message whose effect was saved by an earlier pass was finished from its entry.
    Resumed,
    /// A save of another message removed an entry that was over.
    Helped,
    /// The sweeper finished an entry.
    Swept,
    /// The dispatch budget was spent; the sweeper has the rest.
    LeftToSweeper,
    /// A message was set aside.
    DeadLettered,
    /// An outgoing message that can never be sent was set aside.
    OutgoingDeadLettered,
    /// A handler failed or panicked, and was run again.
    HandlerFailed,
    /// Several messages were handled in one pass.
    PassOfSeveral,
    /// A call was refused before it wrote.
    Refused,
    /// A call was answered with an unknown outcome after it had taken effect.
    UnknownApplied,
    /// A call was answered with an unknown outcome and never took effect.
    UnknownNotApplied,
    /// A write took effect after its caller had been told that its outcome is unknown.
    LandedLate,
    /// A write won and its caller was told that it lost.
    OwnConflict,
    /// A clean-up was left for later, and never made by the store.
    CleanUpLeft,
    /// A load was answered with an older version.
    StaleLoad,
    /// A task never got an answer, and was dropped.
    Crash,
    /// A task was dropped at some await.
    Dropped,
    /// A lease ran out while its holder was alive.
    LeaseExpired,
    /// A settlement with a lost lease.
    LeaseLost,
    /// The same outgoing message was sent more than once.
    SentAgain,
    /// A timeout was handled.
    TimeoutHandled,
    /// A timeout came that its saga did not wait for any more.
    TimeoutCancelled,
    /// A message came for a saga that was complete.
    Completed,
}

impl Seen {
    /// Everything there is.
    pub const ALL: &'static [Self] = &[
        Self::Handled,
        Self::Conflict,
        Self::DedupHit,
        Self::Resumed,
        Self::Helped,
        Self::Swept,
        Self::LeftToSweeper,
        Self::DeadLettered,
        Self::OutgoingDeadLettered,
        Self::HandlerFailed,
        Self::PassOfSeveral,
        Self::Refused,
        Self::UnknownApplied,
        Self::UnknownNotApplied,
        Self::LandedLate,
        Self::OwnConflict,
        Self::CleanUpLeft,
        Self::StaleLoad,
        Self::Crash,
        Self::Dropped,
        Self::LeaseExpired,
        Self::LeaseLost,
        Self::SentAgain,
        Self::TimeoutHandled,
        Self::TimeoutCancelled,
        Self::Completed,
    ];
}

/// How often each thing was met.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Seen, u64>);

impl Coverage {
    /// Counts `seen`.
    pub fn count(&mut self, seen: Seen) {
        *self.0.entry(seen).or_default() += 1;
    }

    /// How often `seen` was met.
    #[must_use]
    pub fn of(&self, seen: Seen) -> u64 {
        self.0.get(&seen).copied().unwrap_or_default()
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        for (seen, times) in &other.0 {
            *self.0.entry(*seen).or_default() += times;
        }
    }

    /// What was never met: a run that has any of it is void, not green.
    #[must_use]
    pub fn missing(&self) -> Vec<Seen> {
        Seen::ALL.iter().copied().filter(|seen| self.of(*seen) == 0).collect()
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}
