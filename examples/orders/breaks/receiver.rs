//! A transport whose author was careless with one rule, and who keeps a diary.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::{
    InProcess, Message, Saga,
    envelope::{Envelope, Outgoing},
    ids::{DedupKey, EndpointName, EntityKey, SagaKey, Scope, TypeName},
    ports::{
        Connected, Delivery, DispatchError, Dispatcher, Receipt, Receiver, Refused, Settled, Settlement, Transport,
        TransportCapabilities, TransportError,
    },
};
use serde_json::Value;

use super::{Call, Port, Rule, Worker, short};
use crate::{
    messages::{CancelPayment, ReserveStock, ReturnStock, ShipStock, StockArrived, TakePayment},
    order::Order,
    payment::Payment,
    shop::ENDPOINT,
    stock::Stock,
};

/// Awaits of a dispatch. In this process it needs none; a broker would be asked over the network, and a worker may die
/// while it waits.
const DISPATCH_AWAITS: usize = 2;

#[derive(Debug)]
pub(crate) struct BrokenTransport {
    queue: InProcess,
    worker: Arc<Worker>,
}

impl BrokenTransport {
    pub(super) const fn new(queue: InProcess, worker: Arc<Worker>) -> Self {
        Self { queue, worker }
    }
}

#[async_trait]
impl Transport for BrokenTransport {
    fn capabilities(&self) -> TransportCapabilities {
        self.queue.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let Connected { receiver, dispatcher, dead_letters, marks } = self.queue.connect(endpoint, types).await?;
        Ok(Connected {
            receiver: Arc::new(BrokenReceiver { receiver, worker: self.worker.clone() }),
            dispatcher: Arc::new(SlowDispatcher { dispatcher, worker: self.worker.clone() }),
            dead_letters,
            marks,
        })
    }
}

#[derive(Debug)]
struct BrokenReceiver {
    receiver: Arc<dyn Receiver>,
    worker: Arc<Worker>,
}

#[async_trait]
impl Receiver for BrokenReceiver {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.receiver.receive(max).await?;
        for Delivery { envelope, receipt, attempts } in &deliveries {
            let entity = addressee(envelope);
            let about = |call: &mut Call| {
                call.keys = entity.iter().map(|entity| DedupKey::of(entity, envelope)).collect();
                call.entity = entity.clone();
                call.message = Some(envelope.message_id.clone());
                call.message_type = Some(envelope.message_type.clone());
                call.receipt = Some(receipt.clone());
            };
            self.worker.call(Port::Receive).with(about).answered(|call| {
                call.says = if *attempts > 1 { format!("delivery {attempts}") } else { String::new() };
            });
            if self.worker.breaks(Rule::AckEarly) {
                let call = self.worker.call(Port::Settle).with(about);
                let settled = self.receiver.settle(receipt, Settlement::Ack).await;
                call.answered(|call| {
                    call.says = "ack, before anything is done".into();
                    call.fatal = matches!(settled, Ok(Settled::Done));
                });
            }
        }
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let says = match &settlement {
            Settlement::Ack => "ack",
            Settlement::Retry { .. } => "retry",
            Settlement::DeadLetter { .. } => "dead letter",
        };
        let call = self.worker.call(Port::Settle).with(|call| call.receipt = Some(receipt.clone()));
        let settled = self.receiver.settle(receipt, settlement).await;
        call.answered(|call| {
            call.says = match &settled {
                Ok(Settled::Done) => says.into(),
                Ok(Settled::LeaseLost) => format!("{says}: too late"),
                Err(_) => format!("{says}: the ack got lost"),
            };
        });
        settled
    }
}

/// Keeps the rules, but takes a moment.
#[derive(Debug)]
struct SlowDispatcher {
    dispatcher: Arc<dyn Dispatcher>,
    worker: Arc<Worker>,
}

#[async_trait]
impl Dispatcher for SlowDispatcher {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let first = outgoing.first().map_or("nothing", |outgoing| short(&outgoing.envelope.message_type));
        let more = outgoing.len().saturating_sub(1);
        let what = if more == 0 { first.into() } else { format!("{first} and {more} more") };
        let call = self.worker.call(Port::Dispatch).with(|call| {
            let cause = outgoing.first().and_then(|outgoing| outgoing.envelope.causation_id.clone());
            call.message = cause.map(|cause| cause.0);
            call.outgoing = outgoing.iter().map(|outgoing| outgoing.envelope.message_id.clone()).collect();
            call.says = what;
        });
        for _ in 0..DISPATCH_AWAITS {
            tokio::task::yield_now().await;
        }
        let results = self.dispatcher.dispatch(outgoing).await;
        call.answered(|_| {});
        results
    }
}

/// The entity that a message of the shop is for. A transport need not know; its diary wants to.
fn addressee(envelope: &Envelope) -> Option<EntityKey> {
    let (saga, field) = match envelope.message_type.as_str() {
        StockArrived::TYPE => (Stock::NAME, "stock"),
        ReserveStock::TYPE | ReturnStock::TYPE | ShipStock::TYPE => (Stock::NAME, "article"),
        TakePayment::TYPE | CancelPayment::TYPE => (Payment::NAME, "order"),
        _ => (Order::NAME, "order"),
    };
    let body: Value = serde_json::from_slice(&envelope.body).ok()?;
    let key = SagaKey::parse(body.get(field)?.as_str()?).ok()?;
    let scope = Scope { endpoint: ENDPOINT.parse().ok()?, saga: saga.parse().ok()? };
    Some(EntityKey::new(Arc::new(scope), key))
}
