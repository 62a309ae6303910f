//! Ports that answer as a test tells them: a rule about one rare answer is tried with that answer, and nobody waits for it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    metrics::{Event, Metrics},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, DispatchError, Dispatcher, EntityStore, ErrorKind,
        Evicted, Finished, Known, Loaded, LongMemory, Page, Pending, Refused, Saved, StoreCapabilities, StoreError,
        Stored, TransportError,
    },
};

/// A store in memory that answers the next calls as it is told, each within its contract.
#[derive(Clone)]
pub struct Scripted {
    /// The store, without the script.
    pub memory: Memory,
    script: Arc<Mutex<Script>>,
    entity_bytes_max: usize,
}

#[derive(Default)]
struct Script {
    loads: VecDeque<Option<Stored>>,
    loads_unreadable: u32,
    saves: VecDeque<Save>,
    versions_fail: VecDeque<ErrorKind>,
    contains_fail: u32,
    inserts_fail: u32,
    letters_fail: u32,
    reply_bytes_max: Option<usize>,
}

/// What becomes of a save, or of a finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// It is done.
    Done,
    /// It is done, and the answer is lost.
    Unknown,
    /// It is not done, and the answer is lost.
    UnknownLost,
    /// It is refused as too large.
    TooLarge,
}

impl Scripted {
    /// A store without a script, which takes entities of up to `entity_bytes_max` bytes.
    #[must_use]
    pub fn new(entity_bytes_max: usize) -> Self {
        Self { memory: Memory::new(), script: Arc::default(), entity_bytes_max }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it keeps replies of up to so many bytes.
    pub fn set_reply_bytes_max(&self, bytes: usize) {
        self.script().reply_bytes_max = Some(bytes);
    }

    /// The next load answers with this, an older version.
    pub fn load_stale(&self, stored: Option<Stored>) {
        self.script().loads.push_back(stored);
    }

    /// The next `times` loads find what cannot be read.
    pub fn unreadable_loads(&self, times: u32) {
        self.script().loads_unreadable = times;
    }

    /// The next saves and finishes end so.
    pub fn saves(&self, saves: &[Save]) {
        self.script().saves.extend(saves);
    }

    /// The next questions for a version fail so.
    pub fn fail_versions(&self, kinds: &[ErrorKind]) {
        self.script().versions_fail.extend(kinds);
    }

    /// The next `times` questions to the dedup store fail.
    pub fn fail_contains(&self, times: u32) {
        self.script().contains_fail = times;
    }

    /// The next `times` inserts are not done and have an unknown outcome.
    pub fn fail_inserts(&self, times: u32) {
        self.script().inserts_fail = times;
    }

    /// The next `times` letters are refused.
    pub fn fail_letters(&self, times: u32) {
        self.script().letters_fail = times;
    }

    /// What is stored of an entity.
    ///
    /// # Panics
    /// Never: memory does not fail.
    pub async fn stored(&self, key: &EntityKey) -> Option<Stored> {
        self.memory.load(key, &[]).await.expect("memory does not fail").stored
    }

    fn next_save(&self) -> Save {
        self.script().saves.pop_front().unwrap_or(Save::Done)
    }

    fn before(&self, save: Save) -> Result<(), StoreError> {
        match save {
            Save::Done | Save::Unknown => Ok(()),
            Save::UnknownLost => Err(lost("saving")),
            Save::TooLarge => Err(StoreError::new(ErrorKind::TooLarge, "saving", "as scripted")),
        }
    }
}

fn lost(operation: &'static str) -> StoreError {
    StoreError::new(ErrorKind::UnknownOutcome, operation, "as scripted")
}

fn take_one(left: &mut u32) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}

