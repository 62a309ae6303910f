//! A receiver that fails.

use async_trait::async_trait;
use hapax_core::ports::{Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, TransportError};

use super::Faulty;
use crate::{Call, Fault, Side};

fn failed(kind: ErrorKind) -> TransportError {
    TransportError::new(kind, "settling", "failed, as planned")
}

#[async_trait]
impl<P: Receiver + 'static> Receiver for Faulty<P> {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.world.point(Call::Receive, Side::Before).await;
        let deliveries = self.inner.receive(max).await?;
        self.world.point(Call::Receive, Side::After).await;
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.world.point(Call::Extend, Side::Before).await;
        self.inner.extend(receipts).await?;
        self.world.point(Call::Extend, Side::After).await;
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.world.point(Call::Settle, Side::Before).await;
        // No late settlement: the queue would take it for one with a lost lease, or the message would never come again.
        let possible = &[Fault::Refused, Fault::UnknownApplied, Fault::UnknownNotApplied];
        let fate = self.world.fate(Call::Settle, possible).await;
        match fate {
            Some(Fault::Refused) => return Err(failed(ErrorKind::Unavailable)),
            Some(Fault::UnknownNotApplied) => return Err(failed(ErrorKind::UnknownOutcome)),
            _ => {}
        }
        let settled = self.inner.settle(receipt, settlement).await?;
        self.world.silence(Call::Settle, fate).await;
        self.world.point(Call::Settle, Side::After).await;
        if fate == Some(Fault::UnknownApplied) { Err(failed(ErrorKind::UnknownOutcome)) } else { Ok(settled) }
    }
}
