//! Who decides whether a pass is made once more: each cause has a budget, so that none goes round for ever.

use std::fmt;

use async_trait::async_trait;

/// Waits before another pass over the same messages, or says that it is enough.
///
/// # Promises
/// 1. *Bounded:* for every cause there is a number of tries after which the answer is [`Granted::Stop`].
#[async_trait]
pub trait Backoff: fmt::Debug + Send + Sync {
    /// Waits as fits `cause`, of which there have been `tries` in a row, and grants another try or not.
    async fn pause(&self, cause: Cause, tries: u32) -> Granted;
}

/// Why a pass has to be made again. Each has a budget of its own; only `Failure` counts against the message. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Somebody else saved the entity, or a write had an unknown outcome.
    Conflict,
    /// The handler failed.
    Failure,
    /// The work is saved, but not everything has been dispatched and marked; or so many entries of the entity wait for that
    /// that there is no room for another.
    Unsent,
    /// A store or the dead letters could not be reached.
    Unavailable,
}

/// Whether to try again. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// Another try.
    Try,
    /// It is enough.
    Stop,
}
