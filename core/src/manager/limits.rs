//! What a manager is given beside its saga: the ports it calls, and the bounds of one pass.

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

/// Bounds of a pass. An endpoint takes them from its [`Settings`](crate::endpoint::Settings).
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// As [`Settings::deadline`](crate::endpoint::Settings::deadline). Default 60 s.
    pub deadline: Duration,
    /// As [`Recoverability::poison_above`](crate::deliver::Recoverability::poison_above). Default 10.
    pub poison_above: u32,
    /// As [`Settings::entries_max`](crate::endpoint::Settings::entries_max). Default 512.
    pub entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), poison_above: 10, entries_max: 512 }
    }
}
