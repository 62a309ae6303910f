//! Messages that wait until what is stored for them can be read: an operator hears of them, and not of each at each of its tries.

use std::{mem, sync::PoisonError, time::Duration};

use tokio::time::Instant;

use crate::{
    ids::{EntityKey, MessageId},
    sync::Mutex,
};

/// So long after one was warned of, others are not: while two versions work side by side thousands may wait, and each comes again within
/// seconds.
const QUIET: Duration = Duration::from_secs(60);

/// Warns of the first of an endpoint, and then now and then.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<Warned>);

/// When somebody was warned of one of many.
#[derive(Debug, Default)]
pub(super) struct Warned {
    /// When it was warned last.
    at: Option<Instant>,
    /// So many came since, and were not warned of.
    untold: u64,
}

impl Unreadable {
    /// One was given back.
    pub(super) fn came(&self, entity: &EntityKey, message_id: &MessageId, why: &str) {
        let untold = self.0.lock().unwrap_or_else(PoisonError::into_inner).came(Instant::now());
        if let Some(untold) = untold {
            tracing::warn!(
                %entity, %message_id, why, untold,
                "waits until what is stored can be read: by a version with a default for a new field or an upcast, or once it is mended; \
                 others that wait are told of once a minute, and `untold` counts their tries since"
            );
        }
    }
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
