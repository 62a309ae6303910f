//! Several sagas are done with one message at the same time.

use super::*;
use crate::sync::explored::{all, exhaust, explore};

/// What was really settled.
#[derive(Debug, Default)]
struct Broker(std::sync::Mutex<Vec<Settlement>>);

#[async_trait]
impl Receiver for Broker {
    async fn receive(&self, _: usize) -> Result<Vec<Delivery>, TransportError> {
        Ok(Vec::new())
    }

    async fn extend(&self, _: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, _: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.0.lock().expect("nobody panics").push(settlement);
        Ok(Settled::Done)
    }
}

fn three_sagas() {
    let (broker, receipt) = (Arc::<Broker>::default(), Receipt::number(1));
    let joint = Arc::new(Joint::new(broker.clone()));
    joint.share(&receipt, 3);
    let retry = Settlement::Retry { delay: Duration::from_secs(1), counts: true };
    let settlements = [Settlement::Ack, retry.clone(), Settlement::DeadLetter { reason: String::new() }];
    all(settlements.map(|settlement| {
        let (joint, receipt) = (joint.clone(), receipt.clone());
        async move { joint.settle(&receipt, settlement).await.map(drop).expect("it can be settled") }
    }));
    assert_eq!(*broker.0.lock().expect("nobody panics"), [retry], "once, with the worst");
    assert!(joint.shared().is_empty());
}

#[test]
fn a_message_of_three_sagas_is_settled_once_with_the_worst_in_every_order() {
    exhaust(three_sagas);
}

#[test]
fn messages_that_are_settled_beside_each_other_are_each_settled_once() {
    explore(|| {
        let broker = Arc::<Broker>::default();
        let joint = Arc::new(Joint::new(broker.clone()));
        let receipts = [1, 2].map(Receipt::number);
        all(receipts.clone().map(|receipt| {
            let joint = joint.clone();
            async move {
                joint.share(&receipt, 2);
                let done = all([Settlement::Ack, Settlement::Ack].map(|ack| {
                    let (joint, receipt) = (joint.clone(), receipt.clone());
                    async move { joint.settle(&receipt, ack).await.is_ok() }
                }));
                assert_eq!(done, [true, true]);
            }
        }));
        assert_eq!(broker.0.lock().expect("nobody panics").len(), 2);
        assert!(joint.shared().is_empty());
    });
}
