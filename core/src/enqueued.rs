//! Messages that a transaction of the user's own stores, on a store that keeps entities and has no tables: each is an entity of
//! its own that nobody handles, complete and with one outbox entry, and the sweeper of an endpoint
//! [sends](crate::endpoint::EndpointBuilder::sends_enqueued) it like any other that was left behind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    codec::Codec,
    entity::{Entity, OutboxEntry},
    envelope::{Destination, Outgoing},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, InvalidId, MessageId, SagaKey, SagaName, Scope},
    saga::{Message, Saga},
    sender::{SendError, Sender},
    time::Timestamp,
};

/// Under which saga name such entities are kept, in the scope of the endpoint that sends them.
const NAME: &str = "hapax.outbox";

/// What handles nothing: there is only something to send.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nobody;

impl Saga for Nobody {
    const NAME: &'static str = NAME;
}

/// A message that waits for a transaction of the user's own: an entity to be stored in it, if it is not there yet. The store says
/// how: `DynamoDb::enqueue` and `CosmosDb::enqueue`.
///
/// It is sent at least once, under its id, by whichever process runs the endpoint with
/// [`sends_enqueued`](crate::endpoint::EndpointBuilder::sends_enqueued), which looks for it every
/// [`enqueued_interval`](crate::endpoint::Settings::enqueued_interval); and never if the transaction was not committed. No order is
/// promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    key: EntityKey,
    entity: Entity,
    message_id: MessageId,
}

impl Enqueued {
    /// `message` to the endpoint `to`, under a new id; `by` is the endpoint that sends it.
    ///
    /// # Errors
    /// [`SendError::Invalid`] when the message cannot be encoded or a name is none.
    pub fn message<M: Message>(by: &str, to: &str, message: &M) -> Result<Self, SendError> {
        let invalid = |e: InvalidId| SendError::Invalid(e.to_string());
        let destination = Destination::Endpoint(EndpointName::parse(to).map_err(invalid)?);
        let envelope = Arc::new(Sender::envelope_with(Codec::default(), MessageId::random(), message)?);
        Self::new(by, Outgoing { destination, envelope }).map_err(invalid)
    }

    /// `outgoing` as it is: with an address, keys, headers and times of your own. Two of one message id are one message.
    ///
    /// # Errors
    /// [`InvalidId`] when `by` is no name of an endpoint.
    pub fn new(by: &str, outgoing: Outgoing) -> Result<Self, InvalidId> {
        let scope = Scope { endpoint: EndpointName::parse(by)?, saga: SagaName::parse(NAME)? };
        let envelope = &outgoing.envelope;
        let key = EntityKey::new(Arc::new(scope), SagaKey::parse(envelope.message_id.to_string())?);
        let message_id = envelope.message_id.clone();
        let entry = OutboxEntry {
            key: DedupKey::of(&key, envelope),
            // Nobody else is to finish it: an id that was stored twice is refused by the transaction.
            attempt: AttemptId::from_bytes(fastrand::u128(..).to_be_bytes()),
            fingerprint: Fingerprint::of(envelope),
            commit: 1,
            saved_at: Timestamp::now(),
            outgoing: vec![outgoing],
            reply: None,
            reply_sent: false,
        };
        // Complete: what is left once it is sent is a tombstone, which is purged like any other.
        let entity = Entity { completed: true, commits: 1, outbox: vec![Arc::new(entry)], ..Entity::default() };
        Ok(Self { key, entity, message_id })
    }

    /// The message's id: the receiver deduplicates by it.
    #[must_use]
    pub const fn message_id(&self) -> &MessageId {
        &self.message_id
    }

    /// Which entity is to be stored; for stores.
    #[must_use]
    pub const fn key(&self) -> &EntityKey {
        &self.key
    }

    /// What is to be stored, if nothing is there; for stores.
    #[must_use]
    pub const fn entity(&self) -> &Entity {
        &self.entity
    }
}
