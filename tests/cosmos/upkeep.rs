//! What the sweeper, the purge and people find, however much there is and whatever is damaged.

use std::time::Duration;

use azure_data_cosmos::ContainerClient;
use futures_util::{StreamExt, stream};
use hapax::{
    CosmosDb,
    entity::{Entity, Expected},
    ids::EntityKey,
    ports::{DeadLetters, EntityStore, Page},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase, LogLines,
    real::{self, AZURE},
    samples::{endpoint, entity, entry, key, letter, save, won},
};
use serde_json::{Value, json};

/// Saves so many entities of one scope, and answers their keys in order.
async fn save_all(store: &CosmosDb, entities: usize, of: impl Fn() -> Entity) -> Vec<EntityKey> {
    let scope = key("x").scope().clone();
    let name = |number| format!("number-{number:03}").parse().unwrap();
    let keys: Vec<EntityKey> = (0..entities).map(|number| EntityKey::new(scope.clone(), name(number))).collect();
    let saves = keys.iter().map(|key| {
        let entity = of();
        async move { save(store, key, None, &entity).await }
    });
    stream::iter(saves.collect::<Vec<_>>()).buffer_unordered(16).collect::<Vec<_>>().await;
    keys
}

fn waits() -> Entity {
    entity("a", &[entry(1)])
}

async fn container(database: &CosmosDatabase) -> ContainerClient {
    let client = database.client().await.database_client(database.name().to_owned());
    client.container_client("hapax".to_owned(), None).await.unwrap()
}

/// As a newer program or a person has left it.
async fn damage(container: &ContainerClient, partition: String, id: &str, property: &str, value: Value) {
    let read = container.read_item(partition.clone(), id, None).await.unwrap();
    let mut document: Value = read.into_model().unwrap();
    document[property] = value;
    container.replace_item(partition, id, &document, None).await.unwrap();
}

/// The client library asks a partition for 100 at a time, and gives what is left over without asking.
#[tokio::test(flavor = "multi_thread")]
async fn more_waits_than_the_client_library_asks_for_at_once() {
    let store = CosmosDatabase::new(Layout::Together).open().await;
    let keys = save_all(&store, 300, waits).await;
    let mut found: Vec<EntityKey> = Vec::new();
    for expected in [256, 44] {
        let page = store.pending(keys[0].scope(), Duration::ZERO, found.last(), 256).await.unwrap();
        assert_eq!(page.len(), expected);
        found.extend(page.into_iter().map(|pending| pending.key));
    }
    assert_eq!(found, keys);
}

/// Each entity has a logical partition of its own, and those are spread over the physical ones.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_is_over_is_found_in_hundreds_of_partitions() {
    const PARTITIONS: usize = 250;
    let database = CosmosDatabase::new(Layout::Together);
    let store = database.open().await;
    let physical = container(&database).await.read_feed_ranges(None).await.unwrap().len();
    assert!(physical > 1 || real::is_asked(AZURE), "all is in one physical partition: nothing is shown");
    let keys = save_all(&store, PARTITIONS, waits).await;
    let scope = keys[0].scope();
    let mut found: Vec<EntityKey> = Vec::new();
    loop {
        let page = store.pending(scope, Duration::ZERO, found.last(), 64).await.unwrap();
        let is_last = page.len() < 64;
        found.extend(page.into_iter().map(|pending| pending.key));
        if is_last {
            break;
        }
    }
    assert_eq!(found, keys);
    assert_eq!(store.purge(scope, Duration::ZERO, 2 * PARTITIONS).await.unwrap(), 0, "what waits stays");

    let over = Entity { completed: true, ..Entity::default() };
    let completed = keys.iter().map(|key| async {
        let version = Expected::Version(store.version(key).await.unwrap().unwrap());
        won(store.save(key, &version, &over, &[]).await.unwrap())
    });
    stream::iter(completed.collect::<Vec<_>>()).buffer_unordered(16).collect::<Vec<_>>().await;
    assert_eq!(store.pending(scope, Duration::ZERO, None, PARTITIONS).await.unwrap(), []);
    for purged in [100, 100, 50, 0] {
        assert_eq!(store.purge(scope, Duration::ZERO, 100).await.unwrap(), purged);
    }
    for key in &keys {
        assert_eq!(store.version(key).await.unwrap(), None, "{key}");
    }
}

#[tokio::test]
async fn an_entity_that_cannot_be_read_holds_up_no_other_in_cosmos() {
    let database = CosmosDatabase::new(Layout::Together);
    let store = database.open().await;
    let keys = save_all(&store, 40, waits).await;
    let container = container(&database).await;
    // The first and the last in order among them.
    let damaged = [(0, json!(7)), (7, json!("not one of ours")), (20, json!(null)), (39, json!({}))];
    for (number, waiting) in &damaged {
        let key = &keys[*number];
        let partition = format!("{} {} {}", key.scope().endpoint, key.scope().saga, key.key());
        damage(&container, partition, "entity", "waiting", waiting.clone()).await;
    }
    let logged = LogLines::here();
    let sound: Vec<&EntityKey> = keys
        .iter()
        .enumerate()
        .filter_map(|(number, key)| (!damaged.iter().any(|(damaged, _)| *damaged == number)).then_some(key))
        .collect();
    let mut found: Vec<EntityKey> = Vec::new();
    // Only the last page is not full: whoever asks goes by that.
    for expected in [12, 12, 12, 0] {
        let page = store.pending(keys[0].scope(), Duration::ZERO, found.last(), 12).await.unwrap();
        assert_eq!(page.len(), expected);
        found.extend(page.into_iter().map(|pending| pending.key));
    }
    assert!(found.iter().eq(sound));
    assert!(logged.with("is left out").len() >= damaged.len());
}

#[tokio::test]
async fn a_letter_that_cannot_be_read_hides_no_other_in_cosmos() {
    let database = CosmosDatabase::new(Layout::Together);
    let store = database.open().await;
    let endpoint = endpoint();
    let letters = [(); 3].map(|()| letter(endpoint.clone(), "x"));
    for letter in &letters {
        store.add(letter).await.unwrap();
    }
    let container = container(&database).await;
    let partition = format!("letters {endpoint}");
    let query = azure_data_cosmos::Query::from("SELECT * FROM c ORDER BY c.sorted");
    let scope = azure_data_cosmos::FeedScope::partition(partition.clone());
    let mut documents = container.query_items::<Value>(query, scope, None).await.unwrap();
    let first = documents.next().await.unwrap().unwrap();
    damage(&container, partition, first["id"].as_str().unwrap(), "envelope", json!(7)).await;
    let logged = LogLines::here();
    assert_eq!(store.list(&endpoint, &Page::first(10)).await.unwrap(), letters[1..]);
    assert_eq!(logged.with("is left out").len(), 1);
    // Nor does a whole page: it has what is behind it.
    assert_eq!(store.list(&endpoint, &Page::first(1)).await.unwrap(), letters[1..2]);
    assert_eq!(logged.with("is left out").len(), 2);
    for page in [Page { skip: 3, ..Page::first(1) }, Page::first(0)] {
        assert_eq!(store.list(&endpoint, &page).await.unwrap(), [], "{page:?}");
    }
}
