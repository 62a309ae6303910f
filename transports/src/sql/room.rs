//! Queues have a bound, and counting what is in them takes milliseconds. So it is counted now and then, and the bound is passed by a little.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::time::{Duration, Instant};

/// Messages are counted when this part of the most that there may be has been sent from here.
const COUNTED_PART: u64 = 100;
/// How often they are counted while there are too many.
const COUNT_AGAIN: Duration = Duration::from_secs(1);

/// Whether there is room for more messages. Counting them takes milliseconds, so it is not done for each.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Sent from here since they were counted.
    pub(super) sent: AtomicU64,
    pub(super) full: AtomicBool,
    counted: Mutex<Option<Instant>>,
}

impl Room {
    /// Whether it is the caller's turn to count.
    pub(super) fn wants_count(&self, messages_max: u64) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let wants = counted.is_none_or(|counted| {
            let sent = self.sent.load(Ordering::Relaxed) > messages_max / COUNTED_PART;
            sent || (self.full.load(Ordering::Relaxed) && counted.elapsed() >= COUNT_AGAIN)
        });
        if wants {
            *counted = Some(Instant::now());
            self.sent.store(0, Ordering::Relaxed);
        }
        wants
    }
}
