//! What is known of each step that a pass asks of the stores.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

use crate::ids::EntityKey;

/// The first try after it has opened; doubled for each further one that fails.
pub(super) const PROBE_FIRST: Duration = Duration::from_millis(50);
/// Longest rest between two tries: as long as an outage goes unnoticed to have ended.
pub(super) const PROBE_LONGEST: Duration = Duration::from_secs(5);

/// What a pass asks of the stores, in its order: whoever has saved or marked has read before. What is marked may have been saved by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// To read entity and dedup entries; or, for what is to be set aside, to take its letter.
    Read,
    /// To take the entity with what it has to send.
    Save,
    /// To take the dedup entry, when all is sent.
    Mark,
    /// Of an inbox, which is a database of its own: all that a transaction asks of it.
    Inbox,
}

impl Step {
    pub(super) const ALL: [Self; 4] = [Self::Read, Self::Save, Self::Mark, Self::Inbox];

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The bits of what has been taken where this was.
    pub(super) const fn with_reading(self) -> u8 {
        match self {
            Self::Inbox => self.bit(),
            _ => self.bit() | Self::Read.bit(),
        }
    }

    pub(super) const fn trouble(self) -> &'static str {
        match self {
            Self::Read => "the stores cannot be reached",
            Self::Save => "the entity store takes no writes",
            Self::Mark => "the dedup store takes no entries, of messages that are handled and sent",
            Self::Inbox => "the database of an inbox cannot be reached",
        }
    }
}

/// A step fails or is open, so that an answer changes more than its bit. Changed under the lock.
pub(super) const TROUBLED: u8 = 1 << Step::ALL.len();

#[derive(Debug, Default)]
pub(super) struct State {
    /// By [`Step`].
    pub(super) steps: [Watched; Step::ALL.len()],
    /// How many wait for their turn to try.
    pub(super) waiting: usize,
    /// Tries since it has opened.
    pub(super) probes: u32,
    /// When the last was made, or it has opened.
    pub(super) tried: Option<Instant>,
}

/// How one step goes.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Entities whose passes have failed at it since one took it.
    pub(super) failing: HashSet<EntityKey>,
    /// When it was found out last that one had taken it.
    pub(super) answered: Option<Instant>,
    /// It keeps the circuit open, and was not taken last at this time.
    pub(super) open: Option<Instant>,
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        self.steps.iter().any(|watched| watched.open.is_some())
    }

    pub(super) fn is_troubled(&self) -> bool {
        self.is_open() || self.steps.iter().any(|watched| !watched.failing.is_empty())
    }

    /// When the next one may try.
    pub(super) fn next_try(&self) -> Instant {
        const DOUBLINGS_MAX: u32 = 10;
        let rest = PROBE_FIRST.saturating_mul(1 << self.probes.min(DOUBLINGS_MAX)).min(PROBE_LONGEST);
        self.tried.unwrap_or_else(Instant::now) + rest
    }

    /// Lets go of what nobody finds out about any more. Whether it has closed by that.
    pub(super) fn lapse(&mut self, after: Duration) -> bool {
        if self.waiting > 0 || !self.is_open() {
            return false;
        }
        for watched in &mut self.steps {
            watched.open = watched.open.filter(|failed| failed.elapsed() <= after);
        }
        !self.is_open()
    }
}
