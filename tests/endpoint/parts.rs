//! A store that is away in part, as a test asks for, and a way out that counts.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess, Memory,
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::Outgoing,
    ids::{DedupKey, EndpointName, EntityKey, MessageId, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, DispatchError, Dispatcher, EntityStore, ErrorKind,
        Evicted, Finished, Known, Loaded, LongMemory, Page, Pending, Refused, Saved, StoreCapabilities, StoreError,
    },
};

/// What it does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// As a dedup store it tells of no entry.
    Contains,
    /// As a dedup store it takes no entry.
    Insert,
    /// As an entity store it takes no write, and says so.
    Writes,
    /// The same, and it does not say: its answers are lost.
    WritesUntold,
    /// It takes no letter.
    Letters,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(crate) store: Memory,
    away: Arc<Mutex<Option<(Part, &'static str)>>>,
    loads: Arc<AtomicU32>,
    refused: Arc<AtomicU32>,
}

impl Parts {
    /// The same for another process: what is away is away from both, and each counts its own calls.
    pub(crate) fn beside(&self) -> Self {
        Self { store: self.store.clone(), away: self.away.clone(), ..Self::default() }
    }

    /// From now on this part is away; with `None` all is there.
    pub(crate) fn is_away(&self, part: Option<Part>) {
        *self.away.lock().unwrap() = part.map(|part| (part, ""));
    }

    /// The same, of writes for entities whose keys begin so.
    pub(crate) fn takes_no_writes_of(&self, keys: &'static str) {
        *self.away.lock().unwrap() = Some((Part::Writes, keys));
    }

    /// How many loads there were.
    pub(crate) fn loads(&self) -> u32 {
        self.loads.load(Ordering::Relaxed)
    }

    /// How many calls were refused.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    fn reach(&self, parts: &[Part], key: &str) -> Result<(), StoreError> {
        let away = *self.away.lock().unwrap();
        let is_meant =
            |(part, keys): &(Part, &str)| (*part == Part::Whole || parts.contains(part)) && key.starts_with(keys);
        let Some((part, _)) = away.filter(is_meant) else { return Ok(()) };
        self.refused.fetch_add(1, Ordering::Relaxed);
        let kind = if part == Part::WritesUntold { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable };
        Err(StoreError::new(kind, "asking in part", format!("{part:?} is away, as the test wants it")))
    }

    fn write(&self, key: &EntityKey) -> Result<(), StoreError> {
        self.reach(&[Part::Writes, Part::WritesUntold], key.key().as_str())
    }
}

#[async_trait]
impl EntityStore for Parts {
    fn capabilities(&self) -> StoreCapabilities {
        self.store.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.reach(&[], key.key().as_str())?;
        self.store.load(key, ids).await
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.write(key)?;
        self.store.save(key, expected, entity, processed).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.write(key)?;
        self.store.finish(key, done, clean_up).await
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.store.version(key).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.reach(&[], "")?;
        self.store.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.store.purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Parts {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.store.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.reach(&[Part::Contains], "")?;
        self.store.contains(keys).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.reach(&[Part::Insert], "")?;
        self.store.insert(entries).await
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.store.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

#[async_trait]
impl DeadLetters for Parts {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.reach(&[Part::Letters], "")?;
        self.store.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.store.discard(letters).await
    }
}

/// A way out that counts what is sent.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    hub: InProcess,
    sent: Arc<AtomicU32>,
    of_each: Arc<Mutex<HashMap<MessageId, u32>>>,
    fills: Arc<Mutex<Option<Parts>>>,
    takes: Arc<Mutex<Duration>>,
}

impl Counted {
    pub(crate) fn new(hub: &InProcess) -> Self {
        Self {
            hub: hub.clone(),
            sent: Arc::default(),
            of_each: Arc::default(),
            fills: Arc::default(),
            takes: Arc::default(),
        }
    }

    /// A moment after the next message is offered, in which all that has come is saved, its store takes no writes.
    pub(crate) fn fills(&self, parts: &Parts) {
        *self.fills.lock().unwrap() = Some(parts.clone());
    }

    /// From now on it confirms so late.
    pub(crate) fn takes(&self, long: Duration) {
        *self.takes.lock().unwrap() = long;
    }

    pub(crate) fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How often one and the same message was sent, at most.
    pub(crate) fn most_of_one(&self) -> u32 {
        self.of_each.lock().unwrap().values().copied().max().unwrap_or_default()
    }
}

#[async_trait]
impl Dispatcher for Counted {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.sent.fetch_add(u32::try_from(outgoing.len()).unwrap(), Ordering::Relaxed);
        for sent in outgoing {
            *self.of_each.lock().unwrap().entry(sent.envelope.message_id.clone()).or_default() += 1;
        }
        let fills = self.fills.lock().unwrap().clone();
        if let Some(parts) = fills {
            tokio::time::sleep(Duration::from_millis(100)).await;
            parts.is_away(Some(Part::Writes));
            *self.fills.lock().unwrap() = None;
        }
        let (results, takes) = (self.hub.dispatch(outgoing).await, *self.takes.lock().unwrap());
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        results
    }
}
