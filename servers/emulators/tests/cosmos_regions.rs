//! An account of Cosmos DB in two regions, one of which has not got the newest writes: only the other one's answers count.

#![allow(clippy::unwrap_used)]

#[path = "cosmos_regions/partitions.rs"]
mod partitions;

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
    entity::{DedupEntry, Entity, Expected, OutboxEntry},
    envelope::{Destination, Envelope, Outgoing},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, MessageId, SagaName, Scope},
    ports::{DeadLetter, DeadLetters, DedupStore, EntityStore, Page, Saved},
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

/// A client that prefers a region; `slow`: what reads in the east takes its time.
async fn client(account: &Account, near: Region, slow: bool) -> CosmosClient {
    let runtime = if slow {
        let rules = [FaultOperationType::ReadItem, FaultOperationType::QueryItem].map(|operation| {
            let reads = FaultInjectionConditionBuilder::new().with_operation_type(operation);
            let late = FaultInjectionResultBuilder::new().with_delay(SLOW).build();
            let rule = FaultInjectionRuleBuilder::new(operation.as_str(), late);
            Arc::new(rule.with_condition(reads.with_region("East US".into()).build()).build())
        });
        account.runtime_builder_with_fault_rules(rules.into())
    } else {
        account.runtime_builder()
    };
    let runtime = CosmosRuntimeBuilder::from(runtime).build().await.unwrap();
    let reference = AccountReference::with_authentication_key(EAST.parse().unwrap(), Secret::new("dGVzdGtleQ=="));
    CosmosClient::builder().with_runtime(runtime).build(reference, RoutingStrategy::ProximityTo(near)).await.unwrap()
}

async fn options(account: &Account, near: Region, slow: bool) -> CosmosDbOptions {
    in_layout(Layout::Apart, account, near, slow).await
}

