//! The door of the shop: lets so many orders in at a time, so that none waits in a queue until its payment is overdue.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use indicatif::ProgressBar;
use tokio::sync::Semaphore;

/// Counts orders in and out. Handed to handlers as a hint only: a handler may run more than once and may run without being
/// saved, so the same order may be said to have left several times, or too early. Nothing but the pace depends on it.
#[derive(Clone)]
pub(crate) struct Door(Arc<Inner>);

struct Inner {
    room: Semaphore,
    left: Mutex<HashSet<String>>,
    bar: ProgressBar,
}

impl Door {
    /// For at most `room` orders at a time.
    #[cfg(test)]
    pub(crate) fn new(room: usize) -> Self {
        Self::with_bar(room, ProgressBar::hidden())
    }

    /// The same, with a bar that shows how many have left.
    pub(crate) fn with_bar(room: usize, bar: ProgressBar) -> Self {
        Self(Arc::new(Inner { room: Semaphore::new(room), left: Mutex::default(), bar }))
    }

    /// Waits until there is room for one more.
    pub(crate) async fn enter(&self) {
        if let Ok(permit) = self.0.room.acquire().await {
            permit.forget();
        }
    }

    /// The order is decided, as far as its handler knows.
    pub(crate) fn left(&self, order: &str) {
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.insert(order.to_owned()) {
            self.0.room.add_permits(1);
            self.0.bar.inc(1);
        }
    }

    /// Takes the bar away.
    pub(crate) fn close(&self) {
        self.0.bar.finish_and_clear();
    }
}
