//! One run of one side: what it is asked to do, and what came of it.

use std::time::Duration;

use crate::{
    books::Books,
    measure::Sample,
    workload::{Ids, Workload},
};

/// What is run.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Shape {
    /// Entities, uniform.
    pub(crate) entities: u32,
    /// Share of deliveries that repeat an earlier id.
    pub(crate) repeats: f64,
    /// Of the messages.
    pub(crate) ids: Ids,
    /// Each message sends one.
    pub(crate) outgoing: bool,
    /// Messages in flight for hapax; 1: the next is sent when the last is done.
    pub(crate) in_flight: usize,
    /// Messages of a batch of the hand-written loop.
    pub(crate) batch: usize,
    /// Dedup entries that hapax has beforehand.
    pub(crate) entries: u64,
    /// Deliveries that wait beforehand, in a durable queue in the same file; 0: they come from within the process.
    pub(crate) queued: u64,
    /// Messages that are in the queue, or in a schedule, beforehand and are not due before long after the run.
    pub(crate) pending: u64,
    /// Length of the measured window.
    pub(crate) time: Duration,
    /// Deliveries after which the window ends in any case.
    pub(crate) deliveries_max: u64,
    /// Of the workload.
    pub(crate) seed: u64,
    /// Each message is timed from its receipt to its settlement; it costs a little.
    pub(crate) timed: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct Run {
    pub(crate) sample: Sample,
    pub(crate) books: Books,
}

impl Shape {
    /// Statements are prepared and pages are cached before the window opens.
    pub(crate) fn warm_up(&self) -> Duration {
        self.time / 10
    }

    /// The stream of deliveries.
    pub(crate) fn workload(&self) -> Workload {
        Workload::new(self.entities, self.seed).repeats(self.repeats).ids(self.ids)
    }
}
