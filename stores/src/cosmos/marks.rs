//! Dedup entries, each one document, which the service removes when its time is over.

use std::time::Duration;

use async_trait::async_trait;
use azure_data_cosmos::{FeedScope, Query};
use futures_util::{StreamExt, stream};
use hapax_core::{
    entity::DedupEntry,
    ids::DedupKey,
    ports::{DedupCapabilities, DedupStore, ErrorKind, Evicted, Known, LongMemory, StoreError},
};

use super::{
    CosmosDb, Layout, NAME,
    access::{Put, Written},
    documents::{DOCUMENT_BYTES_MAX, MarkDocument, REPLY_BYTES_MAX},
    error,
};

/// What the service takes in one batch is a hundred writes, and one of them may be the entity's.
pub(super) const MARKS_MAX: usize = 99;
/// Keys asked for in one query: as many as are in one batch.
const KEYS_MAX: usize = 100;
/// Requests of one call that are under way at a time, where each entry is in a partition of its own.
const SIDE_BY_SIDE: usize = 16;

const ASKING: &str = "asking for dedup entries";
const ADDING: &str = "adding dedup entries";

impl CosmosDb {
    pub(super) fn mark_documents(
        &self,
        partition: &str,
        marks: &[DedupEntry],
    ) -> Result<Vec<MarkDocument>, StoreError> {
        let mut documents: Vec<MarkDocument> = Vec::with_capacity(marks.len());
        for mark in marks {
            let document = MarkDocument::of(partition, mark, self.0.kept)?;
            // A batch that creates one document twice fails as a whole.
            if !documents.iter().any(|other| other.id == document.id) {
                documents.push(document);
            }
        }
        Ok(documents)
    }

    /// Adds `marks` to a partition, in batches; those that are there stay as they are.
    pub(super) async fn put_marks(
        &self,
        doing: &'static str,
        partition: &str,
        mut marks: Vec<MarkDocument>,
    ) -> Result<(), StoreError> {
        let mut some = false;
        while !marks.is_empty() {
            let mut bytes = 0;
            let fits = |mark: &&MarkDocument| {
                bytes += mark.bytes();
                bytes <= DOCUMENT_BYTES_MAX
            };
            // Each alone is small enough, or it would not have been made.
            let count = marks.iter().take(MARKS_MAX).take_while(fits).count().max(1);
            let written = self.put_some(doing, partition, &marks[..count]).await;
            match written.map_err(|e| if some { outcome_unknown(doing, e) } else { e })? {
                Written::Done(()) => {
                    some = true;
                    marks.drain(..count);
                }
                Written::Refused(index) => drop(marks.remove(index)),
            }
        }
        Ok(())
    }

    async fn put_some(
        &self,
        doing: &'static str,
        partition: &str,
        marks: &[MarkDocument],
    ) -> Result<Written<()>, StoreError> {
        if let [mark] = marks {
            // That it is there is success as well.
            self.0.marks.create(doing, (partition, &mark.id), mark, false).await?;
            return Ok(Written::Done(()));
        }
        let puts: Vec<Put<'_>> = marks.iter().map(Put::Create).collect();
        Ok(match self.0.marks.batch(doing, partition, &puts, false).await? {
            Written::Done(_) => Written::Done(()),
            Written::Refused(index) => Written::Refused(index),
        })
    }

    /// Which of `keys` are over, in a partition that has both the entity and its marks.
    pub(super) async fn marks_in(&self, partition: &str, keys: &[DedupKey]) -> Result<Known, StoreError> {
        match keys {
            [] => Ok(Known::default()),
            [key] => {
                let found = self.0.marks.read::<MarkDocument>(ASKING, partition, &key.to_string()).await?;
                Ok(Known::new(found.map(MarkDocument::into_entry).transpose()?.into_iter().collect()))
            }
            keys => self.query_marks(FeedScope::partition(partition.to_owned()), keys).await,
        }
    }

