//! Lies about which messages are over.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax::{
    Memory,
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupCapabilities, DedupStore, ErrorKind, Evicted, Known, StoreError},
    time::Timestamp,
};

use crate::lie::{Lie, rejected};

rejected! {
    a_longer_retention_than_is_kept_is_rejected:
        dedup_breaks "dedup store, capabilities", |memory| KeepsForAnHour(memory);
    an_entry_that_is_said_not_to_be_taken_alone_and_is_taken_is_rejected:
        dedup_breaks "dedup store, capabilities", |memory| TakesAll(memory);
    a_stale_read_is_rejected:
        dedup_breaks "dedup store 1, visible", |memory| StaleRead(memory, AtomicUsize::new(0), Mutex::default());
    a_remembered_not_seen_is_rejected:
        dedup_breaks "dedup store 1, visible", |memory| RemembersNotSeen(memory, Mutex::default());
    an_insert_that_is_lost_is_rejected:
        dedup_breaks "dedup store 1, visible", |memory| LosesInserts(memory, AtomicUsize::new(0));
    an_insert_that_is_confirmed_early_is_rejected:
        dedup_breaks "dedup store 1, visible", |memory| ConfirmsEarly(memory);
    marks_that_the_reader_lets_expire_are_rejected:
        dedup_breaks "dedup store 2, present means seen", |memory| Expires(memory);
    an_insert_that_fails_when_there_is_rejected:
        dedup_breaks "dedup store 3, idempotent", |memory| FailsIfThere(memory);
    an_insert_that_writes_over_is_rejected:
        dedup_breaks "dedup store 3, idempotent", |memory, shared| WritesOver(memory, shared);
    an_answer_for_the_first_keys_is_rejected:
        dedup_breaks "dedup store 4, all or an error", |memory| FirstHundred(memory);
    an_unanswered_question_taken_for_not_seen_is_rejected:
        dedup_breaks "dedup store 4, all or an error", |memory| FailsOpen(memory);
    an_early_eviction_is_rejected: dedup_breaks "dedup store 5, not early", |memory| EvictsEarly(memory);
    an_eviction_by_the_stamp_is_rejected:
        dedup_breaks "dedup store 5, not early", |memory, shared| EvictsByStamp(memory, shared);
    an_eviction_by_the_last_retention_asked_is_rejected:
        dedup_breaks "dedup store 5, not early", |memory, shared| EvictsByTheLast(memory, shared);
    a_forgotten_reply_is_rejected: dedup_breaks "dedup store 6, whole entry", |memory| ForgetsReplies(memory);
    a_truncated_key_is_rejected:
        dedup_breaks "dedup store 7, nothing else", |memory, shared| Truncates(memory, shared);
    an_eviction_that_never_comes_is_rejected: dedup_breaks "dedup store 8, in the end", |memory| NeverEvicts(memory);
}

/// Keeps entries for an hour, says so, and lets anybody believe that they are kept for longer.
#[derive(Debug)]
struct KeepsForAnHour(Memory);

#[async_trait]
impl Lie for KeepsForAnHour {
    fn honest(&self) -> &Memory {
        &self.0
    }
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities { keeps: Some(Duration::from_secs(3600)), ..self.0.dedup_capabilities() }
    }
}

/// Says that it takes entries with their entities only, and takes any.
#[derive(Debug)]
struct TakesAll(Memory);

#[async_trait]
impl Lie for TakesAll {
    fn honest(&self) -> &Memory {
        &self.0
    }
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities { alone: false, ..self.0.dedup_capabilities() }
    }
}

type Latest = Arc<Mutex<HashMap<DedupKey, DedupEntry>>>;
type Stamped = Arc<Mutex<(HashMap<DedupKey, Timestamp>, HashSet<DedupKey>)>>;
type Inserted = Arc<Mutex<(HashMap<DedupKey, Instant>, HashSet<DedupKey>)>>;
type Truncated = Arc<Mutex<HashMap<[u8; 16], DedupEntry>>>;

/// Where most of what is known is kept, less some of it.
async fn known_but(
    memory: &Memory,
    keys: &[DedupKey],
    keep: impl Fn(&DedupEntry) -> bool,
) -> Result<Known, StoreError> {
    let known = memory.contains(keys).await?;
    Ok(Known::new(keys.iter().filter_map(|key| known.entry(key)).filter(|entry| keep(entry)).cloned().collect()))
}

/// Asks a replica that catches up at every tenth question (S47).
#[derive(Debug)]
struct StaleRead(Memory, AtomicUsize, Mutex<HashMap<DedupKey, DedupEntry>>);

#[async_trait]
impl Lie for StaleRead {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const CATCHES_UP: usize = 10;
        let now = self.0.contains(keys).await?;
        let question = self.1.fetch_add(1, Ordering::Relaxed);
        let mut replica = self.2.lock().unwrap();
        if question % CATCHES_UP == CATCHES_UP - 1 {
            replica.extend(keys.iter().filter_map(|key| Some((*key, now.entry(key)?.clone()))));
        }
        Ok(Known::new(keys.iter().filter_map(|key| replica.get(key).cloned()).collect()))
    }
}

/// Remembers "not seen" (S07).
#[derive(Debug)]
struct RemembersNotSeen(Memory, Mutex<HashSet<DedupKey>>);

#[async_trait]
impl Lie for RemembersNotSeen {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let now = self.0.contains(keys).await?;
        let mut not_seen = self.1.lock().unwrap();
        not_seen.extend(keys.iter().filter(|key| now.entry(key).is_none()));
        let seen = keys.iter().filter(|key| !not_seen.contains(*key));
        Ok(Known::new(seen.filter_map(|key| now.entry(key).cloned()).collect()))
    }
}

