//! A store that looks on: which rare paths are taken, and whether a handler does the same each time.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use hapax_core::{
    codec::FRAME_BYTES,
    entity::{DedupEntry, Entity, Expected, Version},
    envelope::{Destination, Envelope, Outgoing},
    ids::{DedupKey, EntityKey, Scope, TypeName},
    manager::Stores,
    ports::{
        DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded, LongMemory, Pending, Saved,
        StoreCapabilities, StoreError,
    },
};

use super::{
    coming::{Coming, Stop},
    paths,
};
use crate::explore::outside::note;

/// Messages of one run of a handler at most: what the explorer can number.
const OUTGOING_MAX: usize = 255;

/// What one run of a handler has made of a message and a state.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Made {
    completed: bool,
    state: Bytes,
    outgoing: Vec<Outgoing>,
}

/// Two runs of a handler on the same message and the same state that did not end the same.
#[derive(Debug, Clone)]
pub(super) struct Differ {
    pub(super) message: Option<usize>,
    pub(super) before: String,
    pub(super) first: Made,
    pub(super) second: Made,
}

/// What was seen by all stores of a check.
#[derive(Debug, Default)]
pub(super) struct Notes {
    made: HashMap<String, Made>,
    pub(super) differ: Option<Differ>,
    /// Something has been sent, so an outbox was used.
    pub(super) sends: bool,
    /// Types of what has been sent.
    pub(super) sent: BTreeSet<TypeName>,
    /// What has come in this exploration; `None`: nobody explores, and as much may come as likes.
    pub(super) coming: Option<Coming>,
}

/// Shared by all stores of a check.
pub(super) type Shared = Arc<Mutex<Notes>>;

pub(super) fn lock(notes: &Shared) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes everything on to the store that the explorer gave.
pub(super) struct Watch {
    stores: Stores,
    messages: Arc<Vec<Arc<Envelope>>>,
    notes: Shared,
    /// What this task has loaded or saved last, and for which messages it has loaded.
    loaded: Mutex<(Entity, Vec<DedupKey>)>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// The same stores, looked at.
pub(super) fn watched(stores: &Stores, messages: &Arc<Vec<Arc<Envelope>>>, notes: &Shared) -> Stores {
    let together = stores.entities().capabilities().together;
    let watch = Arc::new(Watch {
        stores: stores.clone(),
        messages: messages.clone(),
        notes: notes.clone(),
        loaded: Mutex::default(),
    });
    if together { Stores::one(watch) } else { Stores::two(watch.clone(), watch) }
}

impl Watch {
    fn loaded(&self) -> MutexGuard<'_, (Entity, Vec<DedupKey>)> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for ever once it is known that the exploration cannot go on: a task that waits for no port ends it.
    async fn go_on(&self) {
        let stops = lock(&self.notes).coming.as_ref().is_some_and(|coming| coming.stop.is_some());
        if stops {
            std::future::pending::<()>().await;
        }
    }

    /// Says which rare paths begin with what is known.
    fn look(&self, known: &Known) {
        let loaded = self.loaded();
        let (entity, asked) = &*loaded;
        if asked.iter().any(|key| known.entry(key).is_none() && entity.entry(key).is_some()) {
            note(paths::RESUMED);
        }
        if !asked.is_empty() && entity.outbox.iter().any(|entry| known.attempt(&entry.key, &entry.attempt)) {
            note(paths::HELPED);
        }
    }

    /// Compares what a handler has made now with what it made of the same before.
    fn compare(&self, key: &EntityKey, entity: &Entity, processed: &[DedupEntry]) {
        let loaded = self.loaded();
        let (before, _) = &*loaded;
        let entries = entity.outbox.iter().filter(|entry| before.entry(&entry.key).is_none());
        let mut handled = entries.map(|entry| (entry.key, entry.fingerprint, entry.outgoing.clone()));
        let mut handled = handled.by_ref().chain(processed.iter().map(|mark| (mark.key, mark.fingerprint, Vec::new())));
        let (Some((message, content, outgoing)), None) = (handled.next(), handled.next()) else { return };
        let mut notes = lock(&self.notes);
        notes.sends |= !outgoing.is_empty();
        for Outgoing { envelope, .. } in &outgoing {
            if !notes.sent.contains(&envelope.message_type) {
                notes.sent.insert(envelope.message_type.clone());
            }
        }
        if let Some(coming) = notes.coming.as_mut().filter(|_| outgoing.len() > OUTGOING_MAX) {
            let seen = format!("a handler sends {} messages at once: a check takes {OUTGOING_MAX}", outgoing.len());
            coming.stop = Some(Stop::Crowd { seen });
        }
        let now = Made { completed: entity.completed, state: entity.state.clone(), outgoing };
        let Entity { state, completed, timeouts, .. } = before;
        // The content too: what another run of another saga has sent in another world has the same id.
        let input = format!("{key} {message} {content:?} {completed} {timeouts:?} {state:?}");
        let first = notes.made.entry(input).or_insert_with(|| now.clone()).clone();
        if first != now && notes.differ.is_none() {
            let at = self.messages.iter().position(|envelope| DedupKey::of(key, envelope) == message);
            notes.differ = Some(Differ { message: at, before: state_text(state), first, second: now });
        }
    }
}

fn state_text(state: &Bytes) -> String {
    match state.get(FRAME_BYTES..) {
        Some(state) => String::from_utf8_lossy(state).into_owned(),
        None => "new".into(),
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.completed {
            true => f.write_str("complete")?,
            false => write!(f, "state {}", state_text(&self.state))?,
        }
        for Outgoing { destination, envelope } in &self.outgoing {
            let to = match destination {
                Destination::Endpoint(name) => format!("to {name}"),
                _ => "to subscribers".into(),
            };
            write!(f, ", sends {} {} {to}", envelope.message_type, String::from_utf8_lossy(&envelope.body))?;
            if let Some(due) = envelope.due {
                write!(f, " due {due}")?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EntityStore for Watch {
    fn capabilities(&self) -> StoreCapabilities {
        self.stores.entities().capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        self.go_on().await;
        let loaded = self.stores.entities().load(key, ids).await?;
        let entity = loaded.stored.as_ref().map(|stored| stored.entity.clone()).unwrap_or_default();
        *self.loaded() = (entity, ids.to_vec());
        if let Some(known) = &loaded.known {
            self.look(known);
        }
        Ok(loaded)
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        self.compare(key, entity, processed);
        self.go_on().await;
        // What is saved after it is no run of the handler: it says what became of what this one has made.
        self.loaded().0.clone_from(entity);
        self.stores.entities().save(key, expected, entity, processed).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        self.stores.entities().finish(key, done, clean_up).await
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        self.stores.entities().version(key).await
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.stores.entities().pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.stores.entities().purge(scope, older_than, limit).await
    }
}

#[async_trait]
impl DedupStore for Watch {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.stores.dedup().dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let known = self.stores.dedup().contains(keys).await?;
        self.look(&known);
        Ok(known)
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.stores.dedup().insert(entries).await
    }

    async fn evict(&self, older_than: Duration) -> Result<Evicted, StoreError> {
        self.stores.dedup().evict(older_than).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}
