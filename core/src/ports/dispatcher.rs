//! The way out: what is handed over may be handed over again under the same id, and for its size or address it is refused before a save or never.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::TransportError;
use crate::envelope::Outgoing;

/// Hands outgoing messages to a transport.
///
/// # Promises
/// 1. *Confirmed:* `Ok` for a message means the transport has it, as durably as it keeps anything.
/// 2. *Own result:* each message has its own result, in the order given.
/// 3. *Unchanged:* ids, headers and body arrive as they were given, each time (S60).
/// 4. *In order:* messages of one call to one destination are handed over in the order given.
/// 5. *Refused before:* what [`check`](Dispatcher::check) accepts is not later refused for its size or address.
///
/// # Errors
/// A message whose result is a transient error may have been sent all the same: it is sent again with the same id.
#[async_trait]
pub trait Dispatcher: fmt::Debug + Send + Sync {
    /// Whether this transport can ever send `outgoing`: size, address. Asked before anything is saved, so that an
    /// output that can never leave does not block its saga (S67). Answers from memory.
    ///
    /// # Errors
    /// [`Refused`], with the reason.
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused>;

    /// Sends `outgoing`; one result for each, in the same order.
    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>>;
}

/// One that others use as well, or that is chosen while the program runs.
impl<D: Dispatcher + ?Sized> Dispatcher for Arc<D> {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        (**self).check(outgoing)
    }

    /// By hand: `async_trait` would put the future of the one within into a box of its own.
    fn dispatch<'a, 'b, 'c>(&'a self, outgoing: &'b [Outgoing]) -> BoxFuture<'c, Vec<Result<(), DispatchError>>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        (**self).dispatch(outgoing)
    }
}

/// Why a transport can never send a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// It may succeed later, and may have succeeded now.
    #[error("the transport did not confirm the message")]
    Transient(#[source] TransportError),
    /// It never will: it becomes a dead letter, and the others go on.
    #[error("the transport has refused the message for good")]
    Permanent(#[source] TransportError),
}
