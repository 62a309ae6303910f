//! What the tests of stores keep in them.

use std::sync::Arc;

use hapax::{
    MessageId,
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, SagaName, Scope},
    ports::{DeadLetter, EntityStore, Saved},
    time::Timestamp,
};

/// An endpoint that no other test uses.
///
/// # Panics
/// Never: it is a name.
#[must_use]
pub fn endpoint() -> EndpointName {
    EndpointName::parse(format!("shop-{:016x}", fastrand::u64(..))).expect("a name")
}

/// A key in a scope of its own.
///
/// # Panics
/// When `name` is no key.
#[must_use]
pub fn key(name: &str) -> EntityKey {
    let scope = Scope { endpoint: endpoint(), saga: SagaName::parse("order").expect("a name") };
    EntityKey::new(Arc::new(scope), name.parse().expect("a key"))
}

/// An attempt that nobody else has made.
#[must_use]
pub fn attempt() -> AttemptId {
    AttemptId::from_bytes(fastrand::u128(..).to_be_bytes())
}

/// A dedup key of no message.
#[must_use]
pub fn dedup_key() -> DedupKey {
    DedupKey::from_bytes(std::array::from_fn(|_| fastrand::u8(..)))
}

/// A message.
///
/// # Panics
/// Never: its type is a name.
#[must_use]
pub fn envelope(body: impl Into<Vec<u8>>) -> Envelope {
    Envelope::new(MessageId::random(), "shop.added".parse().expect("a type"), body.into())
}

/// A message to another endpoint.
///
/// # Panics
/// Never: that is a name.
#[must_use]
pub fn outgoing(body: impl Into<Vec<u8>>) -> Outgoing {
    let destination = Destination::Endpoint("mail".parse().expect("a name"));
    Outgoing { destination, envelope: Arc::new(envelope(body)) }
}

/// An entry that waits with so many messages.
#[must_use]
pub fn entry(messages: usize) -> Arc<OutboxEntry> {
    entry_of((0..messages).map(|_| outgoing("a body")).collect())
}

/// An entry that waits with these messages.
#[must_use]
pub fn entry_of(outgoing: Vec<Outgoing>) -> Arc<OutboxEntry> {
    Arc::new(OutboxEntry {
        key: dedup_key(),
        attempt: attempt(),
        fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
        commit: 1,
        saved_at: Timestamp::now(),
        outgoing,
        reply: None,
        reply_sent: false,
    })
}

/// A dedup entry.
#[must_use]
pub fn mark() -> DedupEntry {
    entry(0).to_dedup_entry()
}

/// A state of so many bytes or a few more, which no other is equal to.
#[must_use]
pub fn state(bytes: usize) -> Vec<u8> {
    let mut state = format!("{:032x}", fastrand::u128(..)).into_bytes();
    state.resize(state.len().max(bytes), b'x');
    state
}

/// An entity with what waits in it.
#[must_use]
pub fn entity(state: impl Into<Vec<u8>>, outbox: &[Arc<OutboxEntry>]) -> Entity {
    Entity { state: state.into().into(), commits: 1, outbox: outbox.to_vec(), ..Entity::default() }
}

/// An entity of this size.
///
/// # Panics
/// When that is less than an empty one's.
#[must_use]
pub fn filled(bytes: usize) -> Entity {
    Entity { state: vec![b'x'; bytes - Entity::default().size()].into(), ..Entity::default() }
}

/// A dead letter to `endpoint`.
#[must_use]
pub fn letter(endpoint: EndpointName, body: impl Into<Vec<u8>>) -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(envelope(body)),
        endpoint,
        saga: None,
        destination: None,
        reason: "it failed".to_owned(),
        attempts: 3,
        time: Timestamp::now(),
    }
}

/// How long a body has to be for what is `encoded` with it to have so many bytes.
///
/// # Panics
/// When there is no such body.
pub fn body_for(bytes: usize, encoded: impl Fn(usize) -> usize) -> usize {
    let mut body = bytes - encoded(0);
    while encoded(body) > bytes {
        body -= 1;
    }
    assert_eq!(encoded(body), bytes);
    body
}

/// The version of a save that has won.
///
/// # Panics
/// When it has not.
pub fn won(saved: Saved) -> Version {
    match saved {
        Saved::At(version) => version,
        Saved::Conflict => panic!("a conflict"),
    }
}

/// A save that nothing speaks against.
///
/// # Panics
/// When something does.
pub async fn save(store: &impl EntityStore, key: &EntityKey, before: Option<&Version>, entity: &Entity) -> Version {
    let expected = before.map_or(Expected::Absent, |version| Expected::Version(version.clone()));
    won(store.save(key, &expected, entity, &[]).await.expect("a save"))
}
