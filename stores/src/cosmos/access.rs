//! Calls of the service: each with a time limit, counted, and its errors told apart.

use std::{future::Future, sync::Arc};

use azure_core::http::Etag;
use azure_data_cosmos::{
    ContainerClient, CosmosError, CosmosStatus, FeedScope, Query, TransactionalBatch,
    diagnostics::DiagnosticsContext,
    models::ResponseBody,
    options::{
        BatchOptions, BatchReplaceOptions, ItemReadOptions, ItemWriteOptions, Precondition, QueryOptions, Region,
    },
};
use futures_util::TryStreamExt;
use hapax_core::ports::{ErrorKind, StoreError};
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;

use super::{
    calls::Calls,
    documents::{ClockDocument, EntityDocument, MarkDocument},
    error,
    places::OWN_PARTITION,
};

/// How often something is read, each time without the regions whose answers did not count.
const REGIONS_TRIED: usize = 3;

/// One container.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) container: ContainerClient,
    pub(super) calls: Arc<Calls>,
    /// The property that has the partition of each document, where it is not the one that all of them have.
    pub(super) property: Option<Arc<str>>,
}

/// A document as it is written.
pub(super) enum Placed<'a, T> {
    AsItIs(&'a T),
    /// With its partition in the container's own property.
    Told(Value),
}

impl<T: Serialize> Serialize for Placed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AsItIs(document) => document.serialize(serializer),
            Self::Told(document) => document.serialize(serializer),
        }
    }
}

/// What the service says of a document that it has written.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Stamp {
    #[serde(rename = "_etag", default)]
    pub(super) etag: String,
    /// In seconds; told only where the document was asked for.
    #[serde(rename = "_ts", default)]
    pub(super) second: Option<u32>,
}

/// How a conditional write ended.
#[derive(Debug)]
pub(super) enum Written<T> {
    Done(T),
    /// What is stored is not what was expected. The operation of the batch that says so, from 0.
    Refused(usize),
}

