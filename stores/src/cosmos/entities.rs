//! Entities, each one document under its etag.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax_core::{
    entity::{DedupEntry, Entity, Expected, Version},
    ids::{DedupKey, EntityKey, Scope},
    ports::{EntityStore, ErrorKind, Finished, Loaded, Pending, Saved, StoreCapabilities, StoreError, Stored},
};

use super::{
    CosmosDb, Layout, NAME,
    access::{Put, Stamp, Written},
    documents::{DOCUMENT_BYTES_MAX, ENTITY_BYTES_MAX, EntityDocument, MarkDocument},
    marks::{MARKS_MAX, outcome_unknown},
    places::{entity_id, partition_of},
    waiting::Waiting,
};

const LOADING: &str = "loading an entity";
const SAVING: &str = "saving an entity";
const FINISHING: &str = "marking messages and cleaning up";

/// An entity as it is to be stored, and over what.
struct Draft {
    /// `None`: over nothing.
    etag: Option<String>,
    waiting: Waiting,
    document: EntityDocument,
}

impl Draft {
    /// `None` where the expected version is none of this store's, and so not what is stored.
    fn of(key: &EntityKey, expected: &Expected, entity: &Entity, kept: Duration) -> Result<Option<Self>, StoreError> {
        let (etag, before) = match expected {
            Expected::Absent => (None, Waiting::default()),
            Expected::Version(version) => {
                let (etag, before) = Waiting::of_version(version);
                (Some(etag.to_owned()), before)
            }
        };
        let waiting = Waiting::of(entity, &before);
        let document = EntityDocument::of(SAVING, key, entity, &waiting, kept)?;
        // Without an etag the service would not compare anything.
        let is_ours = etag.as_ref().is_none_or(|etag| !etag.is_empty());
        Ok(is_ours.then_some(Self { etag, waiting, document }))
    }

    /// Whether the service is to tell when it was written: the version has to carry that for what waits.
    const fn told(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn put(&self) -> Put<'_> {
        match &self.etag {
            Some(etag) => Put::Replace(etag, &self.document),
            None => Put::CreateEntity(&self.document),
        }
    }

    fn version(&self, stamp: &Stamp) -> Result<Version, StoreError> {
        if stamp.etag.is_empty() {
            let why = "the service did not tell under which etag it was stored";
            return Err(StoreError::new(ErrorKind::UnknownOutcome, SAVING, why));
        }
        Ok(self.waiting.version(&stamp.etag, stamp.second))
    }
}

impl CosmosDb {
    async fn document(
        &self,
        doing: &'static str,
        (partition, id): (&str, &str),
    ) -> Result<Option<EntityDocument>, StoreError> {
        self.0.everything.read(doing, partition, id).await
    }

    async fn stored(&self, key: &EntityKey) -> Result<Option<Stored>, StoreError> {
        let document = self.document(LOADING, (&partition_of(key), &entity_id(key))).await?;
        document.map(|document| document.into_stored(key)).transpose()
    }

    /// How a refused save ended: the client library may have repeated it and met its own write. `None` where another's is
    /// stored.
    ///
    /// What cannot be read now says nothing of the write, and neither does its error.
    async fn ghost(&self, draft: &Draft) -> Result<Option<Version>, StoreError> {
        let place = (draft.document.partition(), draft.document.id());
        let stored = self.document(SAVING, place).await.map_err(|error| {
            let why = "it was refused, and whether that was by an earlier try of its own cannot be looked up";
            StoreError::new(ErrorKind::UnknownOutcome, SAVING, why).caused_by(error)
        })?;
        match stored {
            Some(stored) if stored.save == draft.document.save => stored.version().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether `mark` is stored, with its own attempt.
    async fn is_there(&self, doing: &'static str, partition: &str, mark: &MarkDocument) -> Result<bool, StoreError> {
        let found = self.0.everything.read::<MarkDocument>(doing, partition, &mark.id).await?;
        Ok(found.is_some_and(|found| found.attempt == mark.attempt))
    }

    async fn put_alone(&self, doing: &'static str, draft: &Draft) -> Result<Saved, StoreError> {
        let (entities, document) = (&self.0.everything, &draft.document);
        let (partition, id) = (document.partition(), document.id());
        let written = match &draft.etag {
            None => entities.create(doing, (partition, id), document, draft.told()).await?,
            Some(etag) => entities.replace(doing, (partition, id, etag), document, draft.told()).await?,
        };
        match written {
            Written::Done(stamp) => draft.version(&stamp).map(Saved::At),
            Written::Refused(_) => Ok(self.ghost(draft).await?.map_or(Saved::Conflict, Saved::At)),
        }
    }

    /// Stores the entity and `marks` in one batch. A mark of this attempt that is there already is left out, and `marks` is what is
    /// left; so is another attempt's where messages are finished. Where they were handled just now, that is a lost race.
    async fn put_with(
        &self,
        doing: &'static str,
        draft: &Draft,
        marks: &mut Vec<MarkDocument>,
    ) -> Result<Saved, StoreError> {
        while !marks.is_empty() {
            let puts: Vec<Put<'_>> = std::iter::once(draft.put()).chain(marks.iter().map(Put::Create)).collect();
            match self.0.everything.batch(doing, draft.document.partition(), &puts, draft.told()).await? {
                Written::Done(stamps) => {
                    let stamp = stamps.into_iter().next().unwrap_or_default();
                    return draft.version(&stamp).map(Saved::At);
                }
                Written::Refused(0) => return Ok(self.ghost(draft).await?.map_or(Saved::Conflict, Saved::At)),
                Written::Refused(index) => {
                    let mark = marks.remove(index - 1);
                    if doing == SAVING && !self.is_there(doing, draft.document.partition(), &mark).await? {
                        return Ok(Saved::Conflict);
                    }
                }
            }
        }
        self.put_alone(doing, draft).await
    }

    /// Marks, and cleans up where the entity is still as it was.
    async fn finish_with(
        &self,
        draft: Option<Draft>,
        partition: &str,
        mut marks: Vec<MarkDocument>,
    ) -> Result<Finished, StoreError> {
        let Some(draft) = draft else {
            self.put_marks(FINISHING, partition, marks).await?;
            return Ok(Finished::Left);
        };
        let mut last = marks.split_off(marks.len() - fitting(&draft.document, &marks));
        let some = !marks.is_empty();
        self.put_marks(FINISHING, partition, marks).await?;
        // From here on an error cannot say that nothing was written, if some marks were.
        let unless_some = |e| if some { outcome_unknown(FINISHING, e) } else { e };
        match self.put_with(FINISHING, &draft, &mut last).await.map_err(unless_some)? {
            Saved::At(version) => Ok(Finished::Cleaned(Some(version))),
            Saved::Conflict => {
                self.put_marks(FINISHING, partition, last).await.map_err(unless_some)?;
                Ok(Finished::Left)
            }
        }
    }
}

/// How many of the last of `marks` go into a batch with `document`.
fn fitting(document: &EntityDocument, marks: &[MarkDocument]) -> usize {
    let mut bytes = document.bytes();
    let fits = |mark: &&MarkDocument| {
        bytes += mark.bytes();
        bytes <= DOCUMENT_BYTES_MAX
    };
    marks.iter().rev().take(MARKS_MAX).take_while(fits).count()
}

#[async_trait]
impl EntityStore for CosmosDb {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            name: NAME,
            entity_bytes_max: ENTITY_BYTES_MAX,
            together: self.0.layout == Layout::Together,
            processed_max: MARKS_MAX,
            durable: true,
        }
    }

