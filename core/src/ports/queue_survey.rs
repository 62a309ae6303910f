//! What tools and pages may ask a transport about a queue, without taking a message from it. What they may ask a store is in `survey`.

use std::fmt;

use async_trait::async_trait;

use super::{Answer, Count, TransportError};
use crate::{
    ids::{EndpointName, MessageId},
    time::Timestamp,
};

/// What a person can be shown of an endpoint's queue. For tools and pages; no promise of hapax rests on it.
///
/// # Promises
/// 1. *Counted:* `queue` counts what waits for the endpoint, is under a lease there, put off or not due, and nothing of others; what it has
///    acknowledged is not in it. A broker that leaves some of it out tells [at least](Count::at_least) so many. Brokers tell what was a
///    moment ago, and those that count about right (SQS; Kafka, where offsets at which nothing is any more are counted) about so many.
/// 2. *Found:* `queued` shows each copy of the message that is in this queue, and no other message.
/// 3. *Read only:* nothing is given, and no lease begins or ends.
/// 4. *Honest:* what the transport cannot tell is [`Answer::Unknown`] with the reason.
#[async_trait]
pub trait QueueSurvey: fmt::Debug + Send + Sync {
    /// What is in the queue of `endpoint`, counted up to `limit` where counting costs.
    ///
    /// # Errors
    /// [`TransportError`] when the broker cannot be reached.
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError>;

    /// Copies of one message in the queue of `endpoint`. It may look through the whole queue, up to `limit` messages.
    ///
    /// # Errors
    /// [`TransportError`] when the broker cannot be reached.
    async fn queued(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        limit: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError>;
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Messages in it.
    pub messages: Count,
    /// Of these, those under a lease now: somebody is at work at them, or was until a moment ago.
    pub leased: Answer<Count>,
}

/// A copy of a message that is in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedMessage {
    /// How often it has been given so far.
    pub attempts: u32,
    /// Somebody has it, unless he has died.
    pub leased: bool,
    /// When it is given next: when it is due, when its rest or its lease ends.
    pub available: Timestamp,
    /// When it was sent.
    pub sent: Timestamp,
}
