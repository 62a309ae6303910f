use std::{sync::Arc, time::Duration};

use super::Stores;
use crate::{
    metrics::Metrics,
    ports::{Clock, DeadLetters, Dispatcher, Ids},
};

/// What a manager asks of the world.
#[derive(Debug, Clone)]
pub struct Ports {
    /// Entities and dedup entries, in one store or in two.
    pub stores: Stores,
    /// Where outgoing messages go.
    pub dispatcher: Arc<dyn Dispatcher>,
    /// Where messages are set aside.
    pub dead_letters: Arc<dyn DeadLetters>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// New attempt ids.
    pub ids: Arc<dyn Ids>,
    /// Who wants to know.
    pub metrics: Arc<dyn Metrics>,
}

/// Bounds of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From before the load to the last dispatch. A pass that took longer sends nothing more: retention is counted on it
    /// (S39). Default 60 s: far above any store's time limits, far below any retention.
    pub deadline: Duration,
    /// A message given more often than this is poison and is dead-lettered without being handled (S66). Default 10: room
    /// for crashes and restarts that were not its fault.
    pub attempts_max: u32,
    /// Entries of an entity that may wait to be sent before it takes no more messages (S68). Default 512: two full
    /// passes.
    pub entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), attempts_max: 10, entries_max: 512 }
    }
}
