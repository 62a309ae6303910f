//! Names and contents that no other test uses.

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
pub(crate) struct Samples {
    scope: Arc<Scope>,
    run: u64,
}

impl Samples {
    pub(crate) fn new(name: &str) -> Self {
        let run = fastrand::u64(..);
        let endpoint = format!("{name}-{run}").parse().unwrap();
        Self { scope: Arc::new(Scope { endpoint, saga: "sample".parse().unwrap() }), run }
    }

    pub(crate) fn key(&self, number: u32) -> EntityKey {
        EntityKey::new(self.scope.clone(), format!("key-{number}").parse().unwrap())
    }

    pub(crate) fn entity(&self, number: u32) -> Entity {
        Entity { state: number.to_string().into(), ..Entity::default() }
    }

    /// What [`entity`](Self::entity) was made of.
    #[allow(dead_code, reason = "of the programs with this file, some ask")]
    pub(crate) fn number(entity: &Entity) -> u32 {
        std::str::from_utf8(&entity.state).unwrap().parse().unwrap()
    }

    #[allow(dead_code, reason = "of the programs with this file, some ask")]
    pub(crate) fn entity_with(&self, number: u32, entry: Arc<OutboxEntry>) -> Entity {
        Entity { outbox: vec![entry], ..self.entity(number) }
    }

    #[allow(dead_code, reason = "of the programs with this file, some ask")]
    pub(crate) fn entry(&self, number: u32) -> Arc<OutboxEntry> {
        let id = MessageId::parse(&format!("out-{}-{number}", self.run)).unwrap();
        let envelope = Envelope::new(id, "sample.sent".parse().unwrap(), "body");
        let outgoing =
            Outgoing { destination: Destination::Endpoint("other".parse().unwrap()), envelope: envelope.into() };
        let DedupEntry { key, attempt, fingerprint, time, .. } = self.done(number);
        let outgoing = vec![outgoing];
        Arc::new(OutboxEntry { key, attempt, fingerprint, commit: 1, saved_at: time, outgoing, reply: None })
    }

    /// That message `number` was handled.
    pub(crate) fn done(&self, number: u32) -> DedupEntry {
        let mut key = [0; DedupKey::BYTES];
        key[..8].copy_from_slice(&self.run.to_be_bytes());
        key[8..12].copy_from_slice(&number.to_be_bytes());
        let attempt = AttemptId::from_bytes((u128::from(self.run) << 32 | u128::from(number)).to_be_bytes());
        let fingerprint = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let time = Timestamp::from_millis(1_767_225_600_000);
        DedupEntry { key: DedupKey::from_bytes(key), attempt, fingerprint, reply: None, time }
    }

    #[allow(dead_code, reason = "of the programs with this file, some ask")]
    pub(crate) fn letter(&self) -> DeadLetter {
        let id = MessageId::parse(&format!("letter-{}", self.run)).unwrap();
        DeadLetter {
            envelope: Arc::new(Envelope::new(id, "sample.refused".parse().unwrap(), "body")),
            endpoint: self.scope.endpoint.clone(),
            saga: None,
            destination: None,
            reason: "why".to_owned(),
            attempts: 3,
            time: Timestamp::from_millis(1_767_225_600_000),
        }
    }
}
