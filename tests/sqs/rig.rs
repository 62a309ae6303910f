//! Queues on the emulator of the tests or on one of their own, and short ways to send and receive.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_sqs::{Client, types::Message};
use hapax::{
    Sqs,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{Connected, DeadLetters, Delivery, Dispatcher, Settled, Settlement, Transport},
    testing,
    transports::sqs::SqsOptions,
};
use hapax_tests::SqsQueues;

/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for a busy machine, short enough to be waited for.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// With a short lease, and short calls: a test that is over does not take what another waits for.
pub(crate) fn options(queues: &SqsQueues) -> SqsOptions {
    queues.options().lease(LEASE).wait(Duration::from_secs(2))
}

pub(crate) async fn open(queues: &SqsQueues) -> Sqs {
    queues.open(options(queues)).await
}

/// For the suites.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) queues: SqsQueues,
    pub(crate) ordered: bool,
}

impl Queues {
    pub(crate) fn new(ordered: bool) -> Self {
        Self { queues: SqsQueues::new(), ordered }
    }
}

#[async_trait]
impl testing::transport::Builder for Queues {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.queues.open(options(&self.queues).ordered_keys(self.ordered)).await)
    }
}

#[async_trait]
impl testing::queue_survey::Builder for Queues {
    async fn surveyed(&self) -> testing::queue_survey::Surveyed {
        testing::queue_survey::Surveyed::of(&Arc::new(open(&self.queues).await))
    }
}

#[async_trait]
impl testing::dead_letters::Builder for Queues {
    async fn dead_letters(&self) -> Arc<dyn DeadLetters> {
        Arc::new(open(&self.queues).await)
    }
}

/// A queue by its name, as another program would find it.
pub(crate) async fn queue_url(client: &Client, name: &str) -> String {
    client.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap()
}

pub(crate) fn queue_of(queues: &SqsQueues, endpoint: &EndpointName) -> String {
    format!("{}_queue_{endpoint}", queues.prefix())
}

/// One message by the SDK alone, within some seconds.
pub(crate) async fn take(client: &Client, url: &str) -> Option<Message> {
    use aws_sdk_sqs::types::MessageSystemAttributeName as System;
    let asked = client.receive_message().queue_url(url).wait_time_seconds(5).message_attribute_names("All");
    asked.message_system_attribute_names(System::All).send().await.unwrap().messages?.pop()
}

/// What a message says in its attributes.
pub(crate) fn attributes(message: &Message) -> HashMap<&str, &str> {
    let all = message.message_attributes.iter().flatten();
    all.map(|(name, value)| (name.as_str(), value.string_value().unwrap_or_default())).collect()
}

/// Names without dots, which are as they are in names of queues.
pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{:016x}", fastrand::u64(..))
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

pub(crate) fn keyed(key: &str, body: &str) -> Envelope {
    Envelope { partition_key: Some(key.parse().unwrap()), ..envelope(body) }
}

pub(crate) fn to(endpoint: &EndpointName, envelope: Envelope) -> Outgoing {
    Outgoing { destination: Destination::Endpoint(endpoint.clone()), envelope: Arc::new(envelope) }
}

pub(crate) fn event(topic: &TypeName, body: &str) -> Outgoing {
    Outgoing { destination: Destination::Topic(topic.clone()), envelope: Arc::new(envelope(body)) }
}

pub(crate) async fn send(sqs: &Sqs, outgoing: &[Outgoing]) {
    for result in sqs.dispatch(outgoing).await {
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

pub(crate) async fn settle(ends: &Connected, delivery: &Delivery, settlement: Settlement) {
    assert_eq!(ends.receiver.settle(&delivery.receipt, settlement).await.unwrap(), Settled::Done);
}

pub(crate) async fn ack(ends: &Connected, delivery: &Delivery) {
    settle(ends, delivery, Settlement::Ack).await;
}
