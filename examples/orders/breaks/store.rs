//! A store whose author was careless with one rule, and who keeps a diary.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Sqlite,
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EndpointName, EntityKey, Scope},
    ports::{
        DeadLetter, DeadLetters, DedupCapabilities, DedupStore, EntityStore, Evicted, Finished, Known, Loaded,
        LongMemory, Page, Pending, Saved, StoreCapabilities, StoreError, Stored,
    },
};

use super::{Call, Port, Rule, Worker};

/// How long an ambush waits for a rival to come near. Copies come within [`DELAY_MAX`](super::DELAY_MAX).
const RIVAL_COMES: Duration = Duration::from_millis(60);
/// How long it waits for a rival that is near to pass: some commits of a slow disk.
const RIVAL_PASSES: Duration = Duration::from_millis(500);
/// The forgetful store has forgotten a key whose last byte is below this: one in eight. A key is a hash.
const FORGOTTEN_BELOW: u8 = 32;

#[derive(Debug, Clone)]
pub(crate) struct BrokenStore {
    store: Sqlite,
    worker: Arc<Worker>,
}

impl BrokenStore {
    pub(super) const fn new(store: Sqlite, worker: Arc<Worker>) -> Self {
        Self { store, worker }
    }

    /// Check before load: waits until a rival who has a copy of one of the messages has finished it.
    async fn let_a_rival_finish(&self, key: &EntityKey, ids: &[DedupKey]) {
        let Some(_ambush) = self.worker.trace().ambush(key) else { return };
        let (trace, from) = (self.worker.trace(), self.worker.trace().look_back());
        let ours = |keys: &[DedupKey]| keys.iter().any(|key| ids.contains(key));
        let rival = |call: &Call| call.worker != self.worker.number;
        let has_it = |call: &Call| call.port == Port::Receive && rival(call) && ours(&call.keys);
        let is_done = |call: &Call| matches!(call.port, Port::Save | Port::Finish) && rival(call) && ours(&call.over);
        if trace.wait(from, RIVAL_COMES, has_it).await {
            trace.wait(from, RIVAL_PASSES, is_done).await;
        }
    }

    /// Blind save: waits until a rival who has loaded the same version for other messages has saved.
    async fn let_a_rival_save(&self, key: &EntityKey, version: &Version, keys: &[DedupKey]) {
        let Some(_ambush) = self.worker.trace().ambush(key) else { return };
        let (trace, from) = (self.worker.trace(), self.worker.trace().look_back());
        let rival = |call: &Call| {
            let near = call.worker != self.worker.number && call.entity.as_ref() == Some(key);
            near && call.before.as_ref() == Some(version)
        };
        let other = |call: &Call| !call.keys.is_empty() && call.keys.iter().all(|key| !keys.contains(key));
        let has_loaded = |call: &Call| call.port == Port::Load && rival(call) && other(call) && call.over.is_empty();
        let has_saved = |call: &Call| call.port == Port::Save && rival(call);
        if trace.wait(from, RIVAL_COMES, has_loaded).await {
            trace.wait(from, RIVAL_PASSES, has_saved).await;
        }
    }

    /// What the manager is told of `ids` and of the entries in the entity, given what is true and what was true before.
    /// And of which message that was a lie.
    fn tell(
        &self,
        ids: &[DedupKey],
        stored: Option<&Stored>,
        before: Option<&Known>,
        now: &Known,
    ) -> (Known, Option<DedupKey>) {
        let entries = stored.into_iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let mut keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        keys.sort_unstable();
        keys.dedup();
        let tell = |key: &DedupKey| match before {
            Some(before) if ids.contains(key) => before.entry(key),
            _ if self.worker.breaks(Rule::ForgetfulDedup) && is_forgotten(key) => None,
            _ => now.entry(key),
        };
        let victim = ids.iter().find(|key| tell(key) != now.entry(key)).copied();
        (Known::new(keys.iter().filter_map(tell).cloned().collect()), victim)
    }
}

fn is_forgotten(key: &DedupKey) -> bool {
    key.as_bytes().last().is_some_and(|byte| *byte < FORGOTTEN_BELOW)
}

/// Those of `ids` that are over.
fn over(known: &Known, ids: &[DedupKey]) -> Vec<DedupKey> {
    ids.iter().filter(|id| known.entry(id).is_some()).copied().collect()
}

const fn seen(over: &[DedupKey]) -> &'static str {
    if over.is_empty() { "not seen" } else { "seen" }
}

fn named(version: Option<&Version>) -> String {
    version.map_or_else(|| "nothing".into(), |version| format!("v{version:?}"))
}

