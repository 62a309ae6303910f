//! The reference store: everything in one map, readable first, gone with the process.
//!
//! It keeps the ports' promises in the plainest way, so that the other stores can be compared with it. For tests, for
//! examples and for endpoints whose messages do not outlive the process either.

mod bodies;
mod dedup;
mod long;
mod schedule;
mod survey;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Destination,
    ids::{AttemptId, DedupKey, EndpointName, EntityKey, Fingerprint, MessageId, SagaName, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, ErrorKind, Evicted, Finished, Known,
        Loaded, LongMemory, Page, Pending, PendingEntry, Saved, StoreCapabilities, StoreError, Stored,
    },
};

/// Largest entity, in bytes: far above any sane saga, so that a runaway one is noticed here too.
const ENTITY_BYTES_MAX: usize = 16 << 20;
/// Most dead letters: each is kept for a person, who has long been called at a tenth of it; tens of megabytes as messages
/// usually are.
const LETTERS_MAX: usize = 10_000;

/// Entities, dedup entries, dead letters, messages that are not due yet and large bodies in memory. Cloning gives another handle to the same store.
///
/// # Limits
/// An entity has at most 16 MiB. There are at most 10 000 dead letters; one more is an error, and nothing is lost as long
/// as the message stays where it is. As a schedule it takes 100 000 messages of at most 16 MiB, as a
/// store of bodies 1 GiB of them, each of at most 256 MiB. The retention that was asked for can be lowered only with a new store.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entities: HashMap<EntityKey, Row>,
    dedup: dedup::Dedup,
    long: long::Long,
    letters: Letters,
    waiting: schedule::Waiting,
    bodies: bodies::Kept,
    /// The last version given, to any entity: so none is ever given again, not even after a purge.
    version: i64,
}

/// Dead letters in the order in which they came.
#[derive(Default)]
struct Letters {
    /// By the number of each, which is their order.
    all: BTreeMap<u64, DeadLetter>,
    next: u64,
    causes: HashMap<Cause, u64>,
}

/// What makes a letter the same one, see [`DeadLetter::is_same`].
type Cause = (MessageId, EndpointName, Option<SagaName>, Option<Destination>, Fingerprint);

impl Letters {
    fn add(&mut self, letter: &DeadLetter) -> Result<(), StoreError> {
        let cause = cause_of(letter);
        if self.causes.contains_key(&cause) {
            return Ok(());
        }
        if self.all.len() >= LETTERS_MAX {
            let why = format!(
                "there are {LETTERS_MAX} dead letters in memory and no more are taken: end the cause of them and begin \
                 with a new store, or use one on disk"
            );
            return Err(StoreError::new(ErrorKind::Unavailable, "setting a message aside", why));
        }
        self.causes.insert(cause, self.next);
        self.all.insert(self.next, letter.clone());
        self.next += 1;
        Ok(())
    }

    fn discard(&mut self, letter: &DeadLetter) -> bool {
        self.causes.remove(&cause_of(letter)).is_some_and(|number| self.all.remove(&number).is_some())
    }
}

fn cause_of(letter: &DeadLetter) -> Cause {
    let DeadLetter { envelope, endpoint, saga, destination, .. } = letter;
    let fingerprint = Fingerprint::of(envelope);
    (envelope.message_id.clone(), endpoint.clone(), saga.clone(), destination.clone(), fingerprint)
}

struct Row {
    version: i64,
    entity: Entity,
    changed: Instant,
    /// When each entry of the outbox was first saved.
    waiting: Vec<(AttemptId, Instant)>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many dedup entries there are.
    #[must_use]
    pub fn dedup_entries(&self) -> usize {
        let state = self.state();
        state.dedup.len()
    }

    /// Of how many bodies anything is known, and how many bytes there are of them.
    #[must_use]
    pub fn bodies(&self) -> (usize, usize) {
        self.state().bodies.size()
    }

