//! A container in more physical partitions than the client library asks in one query unless it is told to, some of which are split.

use azure_data_cosmos::models::{ContainerProperties, TimeToLive};
use azure_data_cosmos_driver::in_memory_emulator::ContainerConfig;

use super::*;

/// What a store calls its container.
const CONTAINER: &str = "hapax";
/// The client library refuses more than a hundred.
const PHYSICAL: u32 = 120;
const LOGICAL: usize = 250;

/// An account of one region with such a container, and a store in it.
async fn in_many_partitions() -> (Account, CosmosDb) {
    let region = VirtualRegion::new("East US", EAST.parse().unwrap());
    let account = VirtualAccountConfig::new(vec![region]).unwrap().with_consistency(ConsistencyLevel::Strong);
    let account = Arc::new(InMemoryEmulatorHttpClient::new(account));
    account.store().create_database(DATABASE);
    let many = ContainerConfig::default().with_partition_count(PHYSICAL);
    account.store().create_container_with_config(DATABASE, CONTAINER, "/pk".into(), many);
    let client = client(&account, Region::EAST_US, false).await;
    let container = client.database_client(DATABASE).container_client(CONTAINER, None).await.unwrap();
    let kept = ContainerProperties::new(CONTAINER, "/pk".into()).with_default_ttl(TimeToLive::NoDefault);
    container.replace(kept, None).await.unwrap();
    let store = CosmosDb::options(client, DATABASE).open().await.unwrap();
    (account, store)
}

async fn physical_partitions(account: &Account) -> usize {
    let client = client(account, Region::EAST_US, false).await;
    let container = client.database_client(DATABASE).container_client(CONTAINER, None).await.unwrap();
    container.read_feed_ranges(None).await.unwrap().len()
}

/// Two pages, and between them and before the purge a physical partition is split, whose pieces the client does not know.
#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_and_the_purge_of_cosmos_ask_every_partition_of_hundreds_also_after_a_split() {
    let (account, store) = in_many_partitions().await;
    assert_eq!(physical_partitions(&account).await, PHYSICAL as usize);
    let scope = Arc::new(Scope { endpoint: "shop".parse().unwrap(), saga: SagaName::parse("order").unwrap() });
    let mut saved = Vec::new();
    for number in 0..LOGICAL {
        let key = EntityKey::new(scope.clone(), format!("number-{number:03}").parse().unwrap());
        match store.save(&key, &Expected::Absent, &waiting(&mark()), &[]).await.unwrap() {
            Saved::At(version) => saved.push((key, version)),
            other => panic!("{other:?}"),
        }
    }
    let split = async |partition: u32| {
        account.store().split_partition(DATABASE, CONTAINER, partition, Duration::ZERO);
        account.store().wait_for_split(DATABASE, CONTAINER, partition).await;
    };
    let mut found: Vec<EntityKey> = Vec::new();
    for listed in [150, 100] {
        let page = store.pending(&scope, Duration::ZERO, found.last(), 150).await.unwrap();
        assert_eq!(page.len(), listed);
        found.extend(page.into_iter().map(|pending| pending.key));
        split(found.len() as u32 % PHYSICAL).await;
    }
    assert!(found.iter().eq(saved.iter().map(|(key, _)| key)));

    let over = Entity { completed: true, ..Entity::default() };
    for (key, version) in saved {
        let completed = store.save(&key, &Expected::Version(version), &over, &[]).await.unwrap();
        assert!(matches!(completed, Saved::At(_)), "{completed:?}");
    }
    split(0).await;
    assert_eq!(physical_partitions(&account).await, PHYSICAL as usize + 3);
    assert_eq!(store.pending(&scope, Duration::ZERO, None, LOGICAL).await.unwrap(), []);
    for purged in [150, 100, 0] {
        assert_eq!(store.purge(&scope, Duration::ZERO, 150).await.unwrap(), purged);
    }
    for key in found {
        assert_eq!(store.version(&key).await.unwrap(), None, "{key}");
    }
}
