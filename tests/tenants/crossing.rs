//! Tenants are kept apart: one that knows another's names, ids, keys and versions, and tries each call with them, sees nothing of it and changes
//! nothing; and keys are nobody's language, whatever stands in them.

use std::{slice::from_ref, time::Duration};

use hapax::{
    MySqlQueue, PostgresQueue, Sqlite, SqliteQueue,
    entity::Expected,
    envelope::Destination,
    ids::EndpointName,
    ports::{DeadLetters, DedupStore, EntityStore, Page, Saved, Settled, Settlement, Transport},
};
use hapax_tests::{MySqlTables, PostgresSchema, Scratch, samples};
use tokio::time::timeout;

/// Keys that would be something else, were they ever put into SQL, a path, a pattern, a document or a list.
const HOSTILE: [&str; 10] = [
    "1' OR '1'='1",
    "1\"; DROP TABLE entity; --",
    "1`; DROP TABLE hapax_entity; #",
    "../../other/order",
    "%",
    "_",
    "*",
    "shop/order 1",
    "$1 || :key || ?",
    "{\"key\":\"1\"}",
];
const FEW: usize = 10;
/// Long after a message is given to whom it is for.
const A_WHILE: Duration = Duration::from_millis(500);

/// `other` knows all that `owner` has, and has nothing of it.
async fn cannot_cross<S: EntityStore + DedupStore + DeadLetters>(owner: &S, other: &S) {
    for name in HOSTILE {
        let key = samples::key(name);
        let (scope, endpoint) = (key.scope(), &key.scope().endpoint);
        let (entry, mark) = (samples::entry(1), samples::mark());
        let letter = samples::letter(endpoint.clone(), "what nobody else may read");
        let entity = samples::entity("what nobody else may read", from_ref(&entry));
        let version = samples::won(owner.save(&key, &Expected::Absent, &entity, &[]).await.unwrap());
        owner.insert(from_ref(&mark)).await.unwrap();
        owner.add(&letter).await.unwrap();

        assert_eq!(other.load(&key, &[mark.key]).await.unwrap().stored, None, "{name}");
        assert_eq!(other.version(&key).await.unwrap(), None, "{name}");
        assert_eq!(other.contains(&[mark.key]).await.unwrap().entry(&mark.key), None, "{name}");
        assert!(other.pending(scope, Duration::ZERO, None, FEW).await.unwrap().is_empty(), "{name}");
        assert!(other.list(endpoint, &Page::first(FEW)).await.unwrap().is_empty(), "{name}");

        let foreign = samples::entity("another's", &[]);
        let expected = Expected::Version(version.clone());
        assert_eq!(other.save(&key, &expected, &foreign, &[]).await.unwrap(), Saved::Conflict, "{name}");
        assert_eq!(other.discard(from_ref(&letter)).await.unwrap(), 0, "{name}");
        // Whatever is said of these, they are its own.
        drop(other.finish(&key, &[entry.to_dedup_entry()], Some((&version, &foreign))).await);
        drop(other.save(&key, &Expected::Absent, &foreign, from_ref(&mark)).await);
        drop(other.purge(scope, Duration::ZERO, FEW).await);

        let loaded = owner.load(&key, &[]).await.unwrap().stored.unwrap();
        assert_eq!((loaded.version, loaded.entity), (version, entity), "{name}");
        let known = owner.contains(&[mark.key, entry.key]).await.unwrap();
        assert_eq!((known.entry(&mark.key).is_some(), known.entry(&entry.key)), (true, None), "{name}");
        assert_eq!(owner.pending(scope, Duration::ZERO, None, FEW).await.unwrap().len(), 1, "{name}");
        assert_eq!(owner.list(endpoint, &Page::first(FEW)).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn tenants_in_files_of_sqlite_cannot_cross() {
    let scratch = Scratch::new("crossing");
    let open = async |name: &str| {
        Sqlite::options(scratch.file(name)).create_if_missing(true).migrate(true).open().await.unwrap()
    };
    cannot_cross(&open("acme.db").await, &open("zenith.db").await).await;
}

#[tokio::test]
async fn tenants_in_schemas_of_postgres_cannot_cross() {
    let (acme, zenith) = (PostgresSchema::new(), PostgresSchema::new());
    cannot_cross(&acme.open().await, &zenith.open().await).await;
}

#[tokio::test]
async fn tenants_in_tables_of_mysql_cannot_cross() {
    let (acme, zenith) = (MySqlTables::new(), MySqlTables::new());
    cannot_cross(&acme.open().await, &zenith.open().await).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test]
async fn tenants_in_tables_of_dynamodb_cannot_cross() {
    use hapax_tests::DynamoDbTable;
    cannot_cross(&DynamoDbTable::new().open().await, &DynamoDbTable::new().open().await).await;
}

#[cfg(feature = "cosmos")]
#[tokio::test]
async fn tenants_in_databases_of_cosmos_cannot_cross() {
    use hapax::stores::cosmos::Layout;
    use hapax_tests::CosmosDatabase;
    // Together, dedup entries cannot be added without their entity.
    let (acme, zenith) = (CosmosDatabase::new(Layout::Apart), CosmosDatabase::new(Layout::Apart));
    cannot_cross(&acme.open().await, &zenith.open().await).await;
}

/// A message waits at `owner`. `other` has an endpoint of the same name, and knows the receipt: it is given nothing, and ends nothing.
async fn cannot_take(owner: &dyn Transport, other: &dyn Transport, shop: &EndpointName) {
    let owner = owner.connect(shop, &[]).await.unwrap().receiver;
    let other = other.connect(shop, &[]).await.unwrap().receiver;
    let foreign = timeout(A_WHILE, other.receive(FEW)).await;
    assert!(foreign.is_err(), "{foreign:?}");
    let given = owner.receive(FEW).await.unwrap();
    let [given] = &given[..] else { panic!("{given:?}") };
    // Whatever is said of it.
    drop(other.settle(&given.receipt, Settlement::Ack).await);
    let settled = owner.settle(&given.receipt, Settlement::Ack).await.unwrap();
    assert_eq!(settled, Settled::Done, "another has ended it");
}

#[tokio::test]
async fn queues_of_tenants_in_files_of_sqlite_cannot_cross() {
    let (scratch, shop) = (Scratch::new("crossing-queues"), samples::endpoint());
    let [acme, zenith] = ["acme.db", "zenith.db"].map(|name| SqliteQueue::open(scratch.file(name)));
    let (acme, zenith) = (acme.await.unwrap(), zenith.await.unwrap());
    let to = Destination::Endpoint(shop.clone());
    acme.sender().send_envelope(to, samples::envelope("{}")).await.unwrap();
    cannot_take(&acme, &zenith, &shop).await;
}

/// One name of an endpoint, and a queue for each tenant.
#[tokio::test]
async fn queues_of_tenants_in_postgres_and_mysql_cannot_cross() {
    let shop: EndpointName = samples::endpoint();
    let (to, add) = (|| Destination::Endpoint(shop.clone()), || samples::envelope("{}"));
    let (acme, zenith) = (PostgresSchema::new(), PostgresSchema::new());
    let queues = [&acme, &zenith].map(|tenant| tenant.open_queue(PostgresQueue::options()));
    let [acme, zenith] = queues;
    let (acme, zenith) = (acme.await, zenith.await);
    acme.sender().send_envelope(to(), add()).await.unwrap();
    assert_eq!((acme.backlog(&shop).await.unwrap(), zenith.backlog(&shop).await.unwrap()), (1, 0));
    cannot_take(&acme, &zenith, &shop).await;
    let (acme, zenith) = (MySqlTables::new(), MySqlTables::new());
    let acme = acme.open_queue(MySqlQueue::options()).await;
    let zenith = zenith.open_queue(MySqlQueue::options()).await;
    acme.sender().send_envelope(to(), add()).await.unwrap();
    assert_eq!((acme.backlog(&shop).await.unwrap(), zenith.backlog(&shop).await.unwrap()), (1, 0));
    cannot_take(&acme, &zenith, &shop).await;
}
