//! Messages that a transaction of the user's own stores.

use aws_sdk_dynamodb::types::TransactWriteItem;
use hapax_core::{
    Enqueued,
    ports::{ErrorKind, StoreError},
};

use super::{DynamoDb, call::Doing, entity, write::entity_put};

impl DynamoDb {
    /// What stores `enqueued` as a part of a transaction of your own, on this store's table and on whichever others: add it to
    /// the actions of your `TransactWriteItems`. The endpoint that it was made for sends it, once it runs with
    /// [`sends_enqueued`](hapax_core::endpoint::EndpointBuilder::sends_enqueued); if the transaction is not done, nobody does.
    /// A message that is there already cancels the transaction.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) for a message that does not fit into one item, some 390 KB; a transaction that has more
    /// than 4 MB with it or more than 100 actions is refused by the service.
    pub fn enqueue(&self, enqueued: &Enqueued) -> Result<TransactWriteItem, StoreError> {
        let doing = Doing::writing("enqueueing a message");
        let written = entity::write(doing, enqueued.key(), None, enqueued.entity(), false, self.0.clock.now())?;
        if !written.puts.is_empty() {
            let why =
                format!("the message has {} bytes and does not fit into one item: send a reference", written.bytes);
            return Err(doing.error(ErrorKind::TooLarge, why));
        }
        self.action(doing, |put| entity_put(put, &written))
    }
}
