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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{codec::record, envelope::Envelope, ids::hex};

    /// What a transaction has stored is sent by whichever version of the program comes next.
    #[test]
    fn what_is_stored_keeps_its_place_and_its_bytes() {
        const KEPT: &str = "7001010100010190163d869441498a0dd6e9f83cdcc9a8d9e6a5b7c339c2020202020202020202020202020202028a4422f3c8c8204adc57\
            7e11a24e23410180d095ffbc3101000473686f70000190163d8694739baea5966c26f8ad91000d73686f702e6164642d6974656d00000010617070\
            6c69636174696f6e2f6a736f6e01000d7b226f72646572223a2237227d0000000000000000";
        let message_id = "0190163d-8694-739b-aea5-966c26f8ad91".parse().unwrap();
        let envelope = Envelope::new(message_id, "shop.add-item".parse().unwrap(), r#"{"order":"7"}"#);
        let destination = Destination::parse("endpoint:shop").unwrap();
        let enqueued = Enqueued::new("front", Outgoing { destination, envelope: Arc::new(envelope) }).unwrap();
        assert_eq!(enqueued.key().to_string(), "front/hapax.outbox/0190163d-8694-739b-aea5-966c26f8ad91");
        let mut entity = enqueued.entity().clone();
        let entry = Arc::make_mut(&mut entity.outbox[0]);
        entry.attempt = AttemptId::from_bytes([2; AttemptId::BYTES]);
        entry.saved_at = Timestamp::from_millis(1_700_000_000_000);
        let bytes = record::encode_outbox(&entity).unwrap();
        assert_eq!(hex(&bytes), KEPT);
        assert_eq!(record::decode_outbox(entity.state.clone(), &bytes).unwrap(), entity);
    }
}
