//! Queues on the server of the tests, and short ways to send and receive.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    RabbitMq,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, DeadLetters, Delivery, Dispatcher, Settled, Settlement, Transport},
    testing,
    transports::rabbitmq::RabbitMqOptions,
};

/// Where the server is: set by `cargo xtask test`, which finds or starts one.
const SERVER: &str = "HAPAX_TEST_RABBITMQ";
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Queues of tests go by themselves: the server may be somebody's, and it has few file handles where it was started by hand.
const UNUSED: Duration = Duration::from_secs(30);

pub(crate) fn url() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| {
        panic!("no RabbitMQ to test with: run `cargo xtask test`, or set {SERVER}=amqp://USER:PASSWORD@HOST:PORT")
    })
}

/// One prefix for all tests: endpoints have names of their own, and what they share is declared once.
pub(crate) fn options() -> RabbitMqOptions {
    RabbitMq::options().prefix("hapax-test").remove_unused(UNUSED)
}

pub(crate) async fn open() -> RabbitMq {
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

pub(crate) async fn send(queue: &RabbitMq, outgoing: &[Outgoing]) {
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

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap(), Settled::Done);
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
