//! Sentences are judged by what store and sink were seen to hold. A worker that is wrong would be wrong about that, too.

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
    /// The committed states of each entity, in the order in which they were first seen. That is the order in which they
    /// were stored, whatever a version looks like: a save names the version that it replaces, and its caller knows that from
    /// a load or from the save that made it. So what was replaced had been seen before what replaced it was there.
    pub(crate) entities: BTreeMap<EntityKey, Vec<(Version, Observation)>>,
    pub(crate) sent: Vec<Outgoing>,
    /// Their ids.
    pub(crate) left: BTreeSet<MessageId>,
    pub(crate) parked: BTreeSet<MessageId>,
    pub(crate) refused: BTreeSet<MessageId>,
    /// Every entry that stood in a committed outbox.
    pub(crate) entries: BTreeMap<AttemptId, Arc<OutboxEntry>>,
    /// Every outgoing message that stood in a committed outbox, as it was first seen there.
    pub(crate) stored: BTreeMap<MessageId, Stood>,
    pub(crate) marks: BTreeSet<(DedupKey, AttemptId)>,
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
        self.entities.get(key)?.last().map(|(_, state)| state)
    }

    /// Everything that has reached the sink, every copy of it.
    #[must_use]
    pub fn sent(&self) -> &[Outgoing] {
        &self.sent
    }

    /// Whether the effect of `cause` has been seen committed.
    #[must_use]
    pub fn has_effect(&self, key: &EntityKey, cause: &str) -> bool {
        let states = self.entities.get(key).into_iter().flatten();
        states.flat_map(|(_, state)| &state.lines).any(|line| line.cause == cause)
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
        let states = self.entities.entry(key.clone()).or_default();
        if let Some((_, before)) = states.iter().find(|(seen, _)| seen == version) {
            if *before == observation {
                return Ok(None);
            }
            return Err(format!("{key}: version {version:?} was used twice: for {before:?} and for {observation:?}"));
        }
        let helped = states.last().is_some_and(|(_, before)| {
            let gone = |entry: &Arc<OutboxEntry>| entity.entry(&entry.key).is_none();
            entity.commits > before.entity.commits && before.entity.outbox.iter().any(gone)
        });
        states.push((version.clone(), observation));
        Ok(Some(Helped(helped)))
    }

    /// How many states of an entity have been seen.
    pub(crate) fn states(&self, key: &EntityKey) -> usize {
        self.entities.get(key).map_or(0, Vec::len)
    }

    /// One of them, the oldest first.
    pub(crate) fn state(&self, key: &EntityKey, index: usize) -> Option<Stored> {
        let (version, state) = self.entities.get(key)?.get(index)?;
        Some(Stored { version: version.clone(), entity: state.entity.clone() })
    }

    pub(crate) fn marked(&mut self, entries: &[DedupEntry]) {
        self.marks.extend(entries.iter().map(|entry| (entry.key, entry.attempt)));
    }

    /// Whether some answer has told of this entry.
    pub(crate) fn has_mark(&self, entry: &DedupEntry) -> bool {
        self.marks.contains(&(entry.key, entry.attempt))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_core::ids::Scope;

    use super::*;
    use crate::invariants;

    fn key() -> EntityKey {
        let scope = Scope { endpoint: "upper".parse().unwrap(), saga: "ledger".parse().unwrap() };
        EntityKey::new(Arc::new(scope), "one".parse().unwrap())
    }

    /// A ledger that is complete, which alone may have no state, after so many commits.
    fn after(commits: u64) -> Entity {
        Entity { completed: true, commits, ..Entity::default() }
    }

    /// As those of DynamoDB or Cosmos DB, which do not grow.
    #[test]
    fn the_order_of_states_is_that_in_which_they_are_seen_and_not_that_of_their_versions() {
        let (key, mut ghost) = (key(), Ghost::default());
        for (commits, version) in [(1, Version::text("z")), (2, Version::text("a")), (3, Version::number(-5))] {
            assert!(ghost.saw(&key, &version, &after(commits)).unwrap().is_some());
            assert_eq!(ghost.newest(&key).unwrap().entity.commits, commits);
        }
        assert!(ghost.saw(&key, &Version::text("z"), &after(1)).unwrap().is_none(), "an older one, seen again");
        assert_eq!(ghost.newest(&key).unwrap().entity.commits, 3);
        assert_eq!(ghost.state(&key, 1).unwrap().version, Version::text("a"));
        assert!(ghost.states(&key) == 3 && ghost.state(&key, 3).is_none());
    }

    #[test]
    fn a_version_that_is_text_and_stands_for_two_states_is_found_out() {
        let (key, mut ghost) = (key(), Ghost::default());
        ghost.saw(&key, &Version::text("etag"), &after(1)).unwrap();
        let why = ghost.saw(&key, &Version::text("etag"), &after(2)).unwrap_err();
        assert!(why.contains("version etag was used twice"), "{why}");
    }

    #[test]
    fn what_is_seen_later_and_does_not_extend_what_was_seen_is_a_lost_update_whatever_the_versions() {
        let (key, mut ghost) = (key(), Ghost::default());
        // What was complete is so no more.
        ghost.saw(&key, &Version::text("b"), &after(1)).unwrap();
        ghost.saw(&key, &Version::text("a"), &Entity::default()).unwrap();
        let why = invariants::no_lost_update(&ghost).unwrap_err();
        assert!(why.contains("version a") && why.contains("does not extend version b"), "{why}");
    }
}
