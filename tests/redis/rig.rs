//! Queues on the server of the tests or on one of their own, and short ways to send and receive.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    RedisStreams,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, DeadLetters, Delivery, Dispatcher, Settled, Settlement, Transport},
    testing,
    transports::redis::{MayLose, RedisStreamsOptions},
};
use hapax_tests::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_REDIS";
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for a busy machine, short enough to be waited for.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Queues of tests go by themselves: the server may be somebody's.
const UNUSED: Duration = Duration::from_secs(60);

pub(crate) fn url() -> String {
    std::env::var(SERVER)
        .unwrap_or_else(|_| panic!("no Redis to test with: run `cargo xtask test`, or set {SERVER}=redis://HOST:PORT"))
}

/// One prefix for all tests: endpoints have names of their own. Whether the server of the tests keeps anything is its owner's
/// affair; what is kept is tested on servers of the tests' own.
pub(crate) fn options() -> RedisStreamsOptions {
    RedisStreams::options().prefix("hapax-test").remove_unused(UNUSED).lease(LEASE).may_lose(MayLose::Everything)
}

pub(crate) async fn open() -> RedisStreams {
    options().open(url()).await.unwrap()
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

/// On a server of the test's own, which keeps what it confirms.
#[derive(Debug, Default)]
pub(crate) struct KeptQueues {
    pub(crate) ordered: bool,
    server: OnceCell<RedisServer>,
}

impl KeptQueues {
    pub(crate) fn new(ordered: bool) -> Self {
        Self { ordered, server: OnceCell::new() }
    }
}

#[async_trait]
impl testing::transport::Builder for KeptQueues {
    async fn transport(&self) -> Arc<dyn Transport> {
        let server = self.server.get_or_init(RedisServer::start).await;
        let options = RedisStreams::options().lease(LEASE).ordered_keys(self.ordered);
        Arc::new(options.open(server.url()).await.unwrap())
    }
}

/// The driver alone, as another program would use it.
pub(crate) async fn plain(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// What the driver alone is answered.
pub(crate) async fn ask<T: redis::FromRedisValue>(connection: &mut MultiplexedConnection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().unwrap());
    for word in words {
        asked.arg(word);
    }
    asked.query_async(connection).await.unwrap_or_else(|e| panic!("{command}: {e}"))
}

pub(crate) fn queue_of(endpoint: &EndpointName) -> String {
    format!("hapax-test:queue:{endpoint}")
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

pub(crate) async fn send(queue: &RedisStreams, outgoing: &[Outgoing]) {
    for result in queue.dispatch(outgoing).await {
        result.unwrap();
    }
}

pub(crate) async fn next(ends: &Connected) -> Delivery {
    let received = tokio::time::timeout(PATIENCE, ends.receiver.receive(1)).await.expect("nothing came");
    received.unwrap().pop().unwrap()
}

/// That nothing comes for a while.
pub(crate) async fn nothing(ends: &Connected, within: Duration) {
    if let Ok(came) = tokio::time::timeout(within, ends.receiver.receive(10)).await {
        panic!("something came: {came:?}");
    }
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.envelope.body.to_vec()).unwrap()
}

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap(), Settled::Done);
}
