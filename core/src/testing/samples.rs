//! What the suites store and send: unique names, so that nothing has to be cleaned up and runs do not meet, and every
//! field filled somewhere, so that an adapter that drops one is found.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    entity::{DedupEntry, Entity, LiveTimeout, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{
        AttemptId, CausationId, CorrelationId, DedupKey, EndpointName, EntityKey, Fingerprint, IdempotencyKey,
        MessageId, PartitionKey, SagaKey, SagaName, Scope, TenantId, TraceParent, TypeName,
    },
    ports::DeadLetter,
    time::Timestamp,
};

/// What is not text, and what text formats have to escape.
const BYTES: &[u8] = b"\0\x01\n\r \"'\\%;\x7f\x80\xc3\x28\xfe\xff";
const VALID: &str = "the suite's own names are valid";

/// An endpoint name that nobody else uses.
pub(super) fn endpoint() -> EndpointName {
    EndpointName::parse(format!("suite-{}", Uuid::new_v4().simple())).expect(VALID)
}

pub(super) fn saga(name: &str) -> SagaName {
    SagaName::parse(name).expect(VALID)
}

/// A message type that nobody else uses.
pub(super) fn message_type() -> TypeName {
    TypeName::parse(format!("suite.{}", Uuid::new_v4().simple())).expect(VALID)
}

/// A scope that nobody else uses.
pub(super) fn scope() -> Arc<Scope> {
    Arc::new(Scope { endpoint: endpoint(), saga: saga("suite") })
}

pub(super) fn entity_key(scope: &Arc<Scope>, key: &str) -> EntityKey {
    EntityKey::new(scope.clone(), SagaKey::parse(key).expect(VALID))
}

/// A key in a scope of its own.
pub(super) fn new_key() -> EntityKey {
    entity_key(&scope(), "key")
}

pub(super) fn attempt() -> AttemptId {
    AttemptId::from_bytes(*Uuid::new_v4().as_bytes())
}

/// A dedup key that nobody else uses.
pub(super) fn dedup_key() -> DedupKey {
    let mut bytes = [0; DedupKey::BYTES];
    bytes[..16].copy_from_slice(Uuid::now_v7().as_bytes());
    bytes[16..].copy_from_slice(&Uuid::new_v4().as_bytes()[..8]);
    DedupKey::from_bytes(bytes)
}

/// A message with nothing but what it must have.
pub(super) fn envelope(body: impl Into<Bytes>) -> Envelope {
    Envelope::new(MessageId::random(), TypeName::parse("suite.plain").expect(VALID), body)
}

/// A message with every field set.
pub(super) fn full_envelope(message_type: &TypeName) -> Envelope {
    let mut full = Envelope::new(MessageId::random(), message_type.clone(), BYTES);
    full.idempotency_key = Some(IdempotencyKey::parse("Intent 1 ü").expect(VALID));
    full.correlation_id = Some(CorrelationId::parse("process/7").expect(VALID));
    full.causation_id = Some(CausationId(MessageId::parse("not-a-uuid").expect(VALID)));
    full.partition_key = Some(PartitionKey::parse("partition 3").expect(VALID));
    full.content_type = crate::envelope::ContentType::MESSAGE_PACK;
    full.schema = 3;
    full.headers.set("b-first", "value with spaces, ü and \u{1F600}").expect(VALID);
    full.headers.set("a-second", "").expect(VALID);
    full.occurred_at = Some(Timestamp::from_millis(1_700_000_000_123));
    full.due = Some(Timestamp::from_millis(1_700_000_001_456));
    full.expires = Some(Timestamp::MAX);
    full.tenant = Some(TenantId::parse("tenant").expect(VALID));
    full.traceparent =
        Some(TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect(VALID));
    full.reply_to = Some(Destination::Endpoint(endpoint()));
    full.timeout = true;
    full
}

pub(super) fn outgoing(to: &EndpointName, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(to.clone()), envelope: Arc::new(envelope) }
}

/// An entry of the outbox with nothing but what it must have, as the `commit`-th of its entity.
pub(super) fn entry(commit: u64) -> Arc<OutboxEntry> {
    let sent = outgoing(&endpoint(), envelope(format!("{commit}")));
    Arc::new(OutboxEntry {
        key: dedup_key(),
        attempt: attempt(),
        fingerprint: Fingerprint::of(&sent.envelope),
        commit,
        saved_at: Timestamp::now(),
        outgoing: vec![sent],
        reply: None,
        reply_sent: false,
    })
}

/// An entry with every field set.
pub(super) fn full_entry(commit: u64) -> Arc<OutboxEntry> {
    let kind = message_type();
    let to_endpoint = outgoing(&endpoint(), full_envelope(&kind));
    let to_topic = Outgoing { destination: Destination::Topic(kind.clone()), envelope: to_endpoint.envelope.clone() };
    let plain = outgoing(&endpoint(), envelope(""));
    Arc::new(OutboxEntry {
        outgoing: vec![to_endpoint, to_topic, plain],
        reply: Some(1),
        saved_at: Timestamp::from_millis(1_700_000_000_999),
        ..(*entry(commit)).clone()
    })
}

/// An entity with every field set.
pub(super) fn full_entity(state: &str) -> Entity {
    let timeout = |delay| LiveTimeout {
        message_id: MessageId::random(),
        due: Timestamp::from_millis(1_700_000_000_000).after(Duration::from_millis(delay)),
    };
    Entity {
        state: [BYTES, state.as_bytes()].concat().into(),
        completed: false,
        commits: 9,
        timeouts: vec![timeout(1), timeout(2)],
        outbox: vec![full_entry(7), entry(8), full_entry(9)],
    }
}

/// An entity whose state says `state`, with these entries.
pub(super) fn entity(state: impl ToString, outbox: &[Arc<OutboxEntry>]) -> Entity {
    let commits = outbox.iter().map(|entry| entry.commit).max().unwrap_or(1);
    Entity { state: state.to_string().into(), commits, outbox: outbox.to_vec(), ..Entity::default() }
}

/// What is left of a completed saga.
pub(super) fn tombstone() -> Entity {
    Entity { completed: true, commits: 2, ..Entity::default() }
}

/// A mark in the dedup store, without a reply.
pub(super) fn mark() -> DedupEntry {
    entry(1).to_dedup_entry()
}

/// A mark with every field set.
pub(super) fn full_mark() -> DedupEntry {
    full_entry(1).to_dedup_entry()
}

/// A letter with every field set.
pub(super) fn letter(endpoint: &EndpointName) -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(full_envelope(&message_type())),
        endpoint: endpoint.clone(),
        saga: Some(saga("suite")),
        destination: Some(Destination::Topic(message_type())),
        reason: "because: of this\nand of that".into(),
        attempts: 3,
        time: Timestamp::from_millis(1_700_000_000_001),
    }
}
