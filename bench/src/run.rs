//! One run of one side.

use std::time::Duration;

use crate::{books::Books, measure::Sample};

/// What is run.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Shape {
    /// Entities, uniform.
    pub(crate) entities: u32,
    /// Each message sends one.
    pub(crate) outgoing: bool,
    /// Messages in flight for hapax; 1: the next is sent when the last is done.
    pub(crate) in_flight: usize,
    /// Messages of a batch of the hand-written loop.
    pub(crate) batch: usize,
    /// Length of the measured window.
    pub(crate) time: Duration,
    /// Of the workload.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Run {
    pub(crate) sample: Sample,
    pub(crate) books: Books,
}

impl Shape {
    /// Statements are prepared and pages are cached before the window opens.
    pub(crate) fn warm_up(&self) -> Duration {
        self.time / 10
    }
}
