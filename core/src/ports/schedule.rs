//! Where messages wait that are not due yet, for transports that cannot hold them back. A message may be given twice from here, too.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::{Receipt, StoreError};
use crate::{
    envelope::Outgoing,
    ids::{EndpointName, MessageId},
};

/// Keeps outgoing messages until they are due: for transports that hold none back, or not for so long.
///
/// Whether a saga still waits for a timeout is decided by its entity when the timeout comes, so nothing rests on
/// [`cancel`](Self::cancel). And whoever takes a message may die before it has said that it is done: then it is taken and
/// sent again under the same id, and the endpoint that it goes to recognises it.
///
/// # Promises
/// 1. *Kept whole:* once `put` has returned, the message is given once it is due, with its destination, id, headers and body as they
///    were put; one without a due time at once; to the endpoint that put it and to no other.
/// 2. *Once per message:* putting a message of which there is one already (same endpoint, message id and destination) is success and
///    changes nothing, not even the due time.
/// 3. *Not early:* a message is not given earlier than `within` before its due time, by the schedule's own clock; the earliest
///    first, and at a time `max` at most, of `bytes_max` together unless the first alone has more.
/// 4. *Hidden under a lease:* while a lease lasts, the message is not given to others. When it has ended, it is given again.
/// 5. *Done alone:* `done` removes what its receipts stand for and nothing else. A receipt whose message somebody else has been
///    given since is lost, and changes nothing.
/// 6. *Cancelled:* once `cancel` has returned, the messages are given to nobody any more, and all others still are. It tells how
///    many were there. Cancelled ones can be put again. What was given before may still be sent.
/// 7. *Told when:* `next` tells when the earliest message becomes due, or for how long it has been, given to somebody or not.
///
/// # Errors
/// A `put`, `cancel` or `done` with an unknown outcome may have taken effect for some of the messages or for all: repeating it is
/// harmless, but a `cancel` does not count again what it had removed. A `take_due` with an unknown outcome may have begun leases, which
/// run out.
#[async_trait]
pub trait Schedule: fmt::Debug + Send + Sync {
    /// What this schedule can do.
    fn schedule_capabilities(&self) -> ScheduleCapabilities;

    /// Keeps `messages` for `endpoint` until they are due.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](super::ErrorKind::TooLarge) for a message beyond [`ScheduleCapabilities::message_bytes_max`]: of that
    /// call nothing is kept.
    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError>;

    /// Removes what `endpoint` has put under these ids, wherever it was to go. How many messages were there.
    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError>;

    /// Gives what is due, under leases.
    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError>;

    /// Removes what has been sent.
    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError>;

    /// When the earliest message becomes due; `None` where there is none. By the schedule's own clock.
    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError>;
}

/// How much is taken of what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take {
    /// Also what becomes due within this.
    pub within: Duration,
    /// So many messages at most.
    pub max: usize,
    /// Of so many bytes together at most, as [`Envelope::size`](crate::envelope::Envelope::size) counts; but one message, however
    /// large. A schedule may count more than that for each.
    pub bytes_max: usize,
    /// How long they are given to nobody else.
    pub lease: Duration,
}

/// A message that is due, under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The message as it was put.
    pub outgoing: Outgoing,
    /// Proof of the lease.
    pub receipt: Receipt,
}

/// When the earliest message of a schedule is due. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After this time.
    In(Duration),
    /// It has been due for so long, and is not done.
    Overdue(Duration),
}

/// What a schedule can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleCapabilities {
    /// Name for messages, for example `memory`.
    pub name: &'static str,
    /// Largest message, in bytes as [`Envelope::size`](crate::envelope::Envelope::size) counts.
    pub message_bytes_max: usize,
    /// Messages survive the process.
    pub durable: bool,
}