    async fn load(&self, key: &EntityKey, ids: &[DedupKey]) -> Result<Loaded, StoreError> {
        let stored = self.stored(key).await?;
        if self.0.layout == Layout::Apart {
            return Ok(Loaded { stored, known: None });
        }
        // Asked when the entity is here, never beside it: what was over before that is known then.
        let entries = stored.iter().flat_map(|stored| &stored.entity.outbox).map(|entry| entry.key);
        let mut keys: Vec<DedupKey> = ids.iter().copied().chain(entries).collect();
        keys.sort_unstable();
        keys.dedup();
        let known = self.marks_in(&partition_of(key), &keys).await?;
        Ok(Loaded { stored, known: Some(known) })
    }

    async fn save(
        &self,
        key: &EntityKey,
        expected: &Expected,
        entity: &Entity,
        processed: &[DedupEntry],
    ) -> Result<Saved, StoreError> {
        if self.0.layout == Layout::Apart && !processed.is_empty() {
            let why = "the dedup entries are kept in another container and cannot be saved with the entity";
            return Err(StoreError::new(ErrorKind::Misconfigured, SAVING, why));
        }
        let Some(draft) = Draft::of(key, expected, entity, self.0.kept)? else { return Ok(Saved::Conflict) };
        let mut marks = self.mark_documents(&partition_of(key), processed)?;
        if fitting(&draft.document, &marks) < marks.len() {
            let bytes = draft.document.bytes() + marks.iter().map(MarkDocument::bytes).sum::<usize>();
            let why = format!(
                "{} dedup entries, about {bytes} bytes with it, are more than the {MARKS_MAX} entries or the {DOCUMENT_BYTES_MAX} \
                 bytes of one batch: save fewer messages at a time, or send references",
                marks.len()
            );
            return Err(StoreError::new(ErrorKind::TooLarge, SAVING, why));
        }
        self.put_with(SAVING, &draft, &mut marks).await
    }

    async fn finish(
        &self,
        key: &EntityKey,
        done: &[DedupEntry],
        clean_up: Option<(&Version, &Entity)>,
    ) -> Result<Option<Finished>, StoreError> {
        if self.0.layout == Layout::Apart {
            return Ok(None);
        }
        let partition = partition_of(key);
        let marks = self.mark_documents(&partition, done)?;
        let Some((version, entity)) = clean_up else {
            self.put_marks(FINISHING, &partition, marks).await?;
            return Ok(Some(Finished::Cleaned(None)));
        };
        let draft = Draft::of(key, &Expected::Version(version.clone()), entity, self.0.kept)?;
        self.finish_with(draft, &partition, marks).await.map(Some)
    }

    async fn version(&self, key: &EntityKey) -> Result<Option<Version>, StoreError> {
        let document = self.document("asking for a version", (&partition_of(key), &entity_id(key))).await?;
        document.map(|document| document.version()).transpose()
    }

    async fn pending(
        &self,
        scope: &Arc<Scope>,
        older_than: Duration,
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<Pending>, StoreError> {
        self.list_pending(scope, older_than, after, limit).await
    }

    async fn purge(&self, scope: &Arc<Scope>, older_than: Duration, limit: usize) -> Result<usize, StoreError> {
        self.purge_tombstones(scope, older_than, limit).await
    }
}
