//! Messages that a transaction of the user's own stores.

use azure_core::http::headers::AsHeaders;
use azure_data_cosmos::TransactionalBatch;
use hapax_core::{
    Enqueued,
    ids::PartitionKey,
    ports::{ErrorKind, StoreError},
};
use serde_json::Value;

use super::{CosmosDb, documents::EntityDocument, error::malformed, places::is_the_stores, waiting::Waiting};

const ENQUEUEING: &str = "enqueueing a message";

impl CosmosDb {
    /// Adds to `batch`, which is your own transaction on this store's container, what stores `enqueued` in the batch's
    /// partition. The endpoint that it was made for sends it, once it runs with
    /// [`sends_enqueued`](hapax_core::endpoint::EndpointBuilder::sends_enqueued) on this store; if the batch is not
    /// committed, nobody does. A message that is there already has the batch rolled back.
    ///
    /// The client library answers a batch that was rolled back with `Ok`: look at each of its results.
    ///
    /// Your documents are in this store's [container](super::CosmosDbOptions::container), under the partition key path
    /// that the store was [opened](super::CosmosDbOptions::partition_path) with, or the service refuses the batch. The partition keeps a
    /// tombstone, and together a dedup entry, for as long as dedup entries are [kept](super::CosmosDbOptions::keeps).
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) for a message of more than 1 400 KiB; a batch that has more than 2 MB with it or more
    /// than 100 operations is refused by the service. [`Misconfigured`](ErrorKind::Misconfigured) where the batch's
    /// partition key is not one text of at most 255 bytes, or is `hapax` or begins with `letters `.
    pub fn enqueue(&self, batch: TransactionalBatch, enqueued: &Enqueued) -> Result<TransactionalBatch, StoreError> {
        let key = enqueued.key().clone().in_partition(partition_of(&batch)?);
        let entity = enqueued.entity();
        let waiting = Waiting::of(entity, &Waiting::default());
        let document = EntityDocument::of(ENQUEUEING, &key, entity, &waiting, self.0.kept)?;
        let document = self.0.everything.placed(ENQUEUEING, document.partition(), &document)?;
        batch.create_item(&document).map_err(|e| malformed(ENQUEUEING, e))
    }
}

/// The one partition that a batch is for.
fn partition_of(batch: &TransactionalBatch) -> Result<PartitionKey, StoreError> {
    // What the service is told is the only form in which the client library tells it.
    let mut headers = batch.partition_key().as_headers().map_err(|e| malformed(ENQUEUEING, e))?;
    let told = headers.next().map(|(_, value)| value.as_str().to_owned()).unwrap_or_default();
    let unfit = |why: &str| {
        let why = format!("a message cannot be kept under the batch's partition key {told}: {why}");
        StoreError::new(ErrorKind::Misconfigured, ENQUEUEING, why)
    };
    let values: Vec<Value> = serde_json::from_str(&told).unwrap_or_default();
    let [Value::String(text)] = values.as_slice() else {
        return Err(unfit("it is not one text; give your documents a partition key that is"));
    };
    if is_the_stores(text) {
        return Err(unfit("that partition is the store's own; give yours another name"));
    }
    PartitionKey::parse(text.as_str()).map_err(|e| unfit(&format!("the {e}; give it another name")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_partition_is_read_from_the_batch() {
        for text in ["customer-7", "\"quoted\" \\ and/or spaced", "Grüße 𝄞"] {
            assert_eq!(partition_of(&TransactionalBatch::new(text.to_owned())).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_partition_that_cannot_have_a_message_is_refused_with_the_remedy() {
        let long = "x".repeat(256);
        for (batch, remedy) in [
            (TransactionalBatch::new(7), "that is"),
            (TransactionalBatch::new(("tenant", "customer")), "that is"),
            (TransactionalBatch::new("hapax"), "another name"),
            (TransactionalBatch::new("letters shop"), "another name"),
            (TransactionalBatch::new(long), "another name"),
            (TransactionalBatch::new(""), "another name"),
        ] {
            let error = partition_of(&batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
