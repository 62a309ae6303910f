//! Queues on the server of the tests, and short ways to send and receive.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_nats::jetstream;
use async_trait::async_trait;
use futures_util::TryStreamExt;
use hapax::{
    Nats,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, DeadLetters, Delivery, Dispatcher, Settled, Settlement, Transport},
    testing,
    transports::nats::NatsOptions,
};
use tokio::sync::OnceCell;

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_NATS";
/// On how many servers of a cluster queues are kept, where that is one.
const REPLICAS: &str = "HAPAX_TEST_NATS_REPLICAS";
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Short, since some tests wait for its end.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The server does not remove queues by itself: what tests have left goes when it is as old, with another run.
const LEFT: Duration = Duration::from_secs(600);
/// One prefix for all tests: endpoints have names of their own, and what they share is declared once.
pub(crate) const PREFIX: &str = "hapax-test";

pub(crate) fn url() -> String {
    std::env::var(SERVER)
        .unwrap_or_else(|_| panic!("no NATS to test with: run `cargo xtask test`, or set {SERVER}=nats://HOST:PORT"))
}

pub(crate) fn options() -> NatsOptions {
    let replicas = std::env::var(REPLICAS).ok().and_then(|replicas| replicas.parse().ok()).unwrap_or(1);
    Nats::options().prefix(PREFIX).lease(LEASE).sync_interval(Duration::from_millis(200)).replicas(replicas)
}

pub(crate) async fn open() -> Nats {
    options().open(url()).await.unwrap()
}

/// The driver alone, as any other program.
pub(crate) async fn client() -> jetstream::Context {
    jetstream::new(async_nats::connect(url()).await.unwrap())
}

/// Removes what earlier runs have left; once in a process.
async fn swept() {
    static ONCE: OnceCell<()> = OnceCell::const_new();
    ONCE.get_or_init(|| async {
        let client = client().await;
        let too_old = |created: i64| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            i64::try_from(now.as_secs()).unwrap() - created > i64::try_from(LEFT.as_secs()).unwrap()
        };
        let streams: Vec<_> = client.streams().try_collect().await.unwrap_or_default();
        let left = streams.iter().filter(|stream| stream.config.name.starts_with(&format!("{PREFIX}-queue-")));
        for stream in left.filter(|stream| too_old(stream.created.unix_timestamp())) {
            drop(client.delete_stream(&stream.config.name).await);
        }
        let Ok(topics) = client.get_stream(format!("{PREFIX}-topics")).await else { return };
        let consumers: Vec<_> = topics.consumers().try_collect().await.unwrap_or_default();
        for consumer in consumers.iter().filter(|consumer| too_old(consumer.created.unix_timestamp())) {
            drop(topics.delete_consumer(&consumer.name).await);
        }
    })
    .await;
}

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) ordered: bool,
}

#[async_trait]
impl testing::transport::Builder for Queues {
    async fn transport(&self) -> Arc<dyn Transport> {
        swept().await;
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
    format!("{what}-{}", MessageId::random())
}

pub(crate) fn endpoint() -> EndpointName {
    EndpointName::parse(unique("shop")).unwrap()
}

pub(crate) fn message_type() -> TypeName {
    TypeName::parse("shop.added").unwrap()
}

pub(crate) fn envelope(body: &str) -> Envelope {
    Envelope::new(MessageId::random(), message_type(), body.as_bytes().to_vec())
}

pub(crate) fn to(endpoint: &EndpointName, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope: Arc::new(envelope) }
}

pub(crate) async fn send(queue: &Nats, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("nothing came");
    received.unwrap().pop().unwrap()
}

pub(crate) async fn expect_none(ends: &Connected, within: Duration) {
    if let Ok(received) = tokio::time::timeout(within, ends.receiver.receive(1)).await {
        panic!("{:?}", received.unwrap());
    }
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap(), Settled::Done);
}
