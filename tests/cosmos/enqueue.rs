//! Messages in batches of the user's own.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use azure_data_cosmos::{ContainerClient, FeedScope, Query, TransactionalBatch};
use futures_util::TryStreamExt;
use hapax::{
    Context, Correlation, CosmosDb, Endpoint, Enqueued, Handle, HandlerError, InProcess, Memory, Message, MessageId,
    Saga,
    codec::FRAME_BYTES,
    endpoint::Settings,
    entity::Expected,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EntityKey, PartitionKey},
    ports::{DedupStore, EntityStore, ErrorKind, Saved},
    stores::cosmos::Layout,
};
use hapax_tests::{
    CosmosDatabase,
    http_faults::{Fault, FaultProxy, Gate},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The container of the user's own, and where its documents have their partition key.
const ORDERS: &str = "orders";
const CUSTOMER: &str = "/customer";
/// How much longer than promised the service is told to keep what it removes by itself.
const MARGIN: Duration = Duration::from_secs(24 * 3600);

#[derive(Serialize, Deserialize)]
struct Add {
    order: String,
}

impl Message for Add {
    const TYPE: &'static str = "shop.add";
}

#[derive(Default, Serialize, Deserialize)]
struct Order {
    items: u32,
}

impl Saga for Order {
    const NAME: &'static str = "order";
}

impl Handle<Add> for Order {
    fn correlate(add: &Add) -> Correlation<'_> {
        (&add.order).into()
    }

    async fn handle(&mut self, _: Add, _: &mut Context) -> Result<(), HandlerError> {
        self.items += 1;
        Ok(())
    }
}

/// A database with a container of the user's own, and a store on that.
struct Rig {
    database: CosmosDatabase,
    store: CosmosDb,
    orders: ContainerClient,
}

impl Rig {
    async fn new(layout: Layout) -> Self {
        let database = CosmosDatabase::new(layout);
        let store = open(&database).await;
        let client = database.client().await.database_client(database.name().to_owned());
        let orders = client.container_client(ORDERS.to_owned(), None).await.unwrap();
        Self { database, store, orders }
    }

    /// Stores an order, which must not be there yet, and the message in one batch, and tells whether that was committed.
    async fn commit(&self, customer: &str, order: &str, enqueued: &Enqueued) -> bool {
        let batch = TransactionalBatch::new(customer.to_owned());
        let batch = batch.create_item(json!({ "id": order, "customer": customer })).unwrap();
        let batch = self.store.enqueue(batch, enqueued).unwrap();
        let answer = self.orders.execute_transactional_batch(batch, None).await.unwrap().into_model().unwrap();
        assert_eq!(answer.results().len(), 2);
        answer.results().iter().all(|result| result.is_success())
    }

    /// The customer's documents that have this property.
    async fn documents(&self, customer: &str, property: &str) -> Vec<Value> {
        let scope = FeedScope::partition(customer.to_owned());
        let all = self.orders.query_items::<Value>(Query::from("SELECT * FROM c"), scope, None).await.unwrap();
        let all: Vec<Value> = all.try_collect().await.unwrap();
        all.into_iter().filter(|document| document.get(property).is_some()).collect()
    }

    async fn orders_of(&self, customer: &str) -> BTreeSet<String> {
        let documents = self.documents(customer, "customer").await;
        let ids = documents.iter().map(|document| document["id"].as_str().unwrap().to_owned());
        ids.filter(|id| id.starts_with("order")).collect()
    }

    async fn waits(&self, enqueued: &Enqueued) -> bool {
        !self.store.pending(enqueued.key().scope(), Duration::ZERO, None, 1).await.unwrap().is_empty()
    }
}

async fn open(database: &CosmosDatabase) -> CosmosDb {
    database.options().await.container(ORDERS).partition_path(CUSTOMER).open().await.unwrap()
}

fn add(order: &str) -> Enqueued {
    Enqueued::message("front", "shop", &Add { order: order.into() }).unwrap()
}

fn of_bytes(bytes: usize) -> Enqueued {
    let of_body = |bytes: usize| {
        let envelope = Envelope::new(MessageId::random(), "shop.add".parse().unwrap(), vec![b'x'; bytes]);
        let destination = Destination::Endpoint("shop".parse().unwrap());
        Enqueued::new("front", Outgoing { destination, envelope: Arc::new(envelope) }).unwrap()
    };
    let enqueued = of_body(bytes - of_body(0).entity().size());
    assert_eq!(enqueued.entity().size(), bytes);
    enqueued
}

fn partition(name: &str) -> PartitionKey {
    PartitionKey::parse(name).unwrap()
}

/// The endpoint that sends what was enqueued, until it is aborted.
async fn front(store: &CosmosDb, queue: &InProcess) -> tokio::task::JoinHandle<()> {
    let soon = Settings { enqueued_interval: Duration::from_millis(50), ..Settings::default() };
    let front = Endpoint::builder("front").transport(queue.clone()).settings(soon).sends_enqueued();
    let front = match store.layout() {
        Layout::Together => front.store(store.clone()),
        Layout::Apart => front.entities(store.clone()).dedup(store.clone()).dead_letters(store.clone()),
    };
    let front = front.start().await.unwrap();
    tokio::spawn(async {
        front.run_until(std::future::pending::<()>()).await.unwrap();
    })
}

