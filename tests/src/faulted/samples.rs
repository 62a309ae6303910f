use std::sync::Arc;

use hapax::{
    MessageId,
    entity::{Entity, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaName, Scope},
    ports::DeadLetter,
    time::Timestamp,
};

/// More than one item or one page of a service holds.
pub(super) const LARGE: usize = 500_000;

fn name() -> EndpointName {
    EndpointName::parse(format!("shop-{:016x}", fastrand::u64(..))).expect("a name")
}

/// A key in a scope of its own.
pub(super) fn key() -> EntityKey {
    let scope = Scope { endpoint: name(), saga: SagaName::parse("order").expect("a name") };
    EntityKey::new(Arc::new(scope), "one".parse().expect("a key"))
}

/// An entity that no other is equal to.
pub(super) fn entity(bytes: usize, outbox: &[Arc<OutboxEntry>]) -> Entity {
    let mut state = format!("{:032x}", fastrand::u128(..)).into_bytes();
    state.resize(state.len().max(bytes), b'x');
    Entity { state: state.into(), commits: 1, outbox: outbox.to_vec(), ..Entity::default() }
}

pub(super) fn tombstone(bytes: usize) -> Entity {
    Entity { completed: true, ..entity(bytes, &[]) }
}

fn envelope(bytes: usize) -> Envelope {
    Envelope::new(MessageId::random(), "shop.added".parse().expect("a type"), vec![b'b'; bytes])
}

/// An entry with one message to send.
pub(super) fn entry() -> Arc<OutboxEntry> {
    let mut key = [0; DedupKey::BYTES];
    key.fill_with(|| fastrand::u8(..));
    let destination = Destination::Endpoint("mail".parse().expect("a name"));
    Arc::new(OutboxEntry {
        key: DedupKey::from_bytes(key),
        attempt: AttemptId::from_bytes(fastrand::u128(..).to_be_bytes()),
        fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing: vec![Outgoing { destination, envelope: Arc::new(envelope(8)) }],
        reply: None,
    })
}

/// A letter to an endpoint of its own.
pub(super) fn letter(bytes: usize) -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(envelope(bytes)),
        endpoint: name(),
        saga: None,
        destination: None,
        reason: "it failed".to_owned(),
        attempts: 3,
        time: Timestamp::now(),
    }
}
