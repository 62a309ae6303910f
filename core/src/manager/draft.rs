//! The entity as a pass changes it: what was loaded is carried along whole, and nothing of a handler that failed stays in it.

use std::sync::Arc;

use bytes::Bytes;

use super::{Few, verdicts::Verdicts};
use crate::{
    codec::{Codec, CodecError},
    entity::{DedupEntry, Entity, Expected, OutboxEntry, Version},
    ids::{AttemptId, DedupKey},
    ports::{Known, Stored},
    saga::{Saga, state_schema},
};

/// What the entity is going to be: the loaded one, and what the pass does to it. Nobody else sees it.
pub(super) struct Draft<T> {
    /// Version of what is stored: as loaded, then as saved.
    version: Option<Version>,
    entity: Entity,
    /// Of the outbox in `entity`, in bytes: counted along, since a pass may add hundreds.
    waiting: usize,
    /// The state as a value, if it has been needed; always equal to the bytes in `entity`.
    state: Option<T>,
    /// Marks that go with the save: of messages with nothing outgoing, where one store keeps both.
    processed: Vec<DedupEntry>,
    /// Messages have been handled since the last save.
    changed: bool,
    /// Entries that were found to be over when the entity was loaded have been dropped, or what was sent of others.
    helped: bool,
    /// The number of the last commit when it was loaded.
    loaded: u64,
}

impl<T: Saga> Draft<T> {
    /// A draft of the stored entity, without the entries that are over already (helping). An entry is over only if the
    /// dedup store has *its* attempt: on the word of anything less it would be lost (S34). All others are carried along
    /// unchanged, or the next save would lose them (S29).
    pub(super) fn new(stored: Option<Stored>, known: &Known) -> Self {
        let (version, mut entity) = match stored {
            Some(Stored { version, entity }) => (Some(version), entity),
            None => (None, Entity::default()),
        };
        let entries = entity.outbox.len();
        entity.outbox.retain(|entry| !known.attempt(&entry.key, &entry.attempt));
        let helped = entity.outbox.len() < entries;
        let waiting = entity.outbox.iter().map(|entry| entry.size()).sum();
        let loaded = entity.commits;
        Self { version, entity, waiting, state: None, processed: Vec::new(), changed: false, helped, loaded }
    }

    /// This pass has made it.
    pub(super) fn is_new(&self, entry: &OutboxEntry) -> bool {
        entry.commit > self.loaded
    }