/// As `kill -9` would, for all that its store and the service see of it.
async fn kill(front: tokio::task::JoinHandle<()>) {
    front.abort();
    assert!(front.await.unwrap_err().is_cancelled());
}

/// Runs the endpoint that they are for until none waits and each has arrived; tells which orders it has, with their items.
async fn handled(rig: &Rig, queue: &InProcess, enqueued: &[&Enqueued]) -> BTreeSet<(String, u32)> {
    let kept = Memory::new();
    let shop = Endpoint::builder("shop").store(kept.clone()).transport(queue.clone());
    let shop = shop.saga::<Order>(|order| order.starts::<Add>());
    let all = async {
        for enqueued in enqueued {
            while rig.waits(enqueued).await {
                tokio::task::yield_now().await;
            }
        }
        queue.idle().await;
    };
    shop.run_until(all).await.unwrap();
    let items = |state: &[u8]| serde_json::from_slice::<Order>(&state[FRAME_BYTES..]).unwrap().items;
    kept.entities().iter().map(|(key, entity)| (key.key().to_string(), items(&entity.state))).collect()
}

async fn is_sent_if_the_batch_is_committed(layout: Layout) {
    let rig = Rig::new(layout).await;
    let (done, undone) = (add("done"), add("undone"));
    assert!(rig.commit("ann", "order 1", &done).await);
    assert!(!rig.commit("ann", "order 1", &undone).await, "the order is there");
    assert!(!rig.commit("ann", "order 2", &done).await, "the message is there");
    assert_eq!(rig.orders_of("ann").await, BTreeSet::from(["order 1".to_owned()]));

    let queue = InProcess::new("enqueued");
    let front = front(&rig.store, &queue).await;
    assert_eq!(handled(&rig, &queue, &[&done]).await, BTreeSet::from([("done".to_owned(), 1)]));
    kill(front).await;
    let key = done.key().clone().in_partition(partition("ann"));
    let left = rig.store.load(&key, &[]).await.unwrap().stored.unwrap().entity;
    assert!(left.completed && left.outbox.is_empty());
    assert!(!rig.commit("ann", "order 3", &done).await, "that it was sent is known");

    // What is left goes by itself, and the user's own stays.
    let tombstones = rig.documents("ann", "ended").await;
    let keeps = rig.store.dedup_capabilities().keeps.unwrap() + MARGIN;
    assert_eq!(tombstones.iter().map(|left| left["ttl"].as_u64()).collect::<Vec<_>>(), [Some(keeps.as_secs())]);
    assert_eq!(rig.store.purge(key.scope(), Duration::ZERO, 10).await.unwrap(), 1);
    assert!(rig.store.load(&key, &[]).await.unwrap().stored.is_none());
    assert_eq!(rig.orders_of("ann").await, BTreeSet::from(["order 1".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_batch_of_cosmos_enqueues_is_sent_if_the_batch_is_committed() {
    is_sent_if_the_batch_is_committed(Layout::Together).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_batch_of_cosmos_enqueues_is_sent_where_dedup_entries_are_apart() {
    is_sent_if_the_batch_is_committed(Layout::Apart).await;
}

/// Without a container of one's own.
#[tokio::test(flavor = "multi_thread")]
async fn documents_of_ones_own_may_be_in_the_stores_own_container() {
    let database = CosmosDatabase::new(Layout::Together);
    let (store, enqueued) = (database.open().await, add("here"));
    let client = database.client().await.database_client(database.name().to_owned());
    let container = client.container_client("hapax".to_owned(), None).await.unwrap();
    let batch = TransactionalBatch::new("ann").create_item(json!({ "id": "order 1", "pk": "ann" })).unwrap();
    let batch = store.enqueue(batch, &enqueued).unwrap();
    let answer = container.execute_transactional_batch(batch, None).await.unwrap().into_model().unwrap();
    assert!(answer.results().iter().all(|result| result.is_success()));
    let key = enqueued.key().clone().in_partition(partition("ann"));
    let stored = store.load(&key, &[]).await.unwrap().stored.unwrap();
    assert_eq!(&stored.entity, enqueued.entity());
    let elsewhere = enqueued.key().clone().in_partition(partition("bob"));
    assert!(store.load(&elsewhere, &[]).await.unwrap().stored.is_none());
    assert!(store.load(enqueued.key(), &[]).await.unwrap().stored.is_none());
}

/// Each partition has its own, also of one message id, and a page ends between any two.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_in_every_partition_page_by_page() {
    let rig = Rig::new(Layout::Together).await;
    let (one, other, unnamed) = (add("one"), add("other"), add("unnamed"));
    assert!(rig.commit("ann", "order 1", &one).await);
    assert!(rig.commit("ann", "order 2", &other).await);
    assert!(rig.commit("bob", "order 1", &one).await);
    let saved = rig.store.save(unnamed.key(), &Expected::Absent, unnamed.entity(), &[]).await.unwrap();
    assert!(matches!(saved, Saved::At(_)), "{saved:?}");

    let mut found: Vec<EntityKey> = Vec::new();
    loop {
        let page = rig.store.pending(one.key().scope(), Duration::ZERO, found.last(), 1).await.unwrap();
        let [next] = page.as_slice() else { break };
        found.push(next.key.clone());
    }
    let of = |enqueued: &Enqueued, name: &str| enqueued.key().clone().in_partition(partition(name));
    let all = BTreeSet::from([of(&one, "ann"), of(&other, "ann"), of(&one, "bob"), unnamed.key().clone()]);
    assert_eq!(found, all.into_iter().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_below_at_and_above_the_limit() {
    let rig = Rig::new(Layout::Together).await;
    let max = rig.store.capabilities().entity_bytes_max;
    for (bytes, order) in [(max - 1, "order 1"), (max, "order 2")] {
        assert!(rig.commit("ann", order, &of_bytes(bytes)).await, "{bytes}");
    }
    let asked = rig.store.requests();
    let error = rig.store.enqueue(TransactionalBatch::new("ann"), &of_bytes(max + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    assert!(error.to_string().contains("enqueueing a message"), "{error}");
    assert_eq!(rig.store.requests(), asked);
}

/// Two megabytes and a hundred operations, with the user's own documents: what is more the service refuses as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn batches_with_a_message_below_at_and_above_what_the_service_takes() {
    const BATCH_BYTES_MAX: usize = 2 << 20;
    const OPERATIONS_MAX: usize = 100;
    let rig = Rig::new(Layout::Together).await;
    let proxy = FaultProxy::start(rig.database.url()).unwrap();
    let client = rig.database.through(proxy.url()).client().await.database_client(rig.database.name().to_owned());
    let orders = client.container_client(ORDERS.to_owned(), None).await.unwrap();
    let committed = async |customer: &str, documents: usize, padding: usize| {
        let enqueued = of_bytes(1_000_000);
        let mut batch = TransactionalBatch::new(customer.to_owned());
        for number in 0..documents {
            let padding = if number == 0 { padding } else { 0 };
            let order =
                json!({ "id": format!("order {number}"), "customer": customer, "padding": "x".repeat(padding) });
            batch = batch.create_item(order).unwrap();
        }
        let batch = rig.store.enqueue(batch, &enqueued).unwrap();
        proxy.forget();
        let answer = orders.execute_transactional_batch(batch, None).await;
        let sent = proxy.asked().iter().map(|asked| asked.body().len()).max().unwrap();
        let key = enqueued.key().clone().in_partition(partition(customer));
        let stored = rig.store.load(&key, &[]).await.unwrap().stored.is_some();
        assert_eq!(rig.orders_of(customer).await.len(), if stored { documents } else { 0 });
        (answer.map_err(|error| u16::from(error.status().status_code())).err(), stored, sent)
    };
    let (refused, stored, sent) = committed("ann", 1, 0).await;
    assert_eq!((refused, stored), (None, true));
    let padding = BATCH_BYTES_MAX - sent;
    assert_eq!(committed("bob", 1, padding - 1).await, (None, true, BATCH_BYTES_MAX - 1));
    assert_eq!(committed("cat", 1, padding).await, (None, true, BATCH_BYTES_MAX));
    assert_eq!(committed("dan", 1, padding + 1).await, (Some(413), false, BATCH_BYTES_MAX + 1));
    for (customer, documents) in [("eve", OPERATIONS_MAX - 2), ("fay", OPERATIONS_MAX - 1)] {
        let (refused, stored, _) = committed(customer, documents, 0).await;
        assert_eq!((refused, stored), (None, true), "{documents}");
    }
    let (refused, stored, _) = committed("gus", OPERATIONS_MAX, 0).await;
    assert_eq!((refused, stored), (Some(400), false));
}

/// The first endpoint dies when it has found the message and not read it, or when it has sent it and not said so.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_endpoint_did_not_finish_before_it_was_killed_another_one_sends() {
    let rig = Rig::new(Layout::Together).await;
    for (order, method) in [("unread", "GET"), ("unmarked", "POST")] {
        let proxy = FaultProxy::start(rig.database.url()).unwrap();
        let store = open(&rig.database.through(proxy.url())).await;
        let (queue, gate, enqueued) = (InProcess::new(order), Gate::new(), add(order));
        let held = proxy.first(
            1,
            move |asked| {
                let partition = asked.header("x-ms-documentdb-partitionkey");
                asked.method() == method && partition.is_some_and(|partition| partition.contains("ann"))
            },
            Fault::Hold(gate),
        );
        assert!(rig.commit("ann", &format!("order {order}"), &enqueued).await);
        let first = front(&store, &queue).await;
        held.until_matched(1).await;
        kill(first).await;
        drop(proxy);
        assert!(rig.waits(&enqueued).await, "{order}");

        let second = front(&rig.store, &queue).await;
        assert_eq!(handled(&rig, &queue, &[&enqueued]).await, BTreeSet::from([(order.to_owned(), 1)]));
        kill(second).await;
    }
}
