//! Real keys, entities and entries for the small numbers of the reference, the same each time.

use std::sync::Arc;

use hapax::{
    entity::{DedupEntry, Entity, LiveTimeout, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId, Scope},
    time::Timestamp,
};

use crate::reference::{Content, Key, Mark, Message};

/// The names of one run, which no other run on the same store has.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    run: u64,
    scopes: [Arc<Scope>; 2],
}

impl Names {
    pub(crate) fn new(run: u64) -> Self {
        // Of two sagas of one endpoint: nearly the same name, so that a store that mixes them up is found out.
        let scope = |saga: &str| {
            Arc::new(Scope { endpoint: format!("run-{run}").parse().unwrap(), saga: saga.parse().unwrap() })
        };
        Self { run, scopes: [scope("saga"), scope("saga-2")] }
    }

    pub(crate) fn scope(&self, scope: u8) -> &Arc<Scope> {
        &self.scopes[usize::from(scope)]
    }

    pub(crate) fn key(&self, key: Key) -> EntityKey {
        EntityKey::new(self.scope(key.scope).clone(), format!("key-{}", key.name).parse().unwrap())
    }

    pub(crate) fn id(&self, message: Message) -> DedupKey {
        let mut bytes = [0; DedupKey::BYTES];
        bytes[..8].copy_from_slice(&self.run.to_be_bytes());
        bytes[DedupKey::BYTES - 1] = message;
        DedupKey::from_bytes(bytes)
    }

    pub(crate) fn attempt(&self, mark: Mark) -> AttemptId {
        let number = u128::from(self.run) << 16 | u128::from(mark.message) << 8 | u128::from(mark.attempt);
        AttemptId::from_bytes(number.to_be_bytes())
    }

    pub(crate) fn entry(&self, mark: Mark) -> Arc<OutboxEntry> {
        /// 2026-01-01.
        const START: u64 = 1_767_225_600_000;
        let Mark { message, attempt } = mark;
        let outgoing = |index: u8| {
            let id = MessageId::parse(&format!("out-{}-{message}-{attempt}-{index}", self.run)).unwrap();
            let envelope = Envelope::new(id, "machine.sent".parse().unwrap(), vec![message, attempt, index]);
            Outgoing { destination: Destination::Endpoint("other".parse().unwrap()), envelope: Arc::new(envelope) }
        };
        let outgoing: Vec<Outgoing> = (0..message % 3).map(outgoing).collect();
        Arc::new(OutboxEntry {
            key: self.id(message),
            attempt: self.attempt(mark),
            fingerprint: Fingerprint::from_bytes([message; Fingerprint::BYTES]),
            commit: u64::from(message) * 16 + u64::from(attempt),
            saved_at: Timestamp::from_millis(START + u64::from(attempt)),
            reply: (!outgoing.is_empty()).then_some(0),
            reply_sent: false,
            outgoing,
        })
    }

    pub(crate) fn mark(&self, mark: Mark) -> DedupEntry {
        self.entry(mark).to_dedup_entry()
    }

    pub(crate) fn marks(&self, marks: &[Mark]) -> Vec<DedupEntry> {
        marks.iter().map(|mark| self.mark(*mark)).collect()
    }

    pub(crate) fn entity(&self, content: &Content) -> Entity {
        let timeout = LiveTimeout {
            message_id: MessageId::parse(&format!("timeout-{}", content.tag)).unwrap(),
            due: Timestamp::from_millis(u64::from(content.tag)),
        };
        Entity {
            state: content.tag.to_string().into(),
            completed: content.completed,
            commits: u64::from(content.tag),
            timeouts: vec![timeout],
            outbox: content.outbox.iter().map(|mark| self.entry(*mark)).collect(),
        }
    }

    /// What is in an entity that these names made; `None` for any other.
    #[allow(dead_code, reason = "of the two programs with this file, one asks")]
    pub(crate) fn content(&self, entity: &Entity) -> Option<Content> {
        let tag = std::str::from_utf8(&entity.state).ok()?.parse().ok()?;
        let mark = |entry: &Arc<OutboxEntry>| self.mark_of(entry.key, entry.attempt);
        let outbox = entity.outbox.iter().map(mark).collect::<Option<Vec<Mark>>>()?;
        let content = Content { tag, completed: entity.completed, outbox };
        (self.entity(&content) == *entity).then_some(content)
    }

    #[allow(dead_code, reason = "of the two programs with this file, one asks")]
    pub(crate) fn mark_of(&self, key: DedupKey, attempt: AttemptId) -> Option<Mark> {
        let mark = Mark { message: key.as_bytes()[DedupKey::BYTES - 1], attempt: attempt.as_bytes()[15] };
        (self.id(mark.message) == key && self.attempt(mark) == attempt).then_some(mark)
    }
}
