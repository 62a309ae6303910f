//! Lies about messages on their way.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess,
    envelope::{Envelope, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, Delivery, DispatchError, Dispatcher, ErrorKind, Receipt, Receiver, Refused, Settled, Settlement,
        Transport, TransportCapabilities, TransportError,
    },
    testing::transport,
    time::Timestamp,
    transports::in_process::{Faults, MESSAGE_BYTES_MAX},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::lie::expect;

/// As short as a busy machine allows.
const LEASE: Duration = Duration::from_millis(500);

macro_rules! rejected {
    ($($test:ident: $promise:literal, $lie:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let hub = InProcess::with_faults("liars", LEASE, Faults::default());
                let liar = Liar { hub, lie: Lie::$lie, shared: Arc::default() };
                expect($promise, transport::first_broken(&liar).await);
            }
        )+
    };
}

rejected! {
    a_broker_that_forgets_is_rejected: "dispatcher 1, confirmed", Forgets;
    a_confirmation_before_the_broker_has_it_is_rejected: "dispatcher 1, confirmed", ConfirmsEarly;
    results_in_the_wrong_order_are_rejected: "dispatcher 2, own result", ResultsReversed;
    a_missing_result_is_rejected: "dispatcher 2, own result", StopsAtTheFirstError;
    a_changed_id_is_rejected: "dispatcher 3, unchanged", ChangesIds;
    a_lost_header_is_rejected: "dispatcher 3, unchanged", DropsHeaders;
    a_call_handed_over_backwards_is_rejected: "dispatcher 4, in order", HandsOverBackwards;
    a_check_that_accepts_everything_is_rejected: "dispatcher 5, refused before", ChecksNothing;
    an_early_ack_is_rejected: "receiver 1, kept until settled", AcksEarly;
    one_that_waits_and_is_forgotten_is_rejected: "receiver 1, kept until settled", ForgetsWhoWaits;
    an_ack_that_does_nothing_is_rejected: "receiver 1, kept until settled", IgnoresAcks;
    a_message_given_to_two_is_rejected: "receiver 2, hidden under a lease", GivesToTwo;
    an_extension_that_does_nothing_is_rejected: "receiver 2, hidden under a lease", IgnoresExtend;
    a_late_settle_that_counts_is_rejected: "receiver 3, late settles are refused", TakesLateSettles;
    a_late_settle_that_counts_for_another_is_rejected: "receiver 3, late settles are refused", EndsTheLeaseOfOthers;
    a_retry_without_its_delay_is_rejected: "receiver 4, retry comes back", RetriesAtOnce;
    a_retry_that_is_lost_is_rejected: "receiver 4, retry comes back", ForgetsRetries;
    a_count_that_does_not_count_is_rejected: "receiver 5, counted", CountsOne;
    a_message_before_it_is_due_is_rejected: "receiver 6, not early", DeliversEarly;
    a_batch_in_the_wrong_order_is_rejected: "receiver 7, given in order", ReversesBatches;
}

/// A transport without a lie passes in the same harness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_without_a_lie_are_accepted() {
    let hub = InProcess::with_faults("liars", LEASE, Faults::default());
    transport::check_all(&Liar { hub, lie: Lie::None, shared: Arc::default() }).await.assert();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Honest, and refuses what is too large when it is sent, as a broker does.
    None,
    /// One in seven messages is confirmed and dropped.
    Forgets,
    /// Messages are confirmed, and sent a while later if the connection still is there.
    ConfirmsEarly,
    ResultsReversed,
    /// What comes after a message that failed has no result.
    StopsAtTheFirstError,
    ChangesIds,
    DropsHeaders,
    /// The messages of a call are sent in reverse.
    HandsOverBackwards,
    ChecksNothing,
    /// A message is forgotten when it is given.
    AcksEarly,
    /// Who waits while nothing is leased hears of the next message only, not of the end of another's lease.
    ForgetsWhoWaits,
    /// A message comes again after it was acknowledged.
    IgnoresAcks,
    /// A message that one receiver has is given to another too.
    GivesToTwo,
    IgnoresExtend,
    /// A settle with a lost lease settles for whoever has the message now.
    TakesLateSettles,
    /// The same, but it says that the lease is lost.
    EndsTheLeaseOfOthers,
    RetriesAtOnce,
    /// A retry ends the message.
    ForgetsRetries,
    CountsOne,
    DeliversEarly,
    /// What is received at once is given in reverse.
    ReversesBatches,
}

