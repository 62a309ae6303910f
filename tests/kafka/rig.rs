//! Queues on the broker of the tests, and short ways to send and receive.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Kafka,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, DeadLetters, Delivery, Dispatcher, Settled, Settlement, Transport},
    testing,
    transports::kafka::KafkaOptions,
};
use rdkafka::{
    ClientConfig, Message,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    producer::{BaseRecord, Producer, ThreadedProducer},
};

/// Where the broker is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_KAFKA";
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Short: the broker of the tests lets who joins a group wait for half of it.
pub(crate) const SESSION: Duration = Duration::from_secs(2);
/// Keys of which the first is in partition 0 of two, and the second in the other.
pub(crate) const PARTED: [&str; 2] = ["21", "abc"];
/// One prefix for all tests: endpoints have names of their own.
pub(crate) const PREFIX: &str = "hapax-test";

pub(crate) fn url() -> String {
    std::env::var(SERVER)
        .unwrap_or_else(|_| panic!("no Kafka to test with: run `cargo xtask test`, or set {SERVER}=kafka://HOST:PORT"))
}

pub(crate) fn options() -> KafkaOptions {
    // One in a batch: the broker of the tests counts wrongly where a larger one ends.
    Kafka::options().prefix(PREFIX).session(SESSION).batch(1)
}

pub(crate) async fn open() -> Kafka {
    options().open(url()).await.unwrap()
}

/// The client library alone, as any other program.
pub(crate) fn config() -> ClientConfig {
    config_of(&url())
}

/// The same at another broker.
pub(crate) fn config_of(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
    config
}

pub(crate) fn admin() -> AdminClient<DefaultClientContext> {
    config().create().unwrap()
}

/// A topic that somebody else has made.
pub(crate) async fn make_topic(name: &str, partitions: i32) {
    make_topic_with(name, partitions, &[]).await;
}

/// The same, configured otherwise than the broker does it by itself.
pub(crate) async fn make_topic_with(name: &str, partitions: i32, configured: &[(&str, &str)]) {
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let new = configured.iter().fold(new, |new, (key, value)| new.set(key, value));
    admin().create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
}

pub(crate) fn producer() -> ThreadedProducer<rdkafka::producer::DefaultProducerContext> {
    config().create().unwrap()
}

/// A record by another program, confirmed.
pub(crate) fn put(topic: &str, partition: Option<i32>, headers: &[(&str, &[u8])], body: &[u8]) {
    put_by(&config(), topic, partition, headers, body);
}

/// The same, configured by that program.
pub(crate) fn put_by(
    config: &ClientConfig,
    topic: &str,
    partition: Option<i32>,
    headers: &[(&str, &[u8])],
    body: &[u8],
) {
    let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = config.create().unwrap();
    let headers = headers.iter().fold(rdkafka::message::OwnedHeaders::new(), |all, (key, value)| {
        all.insert(rdkafka::message::Header { key, value: Some(*value) })
    });
    let mut record: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic).payload(body).headers(headers);
    record.partition = partition;
    producer.send(record).map_err(|(e, _)| e).unwrap();
    producer.flush(PATIENCE).unwrap();
}

/// Key, headers and body of a record.
pub(crate) type Kept = (Vec<u8>, Vec<(String, Vec<u8>)>, Vec<u8>);

/// All records of one partition, by another program: key, headers and body.
pub(crate) fn records(topic: &str, partition: i32) -> Vec<Kept> {
    use rdkafka::message::Headers;
    let mut config = config();
    config.set("group.id", unique("reader")).set("isolation.level", "read_uncommitted");
    let consumer: BaseConsumer = config.create().unwrap();
    let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(topic, partition, rdkafka::Offset::Offset(low)).unwrap();
    consumer.assign(&list).unwrap();
    let mut found = Vec::new();
    while (found.len() as i64) < high - low {
        let message = consumer.poll(PATIENCE).expect("it is kept").unwrap();
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let headers = headers.map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec()));
        let part = |part: Option<&[u8]>| part.unwrap_or_default().to_vec();
        found.push((part(message.key()), headers.collect(), part(message.payload())));
    }
    found
}

/// What a group has committed in one partition.
pub(crate) fn committed(group: &str, topic: &str, partition: i32) -> Option<i64> {
    committed_at(&url(), group, topic, partition)
}

/// The same at another broker.
pub(crate) fn committed_at(url: &str, group: &str, topic: &str, partition: i32) -> Option<i64> {
    let mut config = config_of(url);
    config.set("group.id", group);
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition(topic, partition);
    let list = consumer.committed_offsets(list, PATIENCE).unwrap();
    match list.elements()[0].offset() {
        rdkafka::Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) ordered: bool,
}

#[async_trait]
impl testing::transport::Builder for Queues {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(options().ordered_keys(self.ordered).open(url()).await.unwrap())
    }
}

#[async_trait]
impl testing::queue_survey::Builder for Queues {
    async fn surveyed(&self) -> testing::queue_survey::Surveyed {
        testing::queue_survey::Surveyed::of(&Arc::new(open().await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for Queues {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(open().await)
    }
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{:016x}", fastrand::u64(..))
}

pub(crate) fn endpoint() -> EndpointName {
    EndpointName::parse(unique("shop")).unwrap()
}

pub(crate) fn message_type() -> TypeName {
    TypeName::parse("shop.added").unwrap()
}

/// A type of which no other test knows.
pub(crate) fn topic() -> TypeName {
    TypeName::parse(unique("shop.added")).unwrap()
}

pub(crate) fn envelope(body: &str) -> Envelope {
    Envelope::new(MessageId::random(), message_type(), body.as_bytes().to_vec())
}

pub(crate) fn keyed(key: &str, body: &str) -> Envelope {
    Envelope { partition_key: Some(key.parse().unwrap()), ..envelope(body) }
}

pub(crate) fn to(endpoint: &EndpointName, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope: Arc::new(envelope) }
}

pub(crate) fn event(topic: &TypeName, body: &str) -> Outgoing {
    Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope(body)) }
}

pub(crate) async fn send(queue: &Kafka, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("nothing came");
    received.unwrap().pop().unwrap()
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub(crate) async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, settlement).await.unwrap(), Settled::Done);
}

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    settle(ends, delivery, Settlement::Ack).await;
}

/// A message there and back, by a way that is to be shown to work.
pub(crate) async fn sends_and_receives(queue: &Kafka) {
    let here = endpoint();
    let ends = queue.connect(&here, &[]).await.unwrap();
    send(queue, &[to(&here, envelope("there and back"))]).await;
    let delivery = next(&ends).await;
    assert_eq!(body(&delivery), "there and back");
    ack(&ends, &delivery).await;
}
