//! Evidence from a transport that no copy of a message is left in a queue: what an eviction needs that does not trust in time.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::TransportError;

/// Shows that no copy of a message is left in an endpoint's queue: a row that is gone once it is settled, an offset that is
/// committed. What the broker itself might still hold or give again counts; what a sender may still send does not.
///
/// # Promises
/// 1. *Behind all:* every copy that was in the queue before a call of `end` began (given, waiting, or not due yet) is in front of the mark.
/// 2. *Gone for good:* once `passed` has said yes, no copy in front of the mark is given again, to anybody, ever, unless a person rewinds
///    the queue.
/// 3. *In the end:* when every copy in front of the mark has been settled for good, `passed` says yes sooner or later, whatever comes behind.
/// 4. *Any process:* a mark holds for every process that receives from the queue, and after a restart.
///
/// # Errors
/// A call that fails has shown nothing: no mark, and not that anything is gone. What an `end` may have written is no message.
#[async_trait]
pub trait Marks: fmt::Debug + Send + Sync {
    /// A mark behind all that is in the queue now.
    async fn end(&self) -> Result<Mark, TransportError>;

    /// Whether everything in front of `mark` is gone for good.
    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError>;
}

/// A place in a queue, meaningful to the transport that gave it: a row's number, or an offset for each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(Arc<[u64]>);

impl Mark {
    /// A place that is one number, or one in each part of the queue.
    #[must_use]
    pub fn new(places: impl Into<Arc<[u64]>>) -> Self {
        Self(places.into())
    }

    /// The numbers.
    #[must_use]
    pub fn places(&self) -> &[u64] {
        &self.0
    }
}
