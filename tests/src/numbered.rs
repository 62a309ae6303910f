//! Names and contents by number, that no other test uses.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Entity, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId, Scope},
    ports::DeadLetter,
    time::Timestamp,
};

/// Those of one part of a test.
#[derive(Debug, Clone)]
pub struct Samples {
    scope: Arc<Scope>,
    run: u64,
}

impl Samples {
    /// Those of a part with this name, in this run.
    ///
    /// # Panics
    /// When it is no name of an endpoint.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let run = fastrand::u64(..);
        let endpoint = format!("{name}-{run}").parse().expect("a sample");
        Self { scope: Arc::new(Scope { endpoint, saga: "sample".parse().expect("a sample") }), run }
    }

    /// The key of entity `number`.
    ///
    /// # Panics
    /// Never: it is a key.
    #[must_use]
    pub fn key(&self, number: u32) -> EntityKey {
        EntityKey::new(self.scope.clone(), format!("key-{number}").parse().expect("a sample"))
    }

    /// Its state.
    #[must_use]
    pub fn entity(&self, number: u32) -> Entity {
        Entity { state: number.to_string().into(), ..Entity::default() }
    }

    /// What [`entity`](Self::entity) was made of.
    ///
    /// # Panics
    /// When it was not.
    #[must_use]
    pub fn number(entity: &Entity) -> u32 {
        std::str::from_utf8(&entity.state).expect("a sample").parse().expect("a sample")
    }

    /// As [`entity`](Self::entity), with what waits in its outbox.
    #[must_use]
    pub fn entity_with(&self, number: u32, entry: Arc<OutboxEntry>) -> Entity {
        Entity { outbox: vec![entry], ..self.entity(number) }
    }

    /// What message `number` has left to be sent.
    ///
    /// # Panics
    /// Never: its parts are names.
    #[must_use]
    pub fn entry(&self, number: u32) -> Arc<OutboxEntry> {
        let id = MessageId::parse(&format!("out-{}-{number}", self.run)).expect("a sample");
        let envelope = Envelope::new(id, "sample.sent".parse().expect("a sample"), "body");
        let outgoing = Outgoing {
            destination: Destination::Endpoint("other".parse().expect("a sample")),
            envelope: envelope.into(),
        };
        let DedupEntry { key, attempt, fingerprint, time, .. } = self.done(number);
        let outgoing = vec![outgoing];
        Arc::new(OutboxEntry {
            key,
            attempt,
            fingerprint,
            commit: 1,
            saved_at: time,
            outgoing,
            reply: None,
            reply_sent: false,
        })
    }

    /// That message `number` was handled.
    #[must_use]
    pub fn done(&self, number: u32) -> DedupEntry {
        let mut key = [0; DedupKey::BYTES];
        key[..8].copy_from_slice(&self.run.to_be_bytes());
        key[8..12].copy_from_slice(&number.to_be_bytes());
        let attempt = AttemptId::from_bytes((u128::from(self.run) << 32 | u128::from(number)).to_be_bytes());
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let time = Timestamp::from_millis(1_767_225_600_000);
        DedupEntry { key: DedupKey::from_bytes(key), attempt, fingerprint, reply: None, time }
    }

    /// A dead letter.
    ///
    /// # Panics
    /// Never: its parts are names.
    #[must_use]
    pub fn letter(&self) -> DeadLetter {
        let id = MessageId::parse(&format!("letter-{}", self.run)).expect("a sample");
        DeadLetter {
            envelope: Arc::new(Envelope::new(id, "sample.refused".parse().expect("a sample"), "body")),
            endpoint: self.scope.endpoint.clone(),
            saga: None,
            destination: None,
            reason: "why".to_owned(),
            attempts: 3,
            time: Timestamp::from_millis(1_767_225_600_000),
        }
    }
}