/// What the ends of a lying transport know of each other.
#[derive(Debug, Default)]
struct Shared {
    sent: AtomicUsize,
    due: Mutex<HashMap<MessageId, Timestamp>>,
    /// What is given, by message.
    given: Mutex<HashMap<MessageId, Delivery>>,
    /// Which message a receipt was for.
    receipts: Mutex<HashMap<Receipt, MessageId>>,
    /// Wakes one that waits for each message that is sent.
    arrived: Notify,
}

#[derive(Debug, Clone)]
struct Liar {
    hub: InProcess,
    lie: Lie,
    shared: Arc<Shared>,
}

#[async_trait]
impl transport::Builder for Liar {
    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Transport for Liar {
    fn capabilities(&self) -> TransportCapabilities {
        Transport::capabilities(&self.hub)
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let inner = self.hub.connect(endpoint, types).await?;
        let (lie, shared) = (self.lie, self.shared.clone());
        let receiver = Arc::new(In { inner: inner.receiver, lie, shared: shared.clone() });
        let dispatcher = Arc::new(Out { inner: inner.dispatcher, lie, shared, unsent: Mutex::default() });
        Ok(Connected { receiver, dispatcher, dead_letters: inner.dead_letters, marks: inner.marks })
    }
}

struct Out {
    inner: Arc<dyn Dispatcher>,
    lie: Lie,
    shared: Arc<Shared>,
    /// Tasks that end with the connection.
    unsent: Mutex<tokio::task::JoinSet<()>>,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("lie", &self.lie).finish_non_exhaustive()
    }
}

impl Out {
    /// Sends one message as a broker does: what is too large is refused.
    async fn send(&self, outgoing: &Outgoing) -> Result<(), DispatchError> {
        if outgoing.envelope.size() > MESSAGE_BYTES_MAX {
            let why = "the message is too large";
            return Err(DispatchError::Permanent(TransportError::new(ErrorKind::TooLarge, "dispatching", why)));
        }
        let mut changed = (*outgoing.envelope).clone();
        match self.lie {
            Lie::Forgets if self.shared.sent.fetch_add(1, Ordering::Relaxed) % 7 == 6 => return Ok(()),
            Lie::ConfirmsEarly => {
                let (inner, outgoing) = (self.inner.clone(), outgoing.clone());
                self.unsent.lock().unwrap().spawn(async move {
                    sleep(Duration::from_millis(5)).await;
                    inner.dispatch(&[outgoing]).await;
                });
                return Ok(());
            }
            Lie::ChangesIds => changed.message_id = MessageId::random(),
            Lie::DropsHeaders => changed.headers = Default::default(),
            Lie::DeliversEarly => {
                if let Some(due) = changed.due.take() {
                    self.shared.due.lock().unwrap().insert(changed.message_id.clone(), due);
                }
            }
            _ => {}
        }
        let sent = Outgoing { envelope: Arc::new(changed), destination: outgoing.destination.clone() };
        let result = self.inner.dispatch(&[sent]).await.pop().unwrap();
        self.shared.arrived.notify_one();
        result
    }
}

#[async_trait]
impl Dispatcher for Out {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        if self.lie == Lie::ChecksNothing { Ok(()) } else { self.inner.check(outgoing) }
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let mut results = Vec::with_capacity(outgoing.len());
        if self.lie == Lie::HandsOverBackwards {
            for outgoing in outgoing.iter().rev() {
                results.insert(0, self.send(outgoing).await);
            }
            return results;
        }
        for outgoing in outgoing {
            let result = self.send(outgoing).await;
            let stops = result.is_err() && self.lie == Lie::StopsAtTheFirstError;
            results.push(result);
            if stops {
                return results;
            }
        }
        if self.lie == Lie::ResultsReversed {
            results.reverse();
        }
        results
    }
}

