//! One message, several sagas: settled once, when all of them are done with it.

use std::{
    collections::HashMap,
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    ports::{Delivery, Receipt, Receiver, Settled, Settlement, TransportError},
    sync::{Mutex, MutexGuard},
};

/// A receiver whose shared messages are settled by the last of their sagas, with the worst of their settlements: a
/// retry before a dead letter before an ack. Those that were done recognise the message when it comes again.
#[derive(Debug)]
pub(super) struct Joint {
    receiver: Arc<dyn Receiver>,
    shared: Mutex<HashMap<Receipt, Share>>,
}

#[derive(Debug)]
struct Share {
    left: usize,
    worst: Settlement,
}

impl Joint {
    pub(super) fn new(receiver: Arc<dyn Receiver>) -> Self {
        Self { receiver, shared: Mutex::default() }
    }

    /// Waits for `parts` settlements of `receipt` before it is really settled. If one of them never comes, because its
    /// pass was dropped, the message is not settled: it comes again.
    pub(super) fn share(&self, receipt: &Receipt, parts: usize) {
        if parts > 1 {
            self.shared().insert(receipt.clone(), Share { left: parts, worst: Settlement::Ack });
        }
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<Receipt, Share>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settlement to pass on, if this was the last.
    fn join(&self, receipt: &Receipt, settlement: Settlement) -> Option<Settlement> {
        let mut shared = self.shared();
        let Some(share) = shared.get_mut(receipt) else { return Some(settlement) };
        share.left -= 1;
        if (rank(&settlement), delay(&settlement)) > (rank(&share.worst), delay(&share.worst)) {
            share.worst = settlement;
        }
        if share.left > 0 {
            return None;
        }
        shared.remove(receipt).map(|share| share.worst)
    }
}

/// Of two that give the message back, who wants more rest gets it.
const fn delay(settlement: &Settlement) -> Duration {
    match settlement {
        Settlement::Retry { delay, .. } => *delay,
        _ => Duration::ZERO,
    }
}

const fn rank(settlement: &Settlement) -> u8 {
    match settlement {
        Settlement::Ack => 0,
        Settlement::DeadLetter { .. } => 1,
        Settlement::Retry { counts, .. } => 2 + if *counts { 1 } else { 0 },
    }
}

#[async_trait]
impl Receiver for Joint {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.receiver.receive(max).await
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    /// Not a future of `async`: every message is settled, and nearly all by the receiver's own future, which is in a box already.
    fn settle<'life, 'receipt, 'answer>(
        &'life self,
        receipt: &'receipt Receipt,
        settlement: Settlement,
    ) -> Pin<Box<dyn Future<Output = Result<Settled, TransportError>> + Send + 'answer>>
    where
        'life: 'answer,
        'receipt: 'answer,
        Self: 'answer,
    {
        match self.join(receipt, settlement) {
            Some(settlement) => self.receiver.settle(receipt, settlement),
            None => Box::pin(ready(Ok(Settled::Done))),
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "interleaved/joint.rs"]
mod interleaved;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nobody;

    #[async_trait]
    impl Receiver for Nobody {
        async fn receive(&self, _: usize) -> Result<Vec<Delivery>, TransportError> {
            Ok(Vec::new())
        }

        async fn extend(&self, _: &[Receipt]) -> Result<(), TransportError> {
            Ok(())
        }

        async fn settle(&self, _: &Receipt, _: Settlement) -> Result<Settled, TransportError> {
            Ok(Settled::Done)
        }
    }

    #[test]
    fn of_several_that_give_a_message_back_the_longest_rest_holds_in_any_order() {
        let retry = |seconds| Settlement::Retry { delay: Duration::from_secs(seconds), counts: true };
        for orders in [[1, 30], [30, 1]] {
            let (joint, receipt) = (Joint::new(Arc::new(Nobody)), Receipt::number(1));
            joint.share(&receipt, 3);
            assert_eq!(joint.join(&receipt, retry(orders[0])), None);
            assert_eq!(joint.join(&receipt, Settlement::Ack), None);
            assert_eq!(joint.join(&receipt, retry(orders[1])), Some(retry(30)));
        }
    }
}