#[derive(Debug)]
struct LosesInserts(Memory, AtomicUsize);

#[async_trait]
impl Lie for LosesInserts {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        const LOST: usize = 7;
        if self.1.fetch_add(1, Ordering::Relaxed) % LOST == LOST - 1 {
            return Ok(());
        }
        self.0.insert(entries).await
    }
}

/// Confirms what it is about to write.
#[derive(Debug)]
struct ConfirmsEarly(Memory);

#[async_trait]
impl Lie for ConfirmsEarly {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let (memory, entries) = (self.0.clone(), entries.to_vec());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            memory.insert(&entries).await
        });
        Ok(())
    }
}

/// Takes what is old for not there, though it is there.
#[derive(Debug)]
struct Expires(Memory);

#[async_trait]
impl Lie for Expires {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        const RETENTION: Duration = Duration::from_secs(3600 * 24 * 365 * 10);
        known_but(&self.0, keys, |entry| entry.time.after(RETENTION) > Timestamp::now()).await
    }
}

/// "Insert, else error" (S22).
#[derive(Debug)]
struct FailsIfThere(Memory);

#[async_trait]
impl Lie for FailsIfThere {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let keys: Vec<DedupKey> = entries.iter().map(|entry| entry.key).collect();
        let known = self.0.contains(&keys).await?;
        if keys.iter().any(|key| known.entry(key).is_some()) {
            return Err(StoreError::new(ErrorKind::Misconfigured, "inserting", "unique constraint violated"));
        }
        self.0.insert(entries).await
    }
}

/// The last attempt wins.
#[derive(Debug)]
struct WritesOver(Memory, Latest);

#[async_trait]
impl Lie for WritesOver {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.1.lock().unwrap().extend(entries.iter().map(|entry| (entry.key, entry.clone())));
        Ok(())
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let latest = self.1.lock().unwrap();
        Ok(Known::new(keys.iter().filter_map(|key| latest.get(key).cloned()).collect()))
    }
}

/// Asks for one page and takes it for all.
#[derive(Debug)]
struct FirstHundred(Memory);

#[async_trait]
impl Lie for FirstHundred {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        self.0.contains(&keys[..keys.len().min(100)]).await
    }
}

/// Takes a question that is too long, and so was not answered, for "not seen" (S25).
#[derive(Debug)]
struct FailsOpen(Memory);

#[async_trait]
impl Lie for FailsOpen {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        if keys.len() > 1000 { Ok(Known::default()) } else { self.0.contains(keys).await }
    }
}

#[derive(Debug)]
struct EvictsEarly(Memory);

#[async_trait]
impl Lie for EvictsEarly {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict(&self, _retention: Duration) -> Result<Evicted, StoreError> {
        self.0.evict(Duration::ZERO).await
    }
}

/// Counts the age from the stamp of somebody else's clock.
#[derive(Debug)]
struct EvictsByStamp(Memory, Stamped);

#[async_trait]
impl Lie for EvictsByStamp {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.1.lock().unwrap().0.extend(entries.iter().map(|entry| (entry.key, entry.time)));
        self.0.insert(entries).await
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let gone = self.1.lock().unwrap().1.clone();
        known_but(&self.0, keys, |entry| !gone.contains(&entry.key)).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let mut stamped = self.1.lock().unwrap();
        let (stamps, gone) = &mut *stamped;
        gone.extend(stamps.iter().filter(|(_, time)| time.after(retention) < Timestamp::now()).map(|(key, _)| *key));
        Ok(Evicted::default())
    }
}

/// Evicts by what it is asked for now, though another endpoint has asked for more.
#[derive(Debug)]
struct EvictsByTheLast(Memory, Inserted);

#[async_trait]
impl Lie for EvictsByTheLast {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        self.1.lock().unwrap().0.extend(entries.iter().map(|entry| (entry.key, Instant::now())));
        self.0.insert(entries).await
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let gone = self.1.lock().unwrap().1.clone();
        known_but(&self.0, keys, |entry| !gone.contains(&entry.key)).await
    }
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let mut inserted = self.1.lock().unwrap();
        let (times, gone) = &mut *inserted;
        gone.extend(times.iter().filter(|(_, time)| time.elapsed() > retention).map(|(key, _)| *key));
        Ok(Evicted::default())
    }
}

#[derive(Debug)]
struct ForgetsReplies(Memory);

#[async_trait]
impl Lie for ForgetsReplies {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let entries: Vec<_> = entries.iter().map(|entry| DedupEntry { reply: None, ..entry.clone() }).collect();
        self.0.insert(&entries).await
    }
}

/// Keeps sixteen bytes of each key.
#[derive(Debug)]
struct Truncates(Memory, Truncated);

fn truncated(key: &DedupKey) -> [u8; 16] {
    *key.as_bytes().first_chunk().unwrap()
}

#[async_trait]
impl Lie for Truncates {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let mut kept = self.1.lock().unwrap();
        for entry in entries {
            kept.entry(truncated(&entry.key)).or_insert_with(|| entry.clone());
        }
        Ok(())
    }
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let kept = self.1.lock().unwrap();
        let found = |key: &DedupKey| Some(DedupEntry { key: *key, ..kept.get(&truncated(key))?.clone() });
        Ok(Known::new(keys.iter().filter_map(found).collect()))
    }
}

#[derive(Debug)]
struct NeverEvicts(Memory);

#[async_trait]
impl Lie for NeverEvicts {
    fn honest(&self) -> &Memory {
        &self.0
    }
    async fn evict(&self, _retention: Duration) -> Result<Evicted, StoreError> {
        Ok(Evicted::default())
    }
}