#[async_trait]
impl EntityStore for Scripted {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { entity_bytes_max: self.entity_bytes_max, ..self.memory.capabilities() }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        if take_one(&mut self.script().loads_unreadable) {
            return Err(StoreError::new(ErrorKind::Malformed, "loading", "as scripted"));
        }
        let stale = self.script().loads.pop_front();
        let loaded = self.memory.load(key, ids).await?;
        Ok(match stale {
            Some(stored) => Loaded { stored, ..loaded },
            None => loaded,
        })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let next = self.next_save();
        self.before(next)?;
        let saved = self.memory.save(key, expected, entity, processed).await?;
        if next == Save::Unknown { Err(lost("saving")) } else { Ok(saved) }
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let next = self.next_save();
        self.before(next)?;
        let finished = self.memory.finish(key, done, clean_up).await?;
        if next == Save::Unknown { Err(lost("finishing")) } else { Ok(finished) }
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        if let Some(kind) = self.script().versions_fail.pop_front() {
            return Err(StoreError::new(kind, "reading a version", "as scripted"));
        }
        self.memory.version(key).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.memory.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.memory.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Scripted {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        let own = self.memory.dedup_capabilities();
        DedupCapabilities { reply_bytes_max: self.script().reply_bytes_max.unwrap_or(own.reply_bytes_max), ..own }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        if take_one(&mut self.script().contains_fail) {
            return Err(StoreError::new(ErrorKind::Unavailable, "asking", "as scripted"));
        }
        self.memory.contains(keys).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        if take_one(&mut self.script().inserts_fail) {
            return Err(lost("inserting"));
        }
        self.memory.insert(entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.memory.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl DeadLetters for Scripted {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        if take_one(&mut self.script().letters_fail) {
            return Err(StoreError::new(ErrorKind::Unavailable, "adding", "as scripted"));
        }
        self.memory.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.memory.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.memory.discard(letters).await
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scripted").field(&self.memory).finish()
    }
}

/// Writes down what is sent, and fails when told so.
#[derive(Debug, Clone, Default)]
pub struct Out(Arc<Mutex<OutState>>);

#[derive(Debug, Default)]
struct OutState {
    sent: Vec<Outgoing>,
    failing: u32,
    never: Option<&'static str>,
    unroutable: Option<&'static str>,
}

impl Out {
    fn state(&self) -> MutexGuard<'_, OutState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every copy sent so far.
    #[must_use]
    pub fn sent(&self) -> Vec<Outgoing> {
        self.state().sent.clone()
    }

    /// The next `times` dispatches fail for now.
    pub fn fail(&self, times: u32) {
        self.state().failing = times;
    }

    /// Messages of this type fail for good, although `check` accepts them.
    pub fn never(&self, message_type: &'static str) {
        self.state().never = Some(message_type);
    }

    /// Messages of this type are refused by `check`.
    pub fn unroutable(&self, message_type: &'static str) {
        self.state().unroutable = Some(message_type);
    }
}

#[async_trait]
impl Dispatcher for Out {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        let refused = self.state().unroutable == Some(outgoing.envelope.message_type.as_str());
        if refused { Err(Refused("no route".into())) } else { Ok(()) }
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut state = self.state();
        let one = |outgoing: &Outgoing| {
            if state.never == Some(outgoing.envelope.message_type.as_str()) {
                let error = TransportError::new(ErrorKind::TooLarge, "dispatching", "as scripted");
                return Err(DispatchError::Permanent(error));
            }
            if take_one(&mut state.failing) {
                let error = TransportError::new(ErrorKind::Unavailable, "dispatching", "as scripted");
                return Err(DispatchError::Transient(error));
            }
            state.sent.push(outgoing.clone());
            Ok(())
        };
        outgoing.iter().map(one).collect()
    }
}

/// Writes down what is observed, in words; of an end also which one it is.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// Everything so far, without the entities.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Metrics for Events {
    fn observe(&self, event: Event<'_>) {
        let text = format!("{event:?}");
        let word = text.split('(').next().unwrap_or_default();
        let word = match event {
            Event::Ended(_, _, ending) => format!("{word} {}", ending.as_str()),
            _ => word.to_owned(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(word);
    }
}