    async fn query_marks(&self, scope: FeedScope, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let mut found = Vec::new();
        for keys in keys.chunks(KEYS_MAX) {
            let names: Vec<String> = (0..keys.len()).map(|index| format!("@k{index}")).collect();
            let mut query = Query::from(format!("SELECT * FROM c WHERE c.id IN ({})", names.join(", ")));
            for (name, key) in names.into_iter().zip(keys) {
                query = query.with_parameter(name, key.to_string()).map_err(|e| error::malformed(ASKING, e))?;
            }
            // No limit: each key is in one partition, but nothing is lost if it were in two.
            let marks = self.0.marks.query::<MarkDocument>(ASKING, query, scope.clone(), usize::MAX).await?;
            for mark in marks {
                found.push(mark.into_entry()?);
            }
        }
        Ok(Known::new(found))
    }

    async fn read_marks(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let reads = keys.iter().map(|key| {
            let id = key.to_string();
            async move { self.0.marks.read::<MarkDocument>(ASKING, &id, &id).await }
        });
        let mut reads = Box::pin(stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(SIDE_BY_SIDE));
        let mut found = Vec::new();
        while let Some(read) = reads.next().await {
            found.extend(read?.map(MarkDocument::into_entry).transpose()?);
        }
        Ok(Known::new(found))
    }

    async fn insert_apart(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        let documents = entries.iter().map(|entry| MarkDocument::of(&entry.key.to_string(), entry, self.0.kept));
        // All are made before the first is written.
        let documents: Vec<MarkDocument> = documents.collect::<Result<_, _>>()?;
        let several = documents.len() > 1;
        let inserts = documents
            .iter()
            .map(|mark| async move { self.0.marks.create(ADDING, (&mark.id, &mark.id), mark, false).await.map(drop) });
        let mut inserts = Box::pin(stream::iter(inserts.collect::<Vec<_>>()).buffer_unordered(SIDE_BY_SIDE));
        while let Some(inserted) = inserts.next().await {
            inserted.map_err(|e| if several { outcome_unknown(ADDING, e) } else { e })?;
        }
        Ok(())
    }
}

/// Of a call that wrote in several steps, one of which failed: that one may have written nothing, the call has.
pub(super) fn outcome_unknown(doing: &'static str, error: StoreError) -> StoreError {
    if error.is_unknown_outcome() {
        return error;
    }
    StoreError::new(ErrorKind::UnknownOutcome, doing, "a part of it is written, and the rest is not known")
        .caused_by(error)
}

#[async_trait]
impl DedupStore for CosmosDb {
    fn dedup_capabilities(&self) -> DedupCapabilities {
        let alone = self.0.layout == Layout::Apart;
        DedupCapabilities {
            name: NAME,
            keeps: Some(self.0.keeps),
            alone,
            durable: true,
            consistent: true,
            reply_bytes_max: REPLY_BYTES_MAX,
        }
    }

    /// [Together](Layout::Together) it asks every partition: for tests and for people, never for a message.
    async fn contains(&self, keys: &[DedupKey]) -> Result<Known, StoreError> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        match self.0.layout {
            Layout::Together => self.query_marks(FeedScope::full_container(), &keys).await,
            Layout::Apart => self.read_marks(&keys).await,
        }
    }

    /// [Together](Layout::Together) it is refused: an entry has its place beside its entity, and nobody has named that.
    async fn insert(&self, entries: &[DedupEntry]) -> Result<(), StoreError> {
        if self.0.layout == Layout::Apart || entries.is_empty() {
            return self.insert_apart(entries).await;
        }
        let why = "dedup entries are kept with their entities here, and cannot be added without; keep both in this store, or \
                   open it with `layout(Layout::Apart)`";
        Err(StoreError::new(ErrorKind::Misconfigured, ADDING, why))
    }

    /// Removes nothing: the service does, when the time of an entry is over.
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError> {
        let keeps = self.0.keeps;
        if retention <= keeps {
            return Ok(Evicted::default());
        }
        let why = format!(
            "a retention of {retention:?} is longer than the {keeps:?} for which dedup entries are kept; lower the retention \
             or open a store that `keeps` them for longer"
        );
        Err(StoreError::new(ErrorKind::Misconfigured, "evicting", why))
    }

    fn long_memory(&self) -> Option<&dyn LongMemory> {
        None
    }
}