    /// What the dedup store is asked: the messages, and every entry found.
    pub(super) fn keys_to_check(asked: &[DedupKey], stored: Option<&Stored>) -> Vec<DedupKey> {
        let entries = stored.into_iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let mut keys: Vec<DedupKey> = asked.iter().copied().chain(entries).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(super) const fn entity(&self) -> &Entity {
        &self.entity
    }

    /// Size of the outbox, in bytes.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The version that is stored, with the entity as it is to be.
    pub(super) fn stored(&self) -> Option<(&Version, &Entity)> {
        self.version.as_ref().map(|version| (version, &self.entity))
    }

    pub(super) fn expected(&self) -> Expected {
        self.version.clone().map_or(Expected::Absent, Expected::Version)
    }

    pub(super) fn processed(&self) -> &[DedupEntry] {
        &self.processed
    }

    pub(super) const fn is_absent(&self) -> bool {
        self.version.is_none() && self.entity.commits == 0
    }

    pub(super) const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Takes the state out for a handler to change. If the handler fails it is not put back: the bytes are the truth.
    pub(super) fn take_state(&mut self) -> Result<T, CodecError> {
        match self.state.take() {
            Some(state) => Ok(state),
            None if self.entity.state.is_empty() => Ok(T::default()),
            None => state_schema::<T>().read_framed(&self.entity.state),
        }
    }

    /// The bytes that `state` is going to be stored as.
    pub(super) fn encode(state: &T, codec: Codec) -> Result<Bytes, CodecError> {
        state_schema::<T>().write_framed(codec, state).map(Bytes::from)
    }

    /// The entity as it would be with a handled message, but for its outbox: `None` as state means the saga is complete.
    pub(super) fn with(&self, state: Option<Bytes>, entry: &OutboxEntry) -> Entity {
        let Entity { completed, ref timeouts, .. } = self.entity;
        Entity {
            completed: completed || state.is_none(),
            state: state.unwrap_or_default(),
            commits: entry.commit,
            timeouts: timeouts.clone(),
            outbox: Vec::new(),
        }
    }

    /// Takes over a handled message: the entity without its outbox, to which `entry` is added.
    pub(super) fn accept(
        &mut self,
        entity: Entity,
        entry: Option<Arc<OutboxEntry>>,
        state: T,
        mark: Option<DedupEntry>,
    ) {
        let mut outbox = std::mem::take(&mut self.entity.outbox);
        self.waiting += entry.as_ref().map_or(0, |entry| entry.size());
        outbox.extend(entry);
        self.state = (!entity.completed).then_some(state);
        self.entity = Entity { outbox, ..entity };
        self.processed.extend(mark);
        self.changed = true;
    }

    pub(super) fn saved_at(&mut self, version: Version) {
        self.version = Some(version);
        self.changed = false;
        self.helped = false;
    }

    /// The entries that this pass dispatches, in commit order: those of its messages, those the sweeper named, and, for
    /// ordered outputs, every older one.
    pub(super) fn entries_to_finish(
        &self,
        verdicts: &Verdicts,
        sweep: &[AttemptId],
        ordered: bool,
    ) -> Few<Arc<OutboxEntry>> {
        let owned = verdicts.attempts();
        let ours = |entry: &OutboxEntry| owned.contains(entry.attempt) || sweep.contains(&entry.attempt);
        let outbox = &self.entity.outbox;
        if ordered {
            let end = outbox.iter().rposition(|entry| ours(entry)).map_or(0, |last| last + 1);
            return outbox[..end].iter().cloned().collect();
        }
        outbox.iter().filter(|entry| ours(entry)).cloned().collect()
    }

    /// Removes the entries that have been dispatched. Known by attempt, never by message alone (S34).
    pub(super) fn clean_up(&mut self, done: &[Arc<OutboxEntry>]) {
        let done = Attempts::of(done.iter().map(|entry| entry.attempt));
        self.entity.outbox.retain(|entry| !done.contains(entry.attempt));
    }

    /// Drops what was sent of an entry that could not be sent whole: sent again at every sweep, for as long as one destination is away,
    /// it would outlast the memory of those that have taken it.
    pub(super) fn sent_in_part(&mut self, attempt: AttemptId, sent: &[usize]) {
        if let Some(entry) = self.entity.outbox.iter_mut().find(|entry| entry.attempt == attempt)
            && !sent.is_empty()
        {
            *entry = Arc::new(entry.without(sent));
            self.helped = true;
        }
    }

    /// What is stored of it, and how it is to be when `done` have been sent and could not be marked: each still there, without what was sent of
    /// it. `None`, if that is how it is stored already.
    pub(super) fn sent_and_unmarked(&self, done: &[Arc<OutboxEntry>]) -> Option<(Version, Entity)> {
        let version = self.version.clone()?;
        // Or parts of others that were sent have been taken out.
        (self.helped || done.iter().any(|entry| entry.unsent().next().is_some())).then(|| {
            let mut entity = self.entity.clone();
            entity.outbox.extend(done.iter().map(|entry| Arc::new(entry.without_all())));
            entity.outbox.sort_by_key(|entry| entry.commit);
            (version, entity)
        })
    }

    /// Whether anything was dropped that the stored entity still has.
    pub(super) const fn has_left_overs(&self) -> bool {
        self.helped
    }
}

/// Attempts, for others to be looked up in: a pass may hold hundreds.
pub(super) struct Attempts(Few<AttemptId>);

impl Attempts {
    pub(super) fn of(attempts: impl Iterator<Item = AttemptId>) -> Self {
        let mut attempts: Few<AttemptId> = attempts.collect();
        attempts.sort_unstable();
        Self(attempts)
    }

    pub(super) fn contains(&self, attempt: AttemptId) -> bool {
        self.0.binary_search(&attempt).is_ok()
    }
}
