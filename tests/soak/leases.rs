//! A transport that counts leases which were lost: by those who settle all the same, since they have stood still, or were cut off, for longer.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities, TransportError,
    },
};

use crate::counts::Counter;

/// A port, and where it is counted.
#[derive(Debug)]
pub(crate) struct Counted<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) counter: Counter,
}

#[async_trait]
impl<P: Transport + ?Sized> Transport for Counted<P> {
    fn capabilities(&self) -> TransportCapabilities {
        self.port.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.port.connect(endpoint, types).await?;
        let receiver = Arc::new(Counted { port: connected.receiver, counter: self.counter.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[async_trait]
impl<P: Receiver + ?Sized> Receiver for Counted<P> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.port.receive(max).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.port.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let settled = self.port.settle(receipt, settlement).await?;
        if settled == Settled::LeaseLost {
            self.counter.lost_lease();
        }
        Ok(settled)
    }
}
