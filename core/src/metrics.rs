//! What an operator may want to count.

use std::fmt;

use crate::{
    HandlerError,
    ids::{EntityKey, MessageId},
    ports::Cause,
};

/// Observes an endpoint. Called from the hot path: it must be quick and must not block.
pub trait Metrics: fmt::Debug + Send + Sync {
    /// Something happened.
    fn observe(&self, event: Event<'_>);
}

/// What happened to which entity.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A message's effect is saved, everything is sent and marked; by the pass that handled it, or by one that finished
    /// what an earlier one had saved.
    Handled(&'a EntityKey),
    /// A copy was recognised and dropped.
    Duplicate(&'a EntityKey),
    /// A message was dropped by a rule; the text says which.
    Dropped(&'a EntityKey, &'static str),
    /// A message was set aside.
    DeadLettered(&'a EntityKey),
    /// An outgoing message that can never be sent was set aside.
    Parked(&'a EntityKey),
    /// A message's handler has failed; it will be given again.
    Failed {
        /// Its entity.
        key: &'a EntityKey,
        /// Which message.
        message_id: &'a MessageId,
        /// How often it has been given.
        attempt: u32,
        /// What its handler said.
        error: &'a HandlerError,
    },
    /// A pass has to be made again.
    Retried(&'a EntityKey, Cause),
    /// Work is saved but could not be sent within its budget; the sweeper has it now.
    LeftToSweeper(&'a EntityKey),
    /// The sweeper has finished this many entries.
    Swept(&'a EntityKey, usize),
    /// The sweeper could not finish entries, for this reason. They stay, and the next sweep tries again.
    SweepFailed(&'a EntityKey, &'a str),
    /// A message was seen, yet its entity holds an entry of another attempt: retention was shorter than the longest
    /// redelivery, and the message has been handled twice.
    RetentionBreached(&'a EntityKey),
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {
    fn observe(&self, _event: Event<'_>) {}
}