async fn in_layout(layout: Layout, account: &Account, near: Region, slow: bool) -> CosmosDbOptions {
    let client = client(account, near, slow).await;
    CosmosDb::options(client, DATABASE).layout(layout).create_if_missing(!slow).one_write_region(true)
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

/// Nor where the environment asks for it, which would count more than the strategy of the options. A process has one
/// environment: this is run in a process of its own.
#[test]
fn the_environment_does_not_have_reads_in_cosmos_hedged() {
    const SLOW_READ: &str = "a_slow_read_in_cosmos_is_not_hedged_to_a_region_that_lags_behind";
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = program.args(["--exact", SLOW_READ]).env("AZURE_COSMOS_HEDGING_ENABLED", "true").output().unwrap();
    assert!(ended.status.success() && String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
}

/// Two regions would both let a message through. Such an account cannot be strong.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_of_cosmos_that_takes_writes_in_several_regions_is_refused() {
    let account = in_mode(ConsistencyLevel::Session, WriteMode::Multi);
    let options = CosmosDb::options(client(&account, Region::EAST_US, false).await, DATABASE);
    let error = options.layout(Layout::Apart).create_if_missing(true).open().await.unwrap_err();
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

/// One that waits with a message.
fn waiting(message: &DedupEntry) -> Entity {
    let envelope = Envelope::new(MessageId::random(), "shop.added".parse().unwrap(), "a body");
    let outgoing = Outgoing { destination: Destination::Endpoint("mail".parse().unwrap()), envelope: envelope.into() };
    let DedupEntry { key, attempt, fingerprint, time, .. } = message.clone();
    let entry = OutboxEntry {
        key,
        attempt,
        fingerprint,
        commit: 1,
        saved_at: time,
        outgoing: vec![outgoing],
        reply: None,
        reply_sent: false,
    };
    Entity { state: "a state".into(), commits: 1, outbox: vec![Arc::new(entry)], ..Entity::default() }
}

fn letter(scope: &Scope) -> DeadLetter {
    DeadLetter {
        envelope: Arc::new(Envelope::new(MessageId::random(), "shop.refused".parse().unwrap(), "a body")),
        endpoint: scope.endpoint.clone(),
        saga: None,
        destination: None,
        reason: "why".to_owned(),
        attempts: 3,
        time: Timestamp::from_millis(3),
    }
}

/// Every operation of `store` meets what `east` has written since the other region stopped listening, and the other way round.
async fn every_operation_counts_in_the_east(account: &Account, east: &CosmosDb, store: &CosmosDb, layout: Layout) {
    let scope = Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: SagaName::parse("order").unwrap() });
    let key = |name: &str| EntityKey::new(scope.clone(), name.parse().unwrap());
    // The other region has what is older.
    let (first, second, third) = (mark(), mark(), mark());
    let old = match east.save(&key("a"), &Expected::Absent, &Entity::default(), &[]).await.unwrap() {
        Saved::At(version) => version,
        other => panic!("{other:?}"),
    };
    account.store().pause_replication("West US");
    let entity = waiting(&second);
    // With a dedup store of its own the marks go in by themselves.
    let together = layout == Layout::Together;
    let done = if together { vec![first.clone()] } else { Vec::new() };
    let saved = east.save(&key("a"), &Expected::Version(old.clone()), &entity, &done).await.unwrap();
    let Saved::At(new) = saved else { panic!("{saved:?}") };
    if !together {
        east.insert(std::slice::from_ref(&first)).await.unwrap();
    }
    east.add(&letter(&scope)).await.unwrap();

    let loaded = store.load(&key("a"), &[first.key]).await.unwrap();
    assert_eq!(loaded.stored.map(|stored| (stored.version, stored.entity)), Some((new.clone(), entity.clone())));
    assert_eq!(loaded.known.is_some_and(|known| known.entry(&first.key) == Some(&first)), together);
    assert_eq!(store.contains(&[first.key]).await.unwrap().entry(&first.key), Some(&first));
    assert_eq!(store.version(&key("a")).await.unwrap(), Some(new.clone()));
    let pending = store.pending(&scope, Duration::ZERO, None, 10).await.unwrap();
    assert_eq!(pending.iter().map(|pending| pending.key.clone()).collect::<Vec<_>>(), [key("a")]);
    assert_eq!(store.list(&scope.endpoint, &Page::first(10)).await.unwrap().len(), 1);
    // What is not the newest loses, what was inserted may be inserted again.
    let late = store.save(&key("a"), &Expected::Version(old), &entity, &[]).await.unwrap();
    assert!(matches!(late, Saved::Conflict), "{late:?}");
    let empty = Entity { outbox: Vec::new(), ..entity };
    if together {
        store.finish(&key("a"), std::slice::from_ref(&second), Some((&new, &empty))).await.unwrap();
    } else {
        store.save(&key("a"), &Expected::Version(new), &empty, &[]).await.map(drop).unwrap();
    }
    if !together {
        store.insert(&[first.clone(), third.clone()]).await.unwrap();
    }
    let completed = Entity { completed: true, ..Entity::default() };
    let saved = store.save(&key("b"), &Expected::Absent, &completed, &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");

    // And what it has written is where the others look for it.
    let loaded = east.load(&key("a"), &[second.key]).await.unwrap();
    assert_eq!(loaded.stored.map(|stored| stored.entity), Some(empty));
    assert_eq!(loaded.known.is_some_and(|known| known.entry(&second.key).is_some()), together);
    assert_eq!(east.contains(&[third.key]).await.unwrap().entry(&third.key).is_some(), !together);
    assert_eq!(east.load(&key("b"), &[]).await.unwrap().stored.map(|stored| stored.entity), Some(completed));
    assert_eq!(store.purge(&scope, Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(east.load(&key("b"), &[]).await.unwrap().stored.map(|stored| stored.entity), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_on_cosmos_counts_in_the_region_that_takes_the_writes_however_near_the_other_is() {
    for layout in [Layout::Together, Layout::Apart] {
        let account = account(ConsistencyLevel::Session);
        let east = in_layout(layout, &account, Region::EAST_US, false).await.open().await.unwrap();
        let far = in_layout(layout, &account, Region::WEST_US, false).await.open().await.unwrap();
        every_operation_counts_in_the_east(&account, &east, &far, layout).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_on_cosmos_counts_in_the_region_that_takes_the_writes_however_slow_it_is() {
    let check = async |layout| {
        let account = account(ConsistencyLevel::Session);
        let east = in_layout(layout, &account, Region::EAST_US, false).await.open().await.unwrap();
        let slow = in_layout(layout, &account, Region::EAST_US, true).await;
        // A list makes several requests, one after the other.
        let slow = slow.call_limit(12 * SLOW).open().await.unwrap();
        every_operation_counts_in_the_east(&account, &east, &slow, layout).await;
    };
    tokio::join!(check(Layout::Together), check(Layout::Apart));
}
