//! Workers whose store is a service; the place of it is a kind, a space, and the service's address.

#[cfg(feature = "dynamodb")]
use hapax::DynamoDb;
use hapax::SqliteQueue;
#[cfg(feature = "cosmos")]
use hapax::{CosmosDb, stores::cosmos::Layout};
#[cfg(feature = "cosmos")]
use hapax_tests::CosmosDatabase;
#[cfg(feature = "dynamodb")]
use hapax_tests::DynamoDbTable;

use crate::{Store, fuse::Fuse};

#[cfg(feature = "dynamodb")]
impl Store for DynamoDb {
    async fn close(&self) {}
}

#[cfg(feature = "cosmos")]
impl Store for CosmosDb {
    async fn close(&self) {}
}

/// Whether it is the place of a service.
pub(crate) fn is_one(place: &str) -> bool {
    ["dynamodb ", "cosmos "].iter().any(|kind| place.starts_with(kind))
}

/// Does the task on what is kept there under `name`.
pub(crate) async fn run(task: &str, place: &str, name: &str, queue: SqliteQueue, fuse: Fuse) {
    match place.split_once(' ').unwrap() {
        #[cfg(feature = "dynamodb")]
        ("dynamodb", url) => crate::run(task, DynamoDbTable::named(url, name).open().await, queue, fuse).await,
        #[cfg(feature = "cosmos")]
        ("cosmos", url) => {
            let layout = if task.ends_with("in-two") { Layout::Apart } else { Layout::Together };
            crate::run(task, CosmosDatabase::named(url, name, layout).open().await, queue, fuse).await;
        }
        (kind, _) => panic!("this worker was built without {kind}"),
    }
}