#[derive(Debug)]
struct In {
    inner: Arc<dyn Receiver>,
    lie: Lie,
    shared: Arc<Shared>,
}

impl In {
    /// What the transport gives; to some liars, what it has already given.
    async fn take(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        const SOON: Duration = Duration::from_millis(50);
        if self.lie == Lie::ForgetsWhoWaits {
            while self.shared.given.lock().unwrap().is_empty() {
                if let Ok(deliveries) = timeout(SOON, self.inner.receive(max)).await {
                    return deliveries;
                }
                self.shared.arrived.notified().await;
            }
            return self.inner.receive(max).await;
        }
        if self.lie != Lie::GivesToTwo {
            return self.inner.receive(max).await;
        }
        loop {
            if let Ok(deliveries) = timeout(SOON, self.inner.receive(max)).await {
                return deliveries;
            }
            // The queues of all endpoints are one to this lie; no check has messages at two when nothing comes.
            let given = self.shared.given.lock().unwrap();
            if let Some(delivery) = given.values().next() {
                return Ok(vec![delivery.clone()]);
            }
        }
    }

    fn as_given(&self, mut delivery: Delivery) -> Delivery {
        let id = delivery.envelope.message_id.clone();
        if self.lie == Lie::CountsOne {
            delivery.attempts = 1;
        }
        if let Some(due) = self.shared.due.lock().unwrap().get(&id) {
            delivery.envelope = Arc::new(Envelope { due: Some(*due), ..(*delivery.envelope).clone() });
        }
        self.shared.receipts.lock().unwrap().insert(delivery.receipt.clone(), id.clone());
        self.shared.given.lock().unwrap().insert(id, delivery.clone());
        delivery
    }

    /// Who has the message of a lost lease now.
    fn current(&self, late: &Receipt) -> Option<Receipt> {
        let id = self.shared.receipts.lock().unwrap().get(late)?.clone();
        self.shared.given.lock().unwrap().get(&id).map(|delivery| delivery.receipt.clone())
    }
}

#[async_trait]
impl Receiver for In {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let mut deliveries: Vec<_> = self.take(max).await?.into_iter().map(|d| self.as_given(d)).collect();
        match self.lie {
            Lie::AcksEarly => {
                for delivery in &deliveries {
                    self.inner.settle(&delivery.receipt, Settlement::Ack).await?;
                }
            }
            Lie::ReversesBatches => deliveries.reverse(),
            _ => {}
        }
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        if self.lie == Lie::IgnoresExtend { Ok(()) } else { self.inner.extend(receipts).await }
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let settlement = match (self.lie, settlement) {
            (Lie::IgnoresAcks, Settlement::Ack) | (Lie::RetriesAtOnce, Settlement::Retry { .. }) => {
                Settlement::Retry { delay: Duration::ZERO, counts: true }
            }
            (Lie::ForgetsRetries, Settlement::Retry { .. }) => Settlement::Ack,
            (_, settlement) => settlement,
        };
        let mut settled = self.inner.settle(receipt, settlement.clone()).await?;
        match self.lie {
            Lie::AcksEarly => return Ok(Settled::Done),
            Lie::TakesLateSettles | Lie::EndsTheLeaseOfOthers if settled == Settled::LeaseLost => {
                // For whoever has it now; else it is taken note of, and comes to nothing.
                if let Some(current) = self.current(receipt) {
                    self.inner.settle(&current, settlement).await?;
                }
                if self.lie == Lie::TakesLateSettles {
                    settled = Settled::Done;
                }
            }
            _ => {}
        }
        if let Some(id) = self.shared.receipts.lock().unwrap().get(receipt) {
            self.shared.given.lock().unwrap().remove(id);
        }
        Ok(settled)
    }
}