#[async_trait]
impl EntityStore for BrokenStore {
    fn capabilities(&self) -> StoreCapabilities {
        self.store.capabilities()
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let about = |call: &mut Call| {
            call.entity = Some(key.clone());
            call.keys = ids.to_vec();
        };
        let mut before = None;
        if self.worker.is_about(Rule::CheckBeforeLoad) && !ids.is_empty() {
            let mut call = self.worker.call(Port::Check).with(about);
            let known = self.store.contains(ids).await.inspect_err(|e| call.failed(e))?;
            call.answered(|call| call.says = seen(&over(&known, ids)).into());
            self.let_a_rival_finish(key, ids).await;
            before = self.worker.breaks(Rule::CheckBeforeLoad).then_some(known);
        }
        let mut call = self.worker.call(Port::Load).with(about);
        let mut loaded = self.store.load(key, ids).await.inspect_err(|e| call.failed(e))?;
        let now = loaded.known.take().unwrap_or_default(); // Always there: this store keeps both.
        let (told, victim) = self.tell(ids, loaded.stored.as_ref(), before.as_ref(), &now);
        let version = loaded.stored.as_ref().map(|stored| stored.version.clone());
        call.answered(|call| {
            let entry = loaded.stored.iter().flat_map(|stored| &stored.entity.outbox).any(|e| ids.contains(&e.key));
            let with = if entry { " with its entry" } else { "" };
            call.over = over(&told, ids);
            let told = match (victim, self.worker.is_about(Rule::CheckBeforeLoad)) {
                (None, _) if ids.is_empty() => "",
                (None, _) => seen(&call.over),
                (Some(_), true) => "\"not seen\" from before",
                (Some(_), false) => "\"not seen\": forgotten",
            };
            let comma = if told.is_empty() { "" } else { ", " };
            call.says = format!("{}{with}{comma}{told}", named(version.as_ref()));
            call.before = version;
            call.fatal = victim.is_some();
            call.victim = victim;
        });
        loaded.known = Some(told);
        Ok(loaded)
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        let mut processed = processed.to_vec();
        let over: Vec<DedupKey> = processed.iter().map(|mark| mark.key).collect();
        let keys: Vec<DedupKey> = entity.outbox.iter().map(|entry| entry.key).chain(over.iter().copied()).collect();
        let loaded = match expected {
            Expected::Version(version) => Some(version),
            Expected::Absent => None,
        };
        let mut expected = expected.clone();
        let mut stored = None;
        if let Some(version) = loaded.filter(|_| self.worker.is_about(Rule::BlindSave)) {
            self.let_a_rival_save(key, version, &keys).await;
            if self.worker.breaks(Rule::BlindSave) {
                stored = self.store.version(key).await?.filter(|now| now != version);
                expected = stored.clone().map_or(expected, Expected::Version);
            }
        }
        let unsent = entity.outbox.iter().filter(|entry| !entry.outgoing.is_empty());
        let marked = self.worker.breaks(Rule::MarkBeforeDispatch) && unsent.clone().next().is_some();
        if marked {
            processed.extend(unsent.map(|entry| entry.to_dedup_entry()));
        }
        let mut call = self.worker.call(Port::Save).with(|call| {
            call.entity = Some(key.clone());
            call.keys = keys;
            call.before = loaded.cloned();
            call.says = format!("over {}", named(loaded));
            call.fatal = marked;
        });
        let saved = self.store.save(key, &expected, entity, &processed).await.inspect_err(|e| call.failed(e))?;
        call.answered(|call| match &saved {
            Saved::At(version) => {
                let instead = stored.as_ref().map_or(String::new(), |now| format!(", which is v{now:?} now"));
                let marks = if marked || !over.is_empty() { ", marked as over" } else { "" };
                call.says = format!("over {}{instead} -> v{version:?}{marks}", named(loaded));
                call.after = Some(version.clone());
                call.over = over;
                call.fatal = marked || stored.is_some();
            }
            Saved::Conflict => call.says.push_str(": conflict"),
        });
        Ok(saved)
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        let mut call = self.worker.call(Port::Finish).with(|call| {
            call.entity = Some(key.clone());
            call.keys = done.iter().map(|mark| mark.key).collect();
            call.before = clean_up.map(|(version, _)| version.clone());
        });
        let finished = self.store.finish(key, done, clean_up).await.inspect_err(|e| call.failed(e))?;
        call.answered(|call| {
            call.over.clone_from(&call.keys);
            let marked = if done.is_empty() { "" } else { "marked as over, " };
            call.says = match &finished {
                Some(Finished::Cleaned(Some(version))) => {
                    call.after = Some(version.clone());
                    format!("{marked}cleaned up -> v{version:?}")
                }
                Some(Finished::Later) => format!("{marked}to be cleaned up later"),
                Some(Finished::Left) => format!("{marked}entry left"),
                Some(Finished::Cleaned(None)) | None => marked.trim_end_matches(", ").into(),
            };
        });
        Ok(finished)
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
        self.store.pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.store.purge(scope, older_than, limit).await
    }
}

/// With one store for both, the manager hears of dedup entries in `load` and writes them in `save` and `finish`; so these
/// are as honest as the store itself.
#[async_trait]
impl DedupStore for BrokenStore {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        self.store.dedup_capabilities()
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.store.contains(keys).await
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
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
impl DeadLetters for BrokenStore {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        self.store.add(letter).await
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.store.discard(letters).await
    }
}
