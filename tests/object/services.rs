//! Every promise of the port on services, or on their emulators.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    ObjectDedup,
    ports::{DedupStore, ErrorKind},
    testing,
};
use hapax_servers::Cloud;
use hapax_tests::real::expect_refusals;
use object_store::ObjectStoreExt;

use crate::{
    place::Place,
    samples::{entries, entry_of, keys},
};

/// A bucket or container that nobody has: the names of buckets are everybody's.
const NOWHERE: &str = "hapax-t-nowhere-5d1f0c9a7be34d62";

/// What is not there is an error, and what is there is seen by others, once.
async fn check(place: &Place) {
    let error = ObjectDedup::options(place.client(NOWHERE), "shop").open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("create the bucket"), "{error:?}");

    // Nor may it read as an object that is not there: what the library tells as the same is told apart by these words.
    let words = if place.cloud() == Cloud::AzureBlob { "ContainerNotFound" } else { "NoSuchBucket" };
    let error = place.client(NOWHERE).get(&"shop/d/00/00".into()).await.unwrap_err();
    assert!(error.to_string().contains(words), "{error}");

    let (one, two) = (place.open("shop").await, place.open("shop").await);
    let entries = entries(100);
    one.insert(&entries).await.unwrap();
    two.insert(&entries.iter().map(|entry| entry_of(entry.key)).collect::<Vec<_>>()).await.unwrap();
    let known = two.contains(&keys(&entries)).await.unwrap();
    assert!(entries.iter().all(|entry| known.entry(&entry.key) == Some(entry)));
}

#[async_trait]
impl testing::dedup_store::Builder for Place {
    async fn dedup(&self) -> Arc<dyn DedupStore> {
        Arc::new(self.open("shared").await)
    }
    async fn separate(&self) -> Option<Arc<dyn DedupStore>> {
        Some(Arc::new(self.open("separate").await))
    }
}

#[tokio::test]
async fn objects_in_s3_are_seen_by_others_and_a_bucket_that_is_not_there_is_refused() {
    check(&Place::s3().await).await;
}

#[tokio::test]
async fn objects_in_azure_blob_are_seen_by_others_and_a_container_that_is_not_there_is_refused() {
    check(&Place::azure_blob().await).await;
}

#[test]
fn services_of_objects_are_asked_for_by_variables_and_what_they_take_is_told() {
    let s3 = "services::objects_in_s3_are_seen_by_others_and_a_bucket_that_is_not_there_is_refused";
    let variables = [("HAPAX_AWS", "1"), ("AWS_REGION", "eu-central-1")];
    expect_refusals(s3, &variables, &["set AWS_REGION", "set AWS_ACCESS_KEY_ID"]);
    let azure = "services::objects_in_azure_blob_are_seen_by_others_and_a_container_that_is_not_there_is_refused";
    let variables = [("HAPAX_AZURE", "1"), ("HAPAX_AZURE_BLOB_ACCOUNT", "none")];
    expect_refusals(azure, &variables, &["set HAPAX_AZURE_BLOB_ACCOUNT", "set HAPAX_AZURE_BLOB_KEY"]);
}

mod s3 {
    hapax_core::dedup_store_suite!(super::Place::s3().await);
}

mod azure_blob {
    hapax_core::dedup_store_suite!(super::Place::azure_blob().await);
}
