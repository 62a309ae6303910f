//! A transport whose deliveries are counted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use hapax::{
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities, TransportError,
    },
};

/// What all processes of an endpoint were given.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) deliveries: AtomicU64,
    /// Those that had been given before.
    pub(crate) again: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) transport: T,
    pub(crate) given: Arc<Given>,
}

#[async_trait]
impl<T: Transport> Transport for Counted<T> {
    /// An endpoint refuses queues that outlive its store, which here outlives all processes.
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { durable: false, ..self.transport.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.transport.connect(endpoint, types).await?;
        let receiver = Arc::new(Counter { receiver: connected.receiver, given: self.given.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[derive(Debug)]
struct Counter {
    receiver: Arc<dyn Receiver>,
    given: Arc<Given>,
}

#[async_trait]
impl Receiver for Counter {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.receiver.receive(max).await?;
        let again = deliveries.iter().filter(|delivery| delivery.attempts > 1).count();
        self.given.deliveries.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        self.given.again.fetch_add(again as u64, Ordering::Relaxed);
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.receiver.settle(receipt, settlement).await
    }
}
