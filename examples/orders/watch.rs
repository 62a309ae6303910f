//! Counts what an endpoint tells its observer. For the report: the books are made from the file, and where both know a number
//! they are held against each other.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use hapax::{
    metrics::{Event, Metrics},
    otel::OtelMetrics,
    ports::Cause,
};

#[derive(Debug, Default)]
pub(crate) struct Watch {
    handled: AtomicU64,
    duplicates: AtomicU64,
    /// Timeouts that arrived after they had been cancelled.
    cancelled: AtomicU64,
    at_once: AtomicU64,
    failed: AtomicU64,
    dead_lettered: AtomicU64,
    swept: AtomicU64,
    /// Messages that came to an end, one way or another.
    ended: AtomicU64,
    /// Is told the same.
    telemetry: Option<OtelMetrics>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    /// Messages handled.
    pub(crate) handled: u64,
    /// Copies that were recognised.
    pub(crate) duplicates: u64,
    pub(crate) timeouts_cancelled: u64,
    /// Passes that were made again in place, since the handler had failed.
    pub(crate) at_once: u64,
    /// Deliveries whose handler has failed, and that were given again.
    pub(crate) failed: u64,
    /// Deliveries that were set aside.
    pub(crate) dead_lettered: u64,
    /// Outbox entries that the sweeper has finished.
    pub(crate) swept: u64,
}

impl Metrics for Watch {
    fn observe(&self, event: Event<'_>) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.observe(event);
        }
        let add = |counter: &AtomicU64, number: usize| counter.fetch_add(number as u64, Ordering::Relaxed);
        let (counter, number) = match event {
            Event::Handled(_) => (&self.handled, 1),
            Event::Duplicate(_) => (&self.duplicates, 1),
            Event::Dropped(..) => (&self.cancelled, 1),
            Event::DeadLettered(_) => (&self.dead_lettered, 1),
            Event::Retried(_, Cause::Failure) => (&self.at_once, 1),
            Event::Failed { .. } => (&self.failed, 1),
            Event::Swept(_, entries) => (&self.swept, entries),
            _ => return,
        };
        add(counter, number);
        if !matches!(event, Event::Retried(..) | Event::Failed { .. } | Event::Swept(..)) {
            add(&self.ended, 1);
        }
    }
}

impl Watch {
    /// One that also tells `telemetry`.
    pub(crate) fn with(telemetry: Option<OtelMetrics>) -> Self {
        Self { telemetry, ..Self::default() }
    }

    pub(crate) fn counted(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            handled: read(&self.handled),
            duplicates: read(&self.duplicates),
            timeouts_cancelled: read(&self.cancelled),
            at_once: read(&self.at_once),
            failed: read(&self.failed),
            dead_lettered: read(&self.dead_lettered),
            swept: read(&self.swept),
        }
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
