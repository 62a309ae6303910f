//! Time and new ids come from outside, so that the model decides both and a run can be had again.

use std::fmt;

use async_trait::async_trait;

use crate::{
    envelope::Outgoing,
    ids::AttemptId,
    time::{Monotonic, Timestamp},
};

/// Tells the time. A port, and awaited like one, so that a model decides what time it is.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync {
    /// Both clocks at once: the wall clock, for what is written down and never for deciding, and one that never goes
    /// back and is not stepped, for deadlines.
    async fn now(&self) -> (Timestamp, Monotonic);

    /// The clock that never goes back, alone.
    async fn monotonic(&self) -> Monotonic;
}

/// Makes ids that nobody else makes.
#[async_trait]
pub trait Ids: fmt::Debug + Send + Sync {
    /// A new attempt id, never given before by anyone.
    async fn attempt(&self) -> AttemptId;

    /// Whether what is sent is to be numbered. Constant for the life of the port.
    fn numbers(&self) -> bool;

    /// Gives each of `outgoing` a number of its sequence that no other message has, was given before, or will be: of one that repeats,
    /// receivers would take the second message for a copy of the first and lose it. One that is given none is known by its id.
    async fn number(&self, outgoing: &mut [Outgoing]);
}
