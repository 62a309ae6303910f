//! An account of Cosmos DB in two regions, one of which has not got the newest writes: only the other one's answers count.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::Secret;
use azure_data_cosmos::fault_injection::{
    FaultInjectionConditionBuilder, FaultInjectionResultBuilder, FaultInjectionRuleBuilder, FaultOperationType,
};
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosRuntimeBuilder, RoutingStrategy};
use azure_data_cosmos_driver::in_memory_emulator::{
    ConsistencyLevel, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion, WriteMode,
};
use hapax_core::{
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::DedupStore,
    time::Timestamp,
};
use hapax_stores::{
    CosmosDb,
    cosmos::{CosmosDbOptions, Layout},
};

/// Takes the writes.
const EAST: &str = "https://eastus.emulator.local";
const WEST: &str = "https://westus.emulator.local";
const DATABASE: &str = "shop";
/// Longer than the second after which the client library hedges.
const SLOW: Duration = Duration::from_millis(2_500);

type Account = Arc<InMemoryEmulatorHttpClient>;

fn account(consistency: ConsistencyLevel) -> Account {
    in_mode(consistency, WriteMode::Single)
}

fn in_mode(consistency: ConsistencyLevel, mode: WriteMode) -> Account {
    let region = |name: &str, url: &str| VirtualRegion::new(name, url.parse().unwrap());
    let regions = vec![region("East US", EAST), region("West US", WEST)];
    let account = VirtualAccountConfig::new(regions).unwrap().with_consistency(consistency).with_write_mode(mode);
    Arc::new(InMemoryEmulatorHttpClient::new(account))
}

/// A client that prefers a region; `slow`: reads in the east take their time.
async fn client(account: &Account, near: Region, slow: bool) -> CosmosClient {
    let runtime = if slow {
        let reads = FaultInjectionConditionBuilder::new().with_operation_type(FaultOperationType::ReadItem);
        let late = FaultInjectionResultBuilder::new().with_delay(SLOW).build();
        let rule =
            FaultInjectionRuleBuilder::new("slow", late).with_condition(reads.with_region("East US".into()).build());
        account.runtime_builder_with_fault_rules(vec![Arc::new(rule.build())])
    } else {
        account.runtime_builder()
    };
    let runtime = CosmosRuntimeBuilder::from(runtime).build().await.unwrap();
    let reference = AccountReference::with_authentication_key(EAST.parse().unwrap(), Secret::new("dGVzdGtleQ=="));
    CosmosClient::builder().with_runtime(runtime).build(reference, RoutingStrategy::ProximityTo(near)).await.unwrap()
}

async fn options(account: &Account, near: Region, slow: bool) -> CosmosDbOptions {
    let client = client(account, near, slow).await;
    CosmosDb::options(client, DATABASE).layout(Layout::Apart).create(!slow).one_write_region(true)
}

fn mark() -> DedupEntry {
    let mut key = [0; DedupKey::BYTES];
    key.fill_with(|| fastrand::u8(..));
    DedupEntry {
        key: DedupKey::from_bytes(key),
        attempt: AttemptId::from_bytes([1; AttemptId::BYTES]),
        fingerprint: Fingerprint::from_bytes([2; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(3),
    }
}

/// A mark that is committed in the east and has not come to the west.
async fn mark_in_the_east(account: &Account, store: &CosmosDb) -> DedupEntry {
    account.store().pause_replication("West US");
    let mark = mark();
    store.insert(std::slice::from_ref(&mark)).await.unwrap();
    mark
}

/// The client library's own default says "not there" of it, after a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_read_in_cosmos_is_not_hedged_to_a_region_that_lags_behind() {
    let account = account(ConsistencyLevel::Session);
    let store = options(&account, Region::EAST_US, false).await.open().await.unwrap();
    let mark = mark_in_the_east(&account, &store).await;
    let id = mark.key.to_string();

    let bare = client(&account, Region::EAST_US, true).await;
    let container = bare.database_client(DATABASE).container_client("hapax-dedup", None).await.unwrap();
    let hedged = container.read_item(id.clone(), &id, None).await;
    assert!(
        hedged.is_err_and(|error| error.status().is_not_found()),
        "the library no longer hedges: is the cure still needed?"
    );

    let slow = options(&account, Region::EAST_US, true).await.open().await.unwrap();
    let before = slow.requests();
    assert_eq!(slow.contains(&[mark.key]).await.unwrap().entry(&mark.key), Some(&mark));
    // What a hedged read says would not count, and would be asked again.
    assert_eq!(slow.requests() - before, 1);
}

/// Two regions would both let a message through. Such an account cannot be strong.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_of_cosmos_that_takes_writes_in_several_regions_is_refused() {
    let account = in_mode(ConsistencyLevel::Session, WriteMode::Multi);
    let options = CosmosDb::options(client(&account, Region::EAST_US, false).await, DATABASE);
    let error = options.layout(Layout::Apart).create(true).open().await.unwrap_err();
    assert!(error.to_string().contains("in several cannot be used"), "{error}");
}

/// A client that is near the other region finds what was written all the same, whatever the account's consistency.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_region_of_cosmos_that_takes_the_writes_counts() {
    for consistency in [ConsistencyLevel::Session, ConsistencyLevel::Strong] {
        let account = account(consistency);
        let store = options(&account, Region::EAST_US, false).await.open().await.unwrap();
        let far = options(&account, Region::WEST_US, false).await.open().await.unwrap();
        let mark = mark_in_the_east(&account, &store).await;
        assert_eq!(far.contains(&[mark.key]).await.unwrap().entry(&mark.key), Some(&mark), "{consistency:?}");
    }
}
