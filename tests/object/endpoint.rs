//! Endpoints with entities in one store and dedup entries in another.

use std::time::Duration;

use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Message, ObjectDedup, Saga,
    codec::FRAME_BYTES,
    deliver::Recoverability,
    endpoint::Settings,
    ids::{EntityKey, SagaKey, Scope},
    ports::{DeadLetters, DedupStore, EntityStore},
    testing::Drops,
    transports::in_process::Faults,
};
use hapax_tests::Scratch;
use serde::{Deserialize, Serialize};

#[cfg(feature = "dynamodb")]
use crate::place::Place;
#[cfg(feature = "databases")]
use hapax::Sqlite;
#[cfg(feature = "cosmos")]
use hapax::stores::cosmos::Layout;
#[cfg(feature = "cosmos")]
use hapax_tests::CosmosDatabase;
#[cfg(feature = "dynamodb")]
use hapax_tests::DynamoDbTable;

#[derive(Debug, Serialize, Deserialize)]
struct Add {
    item: String,
}

impl Message for Add {
    const TYPE: &'static str = "basket.add";
}

#[derive(Debug, Serialize, Deserialize)]
struct Added {
    item: String,
}

impl Message for Added {
    const TYPE: &'static str = "basket.added";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Basket {
    items: Vec<String>,
}

impl Saga for Basket {
    const NAME: &'static str = "basket";
}

impl Handle<Add> for Basket {
    fn correlate(_: &Add) -> Correlation<'_> {
        Correlation::of("basket", "one")
    }

    async fn handle(&mut self, add: Add, cx: &mut Context) -> Result<(), HandlerError> {
        self.items.push(add.item.clone());
        cx.publish(Added { item: add.item })
    }
}

/// Copies, lost acks and passes dropped at random awaits, by two endpoints at once as two processes would, each with handles of
/// its own; then a third, opened anew, is given every message once more.
async fn takes_effect_once<E, D>(entities: impl AsyncFn() -> E, dedup: impl AsyncFn() -> D)
where
    E: EntityStore + DeadLetters + Clone + 'static,
    D: DedupStore + 'static,
{
    const MESSAGES: usize = 40;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let faults = Faults { seed, duplicates: 0.4, reorder: 0.3, delay_max: Duration::from_millis(300), lost_acks: 0.2 };
    let hub = InProcess::with_faults("basket", Duration::from_secs(2), faults);
    let open = async |drops: f64| {
        let settings = Settings {
            recoverability: Recoverability { poison_above: u32::MAX, ..Recoverability::default() },
            sweep_age: Duration::ZERO,
            ..Settings::default()
        };
        let entities = entities().await;
        Endpoint::builder("basket")
            .entities(entities.clone())
            .dedup(dedup().await)
            .dead_letters(entities)
            .transport(hub.clone())
            .settings(settings)
            .drops(Drops::new(seed, drops))
            .saga::<Basket>(|basket| basket.starts::<Add>())
    };
    let send = async || {
        for number in 0..MESSAGES {
            let item = format!("item-{number}");
            let add = Add { item: item.clone() };
            hub.sender().send_as(item.parse().unwrap(), "basket", &add).await.unwrap();
        }
    };
    let (one, two) = (open(0.15).await, open(0.15).await);
    send().await;
    let (one, two) = tokio::join!(one.run_until(hub.idle()), two.run_until(hub.idle()));
    one.unwrap();
    two.unwrap();
    send().await;
    open(0.0).await.run_until(hub.idle()).await.unwrap();

    let scope = Scope { endpoint: "basket".parse().unwrap(), saga: "basket".parse().unwrap() };
    let key = EntityKey::new(scope.into(), SagaKey::parse("one").unwrap());
    let loaded = entities().await.load(&key, &[]).await.unwrap();
    let entity = loaded.stored.unwrap().entity;
    let mut basket: Basket = serde_json::from_slice(&entity.state[FRAME_BYTES..]).unwrap();
    basket.items.sort_unstable();
    let mut expected: Vec<String> = (0..MESSAGES).map(|number| format!("item-{number}")).collect();
    expected.sort_unstable();
    assert_eq!(basket.items, expected, "seed {seed}");
}

#[cfg(feature = "databases")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_sqlite_and_dedup_entries_in_an_object_directory_take_effect_once() {
    let scratch = Scratch::new("object-endpoint");
    takes_effect_once(
        async || Sqlite::open(scratch.file("hapax.db")).await.unwrap(),
        async || ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true).open().await.unwrap(),
    )
    .await;
}

#[cfg(all(feature = "databases", feature = "dynamodb"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_sqlite_and_dedup_entries_in_dynamodb_take_effect_once() {
    let (scratch, table) = (Scratch::new("dynamodb-dedup"), DynamoDbTable::new());
    takes_effect_once(async || Sqlite::open(scratch.file("hapax.db")).await.unwrap(), async || table.open().await)
        .await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_dynamodb_and_dedup_entries_in_azure_blob_take_effect_once() {
    let (table, place) = (DynamoDbTable::new(), Place::azure_blob().await);
    takes_effect_once(async || table.open().await, async || place.open("shop").await).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_dynamodb_and_dedup_entries_in_s3_take_effect_once() {
    let (table, place) = (DynamoDbTable::new(), Place::s3().await);
    takes_effect_once(async || table.open().await, async || place.open("shop").await).await;
}

#[cfg(feature = "cosmos")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_cosmos_and_dedup_entries_in_an_object_directory_take_effect_once() {
    let (scratch, database) = (Scratch::new("cosmos-object"), CosmosDatabase::new(Layout::Together));
    takes_effect_once(
        async || database.open().await,
        async || ObjectDedup::directory(scratch.file("dedup")).create_if_missing(true).open().await.unwrap(),
    )
    .await;
}

#[cfg(all(feature = "cosmos", feature = "dynamodb"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_cosmos_and_dedup_entries_in_dynamodb_take_effect_once() {
    let (table, database) = (DynamoDbTable::new(), CosmosDatabase::new(Layout::Together));
    takes_effect_once(async || database.open().await, async || table.open().await).await;
}

#[cfg(all(feature = "cosmos", feature = "dynamodb"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entities_in_dynamodb_and_dedup_entries_in_cosmos_take_effect_once() {
    let (table, database) = (DynamoDbTable::new(), CosmosDatabase::new(Layout::Apart));
    takes_effect_once(async || table.open().await, async || database.open().await).await;
}
