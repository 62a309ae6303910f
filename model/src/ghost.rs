use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hapax_core::{
    entity::{DedupEntry, Entity, OutboxEntry, Version},
    envelope::{Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, MessageId},
    ports::{DeadLetter, Stored},
};

use crate::ledger::{Ledger, Line, Posted, posted_of};

/// All that has been seen of store and sink: the ground truth, taken from there and never from a worker's word.
#[derive(Debug, Default)]
pub struct Ghost {
    /// Each write is seen in the moment in which it takes effect, as with a store in memory. Otherwise it is seen with
    /// its answer, or when somebody loads.
    pub exact: bool,
    /// Outgoing messages of one entity are to be first sent in the order of its commits.
    pub ordered: bool,
    pub(crate) expected: Vec<Expectation>,
    pub(crate) entities: BTreeMap<EntityKey, BTreeMap<i64, Observation>>,
    pub(crate) sent: Vec<Outgoing>,
    /// Their ids.
    pub(crate) left: BTreeSet<MessageId>,
    pub(crate) parked: BTreeSet<MessageId>,
    pub(crate) refused: BTreeSet<MessageId>,
    /// Every entry that stood in a committed outbox.
    pub(crate) entries: BTreeMap<AttemptId, Arc<OutboxEntry>>,
    /// Every outgoing message that stood in a committed outbox, as it was first seen there.
    pub(crate) stored: BTreeMap<MessageId, Stood>,
    pub(crate) marks: BTreeMap<(DedupKey, AttemptId), ()>,
}

/// One committed state of one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// As stored.
    pub entity: Entity,
    /// Its lines; empty when the saga is complete.
    pub lines: Vec<Line>,
}

/// What is to become of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The cause written down for it.
    pub cause: String,
    /// Its entity.
    pub entity: EntityKey,
    /// Under what it is remembered.
    pub dedup: DedupKey,
    /// The ids of its copies; several where they share an idempotency key.
    pub message_ids: Vec<MessageId>,
    /// How many different messages it sends, answers and timeouts included.
    pub outputs: usize,
    /// What is to become of it.
    pub fate: Fate,
}

/// What is to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// One effect. If the saga is completed first: that, or a dead letter.
    Effect,
    /// No effect and a dead letter.
    DeadLetter,
}

impl Ghost {
    /// Promises that a message comes.
    pub fn expect(&mut self, expectation: Expectation) {
        self.expected.push(expectation);
    }

    /// What was promised.
    #[must_use]
    pub fn expected(&self) -> &[Expectation] {
        &self.expected
    }

    /// Every entity that has been seen.
    pub fn entities(&self) -> impl Iterator<Item = &EntityKey> {
        self.entities.keys()
    }

    /// The newest committed state that has been seen of an entity.
    #[must_use]
    pub fn newest(&self, key: &EntityKey) -> Option<&Observation> {
        self.entities.get(key)?.values().next_back()
    }

    /// Everything that has reached the sink, every copy of it.
    #[must_use]
    pub fn sent(&self) -> &[Outgoing] {
        &self.sent
    }

    /// Whether the effect of `cause` has been seen committed.
    #[must_use]
    pub fn has_effect(&self, key: &EntityKey, cause: &str) -> bool {
        let observations = self.entities.get(key).into_iter().flat_map(BTreeMap::values);
        observations.flat_map(|o| &o.lines).any(|line| line.cause == cause)
    }

    /// An entity was seen as stored at `version`. Says whether it was new, and what it replaced if that is known.
    ///
    /// # Errors
    /// When the same version was seen with something else in it, or the state cannot be read.
    pub(crate) fn saw(
        &mut self,
        key: &EntityKey,
        version: &Version,
        entity: &Entity,
    ) -> Result<Option<Helped>, String> {
        let version = version.as_number().ok_or("the ghost understands numbers as versions only")?;
        let lines = Ledger::of(entity)?.map_or_else(Vec::new, |ledger| ledger.lines);
        let observation = Observation { entity: entity.clone(), lines };
        for entry in &entity.outbox {
            if self.entries.insert(entry.attempt, entry.clone()).is_some() {
                continue;
            }
            for outgoing in &entry.outgoing {
                let posted = posted_of(&outgoing.envelope)?;
                let stood =
                    Stood { entity: key.clone(), commit: entry.commit, envelope: outgoing.envelope.clone(), posted };
                self.stored.entry(outgoing.envelope.message_id.clone()).or_insert(stood);
            }
        }
        let seen = self.entities.entry(key.clone()).or_default();
        if let Some(before) = seen.get(&version) {
            if *before == observation {
                return Ok(None);
            }
            return Err(format!("{key}: version {version} was used twice: for {before:?} and for {observation:?}"));
        }
        let before = seen.range(..version).next_back().map(|(_, o)| &o.entity);
        let helped = before.is_some_and(|before| {
            let gone = |entry: &&Arc<OutboxEntry>| entity.entry(&entry.key).is_none();
            entity.commits > before.commits && before.outbox.iter().any(|entry| gone(&entry))
        });
        seen.insert(version, observation);
        Ok(Some(Helped(helped)))
    }

    pub(crate) fn versions(&self, key: &EntityKey) -> Vec<i64> {
        self.entities.get(key).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    pub(crate) fn at(&self, key: &EntityKey, version: i64) -> Option<Stored> {
        let observation = self.entities.get(key)?.get(&version)?;
        Some(Stored { version: Version::number(version), entity: observation.entity.clone() })
    }

    pub(crate) fn marked(&mut self, entries: &[DedupEntry]) {
        self.marks.extend(entries.iter().map(|entry| ((entry.key, entry.attempt), ())));
    }

    /// Whether the same message was sent before.
    pub(crate) fn sent_now(&mut self, outgoing: &Outgoing) -> bool {
        self.sent.push(outgoing.clone());
        !self.left.insert(outgoing.envelope.message_id.clone())
    }

    pub(crate) fn set_aside(&mut self, letter: &DeadLetter) {
        let set = if letter.destination.is_some() { &mut self.parked } else { &mut self.refused };
        set.insert(letter.envelope.message_id.clone());
    }

    /// Whether an outgoing message has left, or was set aside as one that never can.
    pub(crate) fn has_left(&self, id: &MessageId) -> bool {
        self.parked.contains(id) || self.left.contains(id)
    }
}

/// An outgoing message as it stood in a committed outbox.
#[derive(Debug)]
pub(crate) struct Stood {
    pub(crate) entity: EntityKey,
    /// Commit number of its entry.
    pub(crate) commit: u64,
    pub(crate) envelope: Arc<Envelope>,
    /// What it says, if it is of a ledger.
    pub(crate) posted: Option<Posted>,
}

/// Whether a save removed an entry that was over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Helped(pub(crate) bool);
