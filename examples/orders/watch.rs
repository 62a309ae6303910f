//! Counts what an endpoint tells its observer. For the report only: the books are made from the file.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use hapax::metrics::{Event, Metrics};

#[derive(Debug, Default)]
pub(crate) struct Watch {
    duplicates: AtomicU64,
    /// Timeouts that arrived after they had been cancelled.
    cancelled: AtomicU64,
    /// Messages that came to an end, one way or another.
    ended: AtomicU64,
}

impl Metrics for Watch {
    fn observe(&self, event: Event<'_>) {
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Handled(_) | Event::DeadLettered(_) => {}
            Event::Duplicate(_) => drop(add(&self.duplicates)),
            Event::Dropped(..) => drop(add(&self.cancelled)),
            _ => return,
        }
        add(&self.ended);
    }
}

impl Watch {
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    pub(crate) fn timeouts_cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Waits until nothing has come to an end for `quiet`.
    pub(crate) async fn stuck(&self, quiet: Duration) {
        let mut before = self.ended.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(quiet).await;
            let now = self.ended.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    }
}
