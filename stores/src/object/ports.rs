//! The dedup store.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use hapax_core::{
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupCapabilities, DedupStore, ErrorKind, Evicted, Known, LongMemory, StoreError},
};

use super::{ObjectDedup, Shared, names::Bucket, objects::Created, record};

const ASKING: &str = "asking for dedup entries";
const INSERTING: &str = "inserting dedup entries";

/// An entry that was created longer after its mark gets another mark: by then the first may have been removed as one
/// whose writer has died. Half of [`ABANDONED`](super::evict::ABANDONED).
const MARK_FRESH: Duration = Duration::from_secs(5 * 60);

#[async_trait]
impl DedupStore for ObjectDedup {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        DedupCapabilities {
            name: "object",
            keeps: None,
            alone: true,
            durable: self.0.durable,
            consistent: true,
            reply_bytes_max: usize::MAX,
        }
    }

    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let (mut waiting, mut looks, mut known) = (keys.iter(), FuturesUnordered::new(), Vec::new());
        loop {
            looks.extend(waiting.by_ref().take(self.0.parallel - looks.len()).map(|key| self.0.entry(key)));
            match looks.next().await {
                Some(found) => known.extend(found?),
                None => break,
            }
        }
        Ok(Known::new(known))
    }

    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let (mut waiting, mut writes) = (entries.iter(), FuturesUnordered::new());
        loop {
            writes.extend(waiting.by_ref().take(self.0.parallel - writes.len()).map(|entry| self.0.insert(entry)));
            let Some(written) = writes.next().await else { return Ok(()) };
            match written {
                Ok(()) => {}
                Err(error) if entries.len() == 1 => return Err(error),
                // Whatever happened to this one, others are written or under way.
                Err(error) => {
                    let why = format!("{} has not confirmed all of them: insert them again", self.0.place);
                    return Err(StoreError::new(ErrorKind::UnknownOutcome, INSERTING, why).caused_by(error));
                }
            }
        }
    }

    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        self.0.evict(retention).await
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}

impl Shared {
    /// The entry of `key`, if it is there.
    async fn entry(&self, key: &DedupKey) -> Result<Option<DedupEntry>, StoreError> {
        let path = self.names.entry(key);
        let read = self.objects.get_entry(&path).await.map_err(|failure| failure.of_read(&self.place, ASKING))?;
        let entry = read.map(|bytes| record::decode(key, &bytes)).transpose();
        entry.map_err(|e| {
            let why = format!("the object {path} in {} cannot be read by this program", self.place);
            StoreError::new(ErrorKind::Malformed, ASKING, why).caused_by(e)
        })
    }

    /// Once it has returned, the entry is there and so is a mark to evict it by.
    async fn insert(&self, entry: &DedupEntry) -> Result<(), StoreError> {
        let body = record::encode(entry)
            .map_err(|e| StoreError::new(ErrorKind::Malformed, INSERTING, "an entry cannot be written").caused_by(e))?;
        // First, for an entry without a mark would stay for ever. As long as there is no more than the mark, nothing is written.
        let begun = Instant::now();
        self.mark(&entry.key).await?;
        let created = self.objects.create(&self.names.entry(&entry.key), body).await;
        match created.map_err(|failure| failure.of_write(&self.place, INSERTING))? {
            Created::New if begun.elapsed() < MARK_FRESH => Ok(()),
            Created::New => self.mark(&entry.key).await,
            Created::Refused => self.confirm(&entry.key).await,
        }
    }

    /// Writes a mark of `key` into the bucket of the time.
    async fn mark(&self, key: &DedupKey) -> Result<(), StoreError> {
        let mark = self.names.mark(Bucket::of(self.clock.about(), self.bucket), key);
        self.objects.touch(&mark).await.map_err(|failure| failure.of_read(&self.place, INSERTING))
    }

    /// Sees the entry that a create was refused for. Other conflicts say the same: a container that is being deleted, two
    /// requests at once; taken for an entry they would double the effect.
    ///
    /// An entry that was there is evicted by its own age, perhaps at once (promise 3: nothing has changed). Then it was
    /// inserted longer ago than the retention, and so was the message handled.
    async fn confirm(&self, key: &DedupKey) -> Result<(), StoreError> {
        if self.entry(key).await.map_err(unconfirmed)?.is_some() {
            return Ok(());
        }
        let why = format!("{} says that there is one and shows none: insert it again", self.place);
        Err(StoreError::new(ErrorKind::UnknownOutcome, INSERTING, why))
    }
}

/// A look at what may have been one's own write. What cannot be read stays so.
fn unconfirmed(error: StoreError) -> StoreError {
    match error.kind() {
        ErrorKind::Malformed => error,
        _ => StoreError::new(ErrorKind::UnknownOutcome, INSERTING, "a look at what is there failed: insert it again")
            .caused_by(error),
    }
}
