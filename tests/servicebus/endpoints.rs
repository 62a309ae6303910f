//! Endpoints over AMQP 1.0: the scenario of every broker.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hapax::{
    envelope::Outgoing,
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, Delivery, DispatchError, Dispatcher, Receipt, Receiver, Refused, Settled, Settlement, Transport,
        TransportCapabilities, TransportError,
    },
};
use hapax_tests::RabbitMqServer;

use super::rig::Queues;

#[path = "../broker/endpoints.rs"]
mod broker;

const MESSAGES: usize = 300;

/// How often each message has been given.
pub(crate) type Counts = Arc<Mutex<HashMap<MessageId, u32>>>;

struct Killed {
    server: RabbitMqServer,
    counts: Counts,
}

impl broker::Server for Killed {
    type Queue = Counted;

    async fn open(&self, _: bool) -> Counted {
        Counted { queues: Queues::open(self.server.url()).await, counts: self.counts.clone() }
    }

    async fn is_killed(&mut self) {
        self.server.kill();
        self.server.restart().await;
    }
}

/// An endpoint takes no transport that does not count, and the plain server does not: here the test counts, for all of its "processes".
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) queues: Queues,
    pub(crate) counts: Counts,
}

#[async_trait]
impl Transport for Counted {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { counts_deliveries: true, ..self.queues.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.queues.connect(endpoint, types).await?;
        let receiver = Arc::new(Counting { receiver: connected.receiver, counts: self.counts.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[async_trait]
impl Dispatcher for Counted {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.queues.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        self.queues.dispatch(outgoing).await
    }
}

#[derive(Debug)]
struct Counting {
    receiver: Arc<dyn Receiver>,
    counts: Counts,
}

#[async_trait]
impl Receiver for Counting {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let mut deliveries = self.receiver.receive(max).await?;
        let mut counts = self.counts.lock().unwrap();
        for delivery in &mut deliveries {
            let count = counts.entry(delivery.envelope.message_id.clone()).or_default();
            *count += 1;
            delivery.attempts = *count;
        }
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.receiver.settle(receipt, settlement).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_handle_each_message_once_while_their_broker_is_killed() {
    let server = Killed { server: RabbitMqServer::with_amqp_1_0().await, counts: Counts::default() };
    broker::each_is_handled_once(server, false, MESSAGES).await;
}
