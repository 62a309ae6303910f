//! Where what cannot be handled or sent waits for a person, kept whole so that it can be tried again as it came.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::StoreError;
use crate::{
    envelope::{Destination, Envelope},
    ids::{EndpointName, MessageId, SagaName},
    time::Timestamp,
};

/// Where messages are set aside for a person: incoming ones that cannot be handled, outgoing ones that cannot be sent.
///
/// Letters and entities are kept by two systems: of two copies that are handled at once one may be saved between the other's
/// last look at the entity and its letter, and then a message that has taken effect is among the letters too. Given again, it
/// is dropped as a duplicate as long as its dedup entry is kept.
///
/// # Promises
/// 1. *Kept whole:* once `add` has returned, `list` shows the letter with its id, headers and body as received.
/// 2. *Once per cause:* adding the same letter again (same message id, endpoint, saga, destination, type and body) is
///    success and keeps one. Another body under the same id is another letter: it would be lost otherwise (S59).
/// 3. *Discarded alone:* once `discard` has returned, `list` does not show the letters and shows all others, and they can be added
///    again. It tells how many were there; of several that discard a letter at once, one is told of it at most.
///
/// # Errors
/// An `add` with an unknown outcome may have stored the letter: add it again. A `discard` that fails may have removed some of the
/// letters, or all: discard them again, and those are not counted.
#[async_trait]
pub trait DeadLetters: fmt::Debug + Send + Sync {
    /// Sets `letter` aside.
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError>;

    /// The letters of `endpoint`, oldest first, one page at a time. One that cannot be read is left out, and told of in the log when its page is
    /// asked for: so a page may have fewer letters than asked for and not be the last, and what is to be skipped counts it all the same. An
    /// empty page is the last: where nothing of a page can be read, later ones are looked at and given, and come again when they are asked for.
    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError>;

    /// Removes `letters` and no others: those that [are the same](DeadLetter::is_same). How many of them were there.
    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError>;
}

/// A message set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message as it came, or as it was to go.
    pub envelope: Arc<Envelope>,
    /// The endpoint that set it aside.
    pub endpoint: EndpointName,
    /// The saga that could not handle it, or whose handling sent it; `None` where no saga was found for it.
    pub saga: Option<SagaName>,
    /// Where it was to go, for a message that could not be sent; `None` for one that could not be handled.
    pub destination: Option<Destination>,
    /// Why: the chain of errors.
    pub reason: String,
    /// How often it had been given.
    pub attempts: u32,
    /// When it was set aside, by the endpoint's clock.
    pub time: Timestamp,
}

impl DeadLetter {
    /// Whether `other` is this letter again (promise 2). A store that looks letters up by columns compares the
    /// [`Fingerprint`](crate::ids::Fingerprint) of the envelope in place of type and body.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.envelope, &other.envelope);
        ours.message_id == theirs.message_id
            && self.endpoint == other.endpoint
            && self.saga == other.saga
            && self.destination == other.destination
            && ours.message_type == theirs.message_type
            && ours.body == theirs.body
    }
}

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Skip this many.
    pub skip: usize,
    /// Then at most this many.
    pub limit: usize,
    /// Only this message.
    pub message_id: Option<MessageId>,
}

impl Page {
    /// The first `limit`.
    #[must_use]
    pub const fn first(limit: usize) -> Self {
        Self { skip: 0, limit, message_id: None }
    }
    /// Whether `letter` is of the message asked for, if one was.
    #[must_use]
    pub fn wants(&self, letter: &DeadLetter) -> bool {
        self.message_id.as_ref().is_none_or(|id| *id == letter.envelope.message_id)
    }
}