    /// All entities, in no order.
    #[must_use]
    pub fn entities(&self) -> Vec<(EntityKey, Entity)> {
        self.state().entities.iter().map(|(key, row)| (key.clone(), row.entity.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here leaves the state half changed, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn known(&self, ids: &[DedupKey], stored: Option<&Entity>) -> Known {
        let entries = stored.into_iter().flat_map(|entity| &entity.outbox).map(|entry| &entry.key);
        let found = ids.iter().chain(entries).filter_map(|key| self.dedup.entry(key));
        Known::new(found.collect())
    }

    fn save(&mut self, key: &EntityKey, expected: &Expected, entity: &Entity, now: Instant) -> Saved {
        let row = match (self.entities.get_mut(key), expected) {
            (Some(row), Expected::Version(version)) if version.as_number() == Some(row.version) => row,
            (None, Expected::Absent) => {
                let new = Row { version: 0, entity: Entity::default(), changed: now, waiting: Vec::new() };
                self.entities.entry(key.clone()).or_insert(new)
            }
            _ => return Saved::Conflict,
        };
        self.version += 1;
        row.version = self.version;
        row.changed = now;
        keep(&mut row.entity, entity);
        let is_kept = |attempt: AttemptId| entity.outbox.iter().any(|entry| entry.attempt == attempt);
        row.waiting.retain(|(attempt, _)| is_kept(*attempt));
        for entry in &entity.outbox {
            if !row.waiting.iter().any(|(attempt, _)| *attempt == entry.attempt) {
                row.waiting.push((entry.attempt, row.changed));
            }
        }
        Saved::At(Version::number(self.version))
    }
}

/// Makes `kept` the same as `entity`, and leaves what is there where it is as it was: a clean-up changes the outbox alone.
fn keep(kept: &mut Entity, entity: &Entity) {
    let Entity { state, completed, commits, timeouts, outbox } = entity;
    if !std::ptr::eq(&*kept.state, &**state) {
        kept.state.clone_from(state);
    }
    (kept.completed, kept.commits) = (*completed, *commits);
    kept.timeouts.clone_from(timeouts);
    kept.outbox.clone_from(outbox);
}

#[async_trait]
impl EntityStore for Memory {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: "memory",
            entity_bytes_max: ENTITY_BYTES_MAX,
            together: true,
            processed_max: StoreCapabilities::PROCESSED_UNLIMITED,
            durable: false,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let state = self.state();
        let row = state.entities.get(key);
        let known = state.known(ids, row.map(|row| &row.entity));
        let stored = row.map(|row| Stored { version: Version::number(row.version), entity: row.entity.clone() });
        Ok(Loaded { stored, known: Some(known) })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        check_size(entity)?;
        let mut state = self.state();
        let now = Instant::now();
        let saved = state.save(key, expected, entity, now);
        if let Saved::At(_) = saved {
            state.dedup.insert(processed, now);
        }
        Ok(saved)
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let mut state = self.state();
        let now = Instant::now();
        state.dedup.insert(done, now);
        let Some((version, entity)) = clean_up else { return Ok(Some(Finished::Cleaned(None))) };
        Ok(Some(match state.save(key, &Expected::Version(version.clone()), entity, now) {
            Saved::At(version) => Finished::Cleaned(Some(version)),
            Saved::Conflict => Finished::Left,
        }))
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        Ok(self.state().entities.get(key).map(|row| Version::number(row.version)))
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        let state = self.state();
        let mut found: Vec<Pending> = state
            .entities
            .iter()
            .filter(|(key, _)| key.scope() == scope && after.is_none_or(|after| *key > after))
            .filter_map(|(key, row)| {
                let waiting = row.waiting.iter().map(|(attempt, since)| (*attempt, since.elapsed()));
                let old = waiting.filter(|(_, age)| *age >= older_than);
                let entries: Vec<_> = old.map(|(attempt, age)| PendingEntry { attempt, age }).collect();
                (!entries.is_empty()).then(|| Pending { key: key.clone(), entries })
            })
            .collect();
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        found.truncate(limit);
        Ok(found)
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        let mut state = self.state();
        let tombstones = state.entities.iter().filter(|(key, row)| {
            let old = row.changed.elapsed() >= older_than;
            key.scope() == scope && row.entity.completed && row.entity.outbox.is_empty() && old
        });
        let keys: Vec<EntityKey> = tombstones.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &keys {
            state.entities.remove(key);
        }
        Ok(keys.len())
    }
}

#[async_trait]
impl DedupStore for Memory {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "memory",
            keeps: None,
            alone: true,
            durable: false,
            consistent: true,
            reply_bytes_max: ENTITY_BYTES_MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        Ok(self.state().known(keys, None))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.state().dedup.insert(entries, Instant::now());
        Ok(())
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let mut state = self.state();
        let State { dedup, long, .. } = &mut *state;
        Ok(dedup.evict(retention, long))
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        Some(self)
    }
}

#[async_trait]
impl DeadLetters for Memory {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.state().letters.add(letter)
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        let wanted = |letter: &&DeadLetter| letter.endpoint == *endpoint && page.wants(letter);
        Ok(self.state().letters.all.values().filter(wanted).skip(page.skip).take(page.limit).cloned().collect())
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        let kept = &mut self.state().letters;
        Ok(letters.iter().filter(|letter| kept.discard(letter)).count())
    }
}

fn check_size(entity: &Entity) -> Result<(), StoreError> {
    let bytes = entity.size();
    if bytes <= ENTITY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("it has {bytes} bytes, more than the {ENTITY_BYTES_MAX} that memory takes");
    Err(StoreError::new(ErrorKind::TooLarge, "saving an entity", why))
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Memory")
            .field("entities", &state.entities.len())
            .field("dedup_entries", &state.dedup.len())
            .field("scheduled", &state.waiting.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use hapax_core::{envelope::Envelope, time::Timestamp};

    use super::*;

    #[test]
    fn dead_letters_have_a_limit_and_one_that_is_there_is_success_beyond_it() {
        let letter = |number: usize| DeadLetter {
            envelope: Arc::new(Envelope::new(
                MessageId::parse(&format!("m-{number}")).unwrap(),
                "shop.added".parse().unwrap(),
                Vec::new(),
            )),
            endpoint: "shop".parse().unwrap(),
            saga: None,
            destination: None,
            reason: String::new(),
            attempts: 1,
            time: Timestamp::from_millis(0),
        };
        let mut letters = Letters::default();
        for number in 0..LETTERS_MAX {
            letters.add(&letter(number)).unwrap();
        }
        letters.add(&letter(7)).unwrap();
        let full = letters.add(&letter(LETTERS_MAX)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Unavailable);
        assert!(full.to_string().contains("10000 dead letters"), "{full}");
        assert_eq!(letters.all.len(), LETTERS_MAX);
    }
}