/// One write of a batch.
#[derive(Debug)]
pub(super) enum Put<'a> {
    /// A dedup entry that is not there.
    Create(&'a MarkDocument),
    /// The entity, if it still has this etag.
    Replace(&'a str, &'a EntityDocument),
    /// An entity that is not there.
    CreateEntity(&'a EntityDocument),
}

impl Access {
    /// The document with its partition where this container has it.
    pub(super) fn placed<'a, T: Serialize>(
        &self,
        doing: &'static str,
        partition: &str,
        document: &'a T,
    ) -> Result<Placed<'a, T>, StoreError> {
        let Some(property) = &self.property else { return Ok(Placed::AsItIs(document)) };
        let mut document = serde_json::to_value(document).map_err(|e| error::malformed(doing, e))?;
        if document.get(&**property).is_some() {
            let why = format!("the document has a property {property} already, and the partition key is to be there");
            return Err(StoreError::new(ErrorKind::Misconfigured, doing, why));
        }
        document[&**property] = partition.into();
        Ok(Placed::Told(document))
    }

    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        doing: &'static str,
        partition: &str,
        id: &str,
    ) -> Result<Option<T>, StoreError> {
        for _ in 0..REGIONS_TRIED {
            let options = ItemReadOptions::default().with_operation_options(self.calls.reading());
            let call = self.container.read_item(partition.to_owned(), id, Some(options));
            let (asked, found) = match self.calls.in_time(doing, false, call).await? {
                Ok(response) => (self.calls.heard(&response.diagnostics()), Some(response)),
                Err(e) if e.status().is_not_found() => {
                    let diagnostics = e.diagnostics();
                    (diagnostics.map(|diagnostics| self.calls.heard(&diagnostics)).unwrap_or_default(), None)
                }
                Err(e) => return Err(self.tallied(e, |e| error::of_read(doing, e))),
            };
            if self.counts(doing, &asked).await? {
                let Some(response) = found else { return Ok(None) };
                return response.into_model().map(Some).map_err(|e| error::malformed(doing, e));
            }
        }
        Err(elsewhere(doing))
    }

    /// Everything that `query` finds, up to `limit`.
    pub(super) async fn query<T: DeserializeOwned + Send + 'static>(
        &self,
        doing: &'static str,
        query: Query,
        scope: FeedScope,
        limit: usize,
    ) -> Result<Vec<T>, StoreError> {
        for _ in 0..REGIONS_TRIED {
            if let Some(found) = self.query_once(doing, query.clone(), scope.clone(), limit).await? {
                return Ok(found);
            }
        }
        Err(elsewhere(doing))
    }

    /// `None` where a region has answered that does not count.
    async fn query_once<T: DeserializeOwned + Send + 'static>(
        &self,
        doing: &'static str,
        query: Query,
        scope: FeedScope,
        limit: usize,
    ) -> Result<Option<Vec<T>>, StoreError> {
        let mut options = QueryOptions::default().with_operation_options(self.calls.reading());
        // Only what waits and what is over is looked for in all partitions, by an index: of them there are as many as there are.
        options.feed = options.feed.with_max_fan_out(u32::MAX);
        let failed = |e| self.tallied(e, |e| error::of_read(doing, e));
        let call = self.container.query_items::<T>(query, scope, Some(options));
        let mut pages = Box::pin(self.calls.in_time(doing, false, call).await?.map_err(failed)?.into_pages());
        let (mut found, mut has_counted) = (Vec::new(), false);
        while found.len() < limit {
            let Some(page) = self.calls.in_time(doing, false, pages.try_next()).await?.map_err(failed)? else { break };
            let asked = self.calls.heard(&page.diagnostics());
            // The client library reads an empty body as a page in which nothing was found; a page tells what it was charged.
            if page.headers().request_charge().is_none() {
                let why = "the answer does not tell what it was charged, so it is not whole";
                return Err(StoreError::new(ErrorKind::Unavailable, doing, why));
            }
            // What the client library has left over of the pages before, whose regions have counted, it gives without asking.
            let is_left_over = has_counted && page.diagnostics().request_count() == 0;
            if !is_left_over && !self.counts(doing, &asked).await? {
                return Ok(None);
            }
            has_counted = true;
            found.extend(page.into_items());
        }
        found.truncate(limit);
        Ok(Some(found))
    }

    /// Stores a document that is not there.
    pub(super) async fn create<T: Serialize + Sync>(
        &self,
        doing: &'static str,
        (partition, id): (&str, &str),
        document: &T,
        told: bool,
    ) -> Result<Written<Stamp>, StoreError> {
        let document = self.placed(doing, partition, document)?;
        let call = self.container.create_item(partition.to_owned(), id, &document, Some(self.written(told, None)));
        self.end_write(doing, call, |status| status.is_conflict()).await
    }

    /// Stores a document over the one that has this etag.
    pub(super) async fn replace<T: Serialize + Sync>(
        &self,
        doing: &'static str,
        (partition, id, etag): (&str, &str, &str),
        document: &T,
        told: bool,
    ) -> Result<Written<Stamp>, StoreError> {
        let (document, options) = (self.placed(doing, partition, document)?, self.written(told, Some(etag)));
        let call = self.container.replace_item(partition.to_owned(), id, &document, Some(options));
        self.end_write(doing, call, is_other).await
    }

    /// Whether the document that has this etag is gone.
    pub(super) async fn delete(
        &self,
        doing: &'static str,
        partition: &str,
        id: &str,
        etag: &str,
    ) -> Result<bool, StoreError> {
        let call = self.container.delete_item(partition.to_owned(), id, Some(self.written(false, Some(etag))));
        Ok(matches!(self.end_write(doing, call, is_other).await?, Written::Done(_)))
    }

    /// The service's clock, in seconds: the stamp of a document that is written for it.
    pub(super) async fn second(&self, doing: &'static str) -> Result<u32, StoreError> {
        let clock = ClockDocument { id: "clock", pk: OWN_PARTITION };
        let document = self.placed(doing, OWN_PARTITION, &clock)?;
        let call = self.container.upsert_item(OWN_PARTITION, clock.id, &document, Some(self.written(true, None)));
        match self.end_write(doing, call, |_| false).await {
            Ok(Written::Done(Stamp { second: Some(second), .. })) => Ok(second),
            Ok(_) => Err(StoreError::new(ErrorKind::Unavailable, doing, "the service did not tell its time")),
            // Whether the clock was written matters to nobody.
            Err(e) if e.is_unknown_outcome() => {
                Err(StoreError::new(ErrorKind::Unavailable, doing, "the service did not tell its time").caused_by(e))
            }
            Err(e) => Err(e),
        }
    }

    /// All of it or nothing. A batch that fails comes back as success: each of its results is looked at.
    pub(super) async fn batch(
        &self,
        doing: &'static str,
        partition: &str,
        puts: &[Put<'_>],
        told: bool,
    ) -> Result<Written<Vec<Stamp>>, StoreError> {
        let mut batch = TransactionalBatch::new(partition.to_owned());
        for put in puts {
            let added = match put {
                Put::Create(document) => batch.create_item(self.placed(doing, partition, *document)?),
                Put::CreateEntity(document) => batch.create_item(self.placed(doing, partition, *document)?),
                Put::Replace(etag, document) => {
                    let options = BatchReplaceOptions::default()
                        .with_precondition(Precondition::if_match(Etag::from((*etag).to_owned())));
                    let id = document.id().to_owned();
                    batch.replace_item(id, self.placed(doing, partition, *document)?, Some(options))
                }
            };
            batch = added.map_err(|e| error::malformed(doing, e))?;
        }
        let options = BatchOptions::default().with_operation_options(self.calls.writing(told));
        let call = self.container.execute_transactional_batch(batch, Some(options));
        let response = match self.calls.in_time(doing, true, call).await? {
            Ok(response) => response,
            Err(e) => return Err(self.tallied(e, |e| error::of_write(doing, e))),
        };
        self.tally(&response.diagnostics());
        self.calls.regions.wrote_in(&response.diagnostics());
        let unread = |e: CosmosError| {
            StoreError::new(ErrorKind::UnknownOutcome, doing, "the answer cannot be read").caused_by(e)
        };
        let model = response.into_model().map_err(unread)?;
        let results = model.results();
        let failed = results.iter().position(|result| !result.is_success() && result.status_code() != 424);
        if let Some(index) = failed {
            return match (puts.get(index), results[index].status_code()) {
                (Some(Put::Create(_) | Put::CreateEntity(_)), 409) | (Some(Put::Replace(..)), 404 | 412) => {
                    Ok(Written::Refused(index))
                }
                (_, status) => Err(error::of_rolled_back(doing, status)),
            };
        }
        if results.len() != puts.len() || results.iter().any(|result| !result.is_success()) {
            let why = format!("of {} writes in a batch, {} were answered", puts.len(), results.len());
            return Err(StoreError::new(ErrorKind::UnknownOutcome, doing, why));
        }
        let stamps = results.iter().map(|result| {
            let told = result.into_model::<Stamp>().map_err(unread)?.unwrap_or_default();
            Ok(Stamp { etag: result.etag().map_or(told.etag, str::to_owned), second: told.second })
        });
        Ok(Written::Done(stamps.collect::<Result<_, StoreError>>()?))
    }

    async fn end_write(
        &self,
        doing: &'static str,
        call: impl Future<Output = azure_data_cosmos::Result<azure_data_cosmos::models::ItemResponse>> + Send,
        is_refusal: fn(&CosmosStatus) -> bool,
    ) -> Result<Written<Stamp>, StoreError> {
        match self.calls.in_time(doing, true, call).await? {
            Ok(response) => {
                self.tally(&response.diagnostics());
                self.calls.regions.wrote_in(&response.diagnostics());
                let etag = response.headers().etag().map(ToString::to_string);
                let stamp = stamp_in(response.into_body()).unwrap_or_default();
                Ok(Written::Done(Stamp { etag: etag.unwrap_or(stamp.etag), second: stamp.second }))
            }
            Err(e) if is_refusal(&e.status()) => {
                if let Some(diagnostics) = e.diagnostics() {
                    self.tally(&diagnostics);
                }
                Ok(Written::Refused(0))
            }
            Err(e) => Err(self.tallied(e, |e| error::of_write(doing, e))),
        }
    }

    fn written(&self, told: bool, etag: Option<&str>) -> ItemWriteOptions {
        let options = ItemWriteOptions::default().with_operation_options(self.calls.writing(told));
        match etag {
            Some(etag) => options.with_precondition(Precondition::if_match(Etag::from(etag.to_owned()))),
            None => options,
        }
    }

    fn tally(&self, diagnostics: &DiagnosticsContext) {
        self.calls.tally(diagnostics);
    }

    fn tallied(&self, error: CosmosError, told: impl FnOnce(CosmosError) -> StoreError) -> StoreError {
        if let Some(diagnostics) = error.diagnostics() {
            self.tally(&diagnostics);
        }
        told(error)
    }

    /// Whether what was read counts: only if the region that takes the writes has answered. Another may not have them yet,
    /// and would say "not seen" of what is over; it is not asked again.
    async fn counts(&self, doing: &'static str, asked: &[Region]) -> Result<bool, StoreError> {
        if self.calls.regions.are_home(asked) {
            return Ok(true);
        }
        Box::pin(self.second(doing)).await?; // The writes may have moved.
        Ok(self.calls.regions.are_home_or_away(asked))
    }
}

/// A read that no region answered that counts.
fn elsewhere(doing: &'static str) -> StoreError {
    let why = "only regions that do not take the writes have answered, where they may not have arrived yet; prefer the \
               region that takes the writes in the client's routing strategy";
    StoreError::new(ErrorKind::Unavailable, doing, why)
}

/// Whether what is stored is not what a write over it has expected.
fn is_other(status: &CosmosStatus) -> bool {
    status.is_precondition_failed() || status.is_not_found()
}

fn stamp_in(body: ResponseBody) -> Option<Stamp> {
    if body.is_empty() { None } else { body.into_single().ok() }
}
