//! Lies about messages that are gone.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess,
    envelope::{Destination, Outgoing},
    ids::{EndpointName, MessageId, TypeName},
    ports::{
        Connected, Delivery, DispatchError, Dispatcher, Mark, Marks, Receipt, Receiver, Refused, Settled, Settlement,
        Transport, TransportCapabilities, TransportError,
    },
    testing::transport,
    time::Timestamp,
    transports::in_process::Faults,
};

use crate::lie::expect;

/// As short as a busy machine allows.
const LEASE: Duration = Duration::from_millis(500);

macro_rules! rejected {
    ($($test:ident: $promise:literal, $lie:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                expect($promise, transport::first_broken(&Liar::new(Lie::$lie)).await);
            }
        )+
    };
}

rejected! {
    marks_that_are_claimed_and_not_given_are_rejected: "marks 1, behind all", GivesNone;
    a_mark_in_front_of_the_newest_is_rejected: "marks 1, behind all", InFrontOfTheNewest;
    a_mark_that_forgets_what_is_given_is_rejected: "marks 1, behind all", ForgetsGiven;
    a_mark_that_forgets_what_is_put_off_is_rejected: "marks 1, behind all", ForgetsPutOff;
    a_mark_that_forgets_what_is_not_due_is_rejected: "marks 1, behind all", ForgetsNotDue;
    a_mark_that_passes_when_all_was_given_is_rejected: "marks 2, gone for good", TakesGivenForGone;
    a_mark_that_passes_when_all_was_settled_somehow_is_rejected: "marks 2, gone for good", TakesSettledForGone;
    a_mark_that_passes_with_the_last_is_rejected: "marks 2, gone for good", PassesWithTheLast;
    a_mark_that_never_passes_is_rejected: "marks 3, in the end", NeverPasses;
    a_mark_that_waits_for_what_is_behind_it_is_rejected: "marks 3, in the end", WaitsForAll;
    a_mark_that_waits_for_what_was_set_aside_is_rejected: "marks 3, in the end", WaitsForDeadLetters;
    numbers_that_are_given_again_are_rejected: "marks 3, in the end", NumbersAgain;
    a_mark_that_has_passed_for_others_is_rejected: "marks 4, any process", PassedForOthers;
    a_mark_that_never_passes_for_others_is_rejected: "marks 4, any process", NeverForOthers;
}

/// A transport without a lie passes in the same harness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_without_a_lie_are_accepted() {
    transport::check_all(&Liar::new(Lie::None)).await.assert();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    GivesNone,
    InFrontOfTheNewest,
    ForgetsGiven,
    ForgetsPutOff,
    ForgetsNotDue,
    /// Since the mark was made.
    TakesGivenForGone,
    /// Since the mark was made, for a retry too.
    TakesSettledForGone,
    /// What is in front of the last message does not count, once that is gone.
    PassesWithTheLast,
    NeverPasses,
    /// The queue has to be empty.
    WaitsForAll,
    WaitsForDeadLetters,
    /// A message has the highest number plus one, and so that of one that is gone.
    NumbersAgain,
    /// A connection knows its own marks, and takes others for passed.
    PassedForOthers,
    NeverForOthers,
}

/// A message of one queue.
#[derive(Debug, Clone)]
struct Sent {
    id: MessageId,
    number: u64,
    due: Option<Timestamp>,
    state: State,
    /// When it was last given, and settled.
    given: u64,
    settled: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Given,
    PutOff,
    SetAside,
    Gone,
}

/// What was sent to each endpoint, and what became of it.
#[derive(Debug, Default)]
struct Books {
    queues: Mutex<HashMap<EndpointName, Vec<Sent>>>,
    time: AtomicU64,
}

impl Books {
    fn tick(&self) -> u64 {
        self.time.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn note(&self, endpoint: &EndpointName, id: &MessageId, what: impl Fn(&mut Sent)) {
        let mut queues = self.queues.lock().unwrap();
        let queue = queues.entry(endpoint.clone()).or_default();
        let open = |sent: &&mut Sent| sent.id == *id && !matches!(sent.state, State::Gone | State::SetAside);
        queue.iter_mut().find(open).into_iter().for_each(what);
    }
}

#[derive(Debug, Clone)]
struct Liar {
    hub: InProcess,
    lie: Lie,
    books: Arc<Books>,
}

impl Liar {
    fn new(lie: Lie) -> Self {
        Self { hub: InProcess::with_faults("marks", LEASE, Faults::default()), lie, books: Arc::default() }
    }
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
        TransportCapabilities { marks: true, ..Transport::capabilities(&self.hub) }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let inner = self.hub.connect(endpoint, types).await?;
        let end = Arc::new(End {
            liar: self.clone(),
            receiver: inner.receiver,
            endpoint: endpoint.clone(),
            connection: self.books.tick(),
            ids: Mutex::default(),
        });
        let dispatcher = Arc::new(Out { liar: self.clone(), inner: inner.dispatcher });
        let marks = (self.lie != Lie::GivesNone).then(|| end.clone() as Arc<dyn Marks>);
        Ok(Connected { receiver: end, dispatcher, dead_letters: inner.dead_letters, marks })
    }
}

#[derive(Debug)]
struct Out {
    liar: Liar,
    inner: Arc<dyn Dispatcher>,
}

#[async_trait]
impl Dispatcher for Out {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.inner.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        for Outgoing { destination, envelope } in outgoing {
            let Destination::Endpoint(endpoint) = destination else { continue };
            let mut queues = self.liar.books.queues.lock().unwrap();
            let queue = queues.entry(endpoint.clone()).or_default();
            let open = queue.iter().filter(|sent| self.liar.lie != Lie::NumbersAgain || sent.state != State::Gone);
            let number = open.map(|sent| sent.number).max().unwrap_or(0) + 1;
            let (id, due) = (envelope.message_id.clone(), envelope.due);
            queue.push(Sent { id, number, due, state: State::Waits, given: 0, settled: 0 });
        }
        self.inner.dispatch(outgoing).await
    }
}

#[derive(Debug)]
struct End {
    liar: Liar,
    receiver: Arc<dyn Receiver>,
    endpoint: EndpointName,
    connection: u64,
    /// Which message a receipt was for.
    ids: Mutex<HashMap<Receipt, MessageId>>,
}

#[async_trait]
impl Receiver for End {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.receiver.receive(max).await?;
        for Delivery { envelope, receipt, .. } in &deliveries {
            self.ids.lock().unwrap().insert(receipt.clone(), envelope.message_id.clone());
            let now = self.liar.books.tick();
            self.liar.books.note(&self.endpoint, &envelope.message_id, |sent| {
                (sent.state, sent.given) = (State::Given, now);
            });
        }
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let state = match settlement {
            Settlement::Ack => State::Gone,
            Settlement::Retry { .. } => State::PutOff,
            Settlement::DeadLetter { .. } => State::SetAside,
        };
        let settled = self.receiver.settle(receipt, settlement).await?;
        let id = self.ids.lock().unwrap().get(receipt).cloned();
        if let (Settled::Done, Some(id)) = (settled, id) {
            let now = self.liar.books.tick();
            self.liar.books.note(&self.endpoint, &id, |sent| (sent.state, sent.settled) = (state, now));
        }
        Ok(settled)
    }
}

#[async_trait]
impl Marks for End {
    async fn end(&self) -> Result<Mark, TransportError> {
        let queues = self.liar.books.queues.lock().unwrap();
        let all = queues.get(&self.endpoint).into_iter().flatten();
        let open = all.filter(|sent| self.liar.lie != Lie::NumbersAgain || sent.state != State::Gone);
        let last = open.map(|sent| sent.number).max().unwrap_or(0);
        let last = if self.liar.lie == Lie::InFrontOfTheNewest { last.saturating_sub(1) } else { last };
        Ok(Mark::new([last, self.liar.books.tick(), self.connection]))
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let &[last, made, connection] = mark.places() else { panic!("{mark:?} is none of these") };
        let lie = self.liar.lie;
        match lie {
            Lie::PassedForOthers if connection != self.connection => return Ok(true),
            Lie::NeverForOthers if connection != self.connection => return Ok(false),
            Lie::NeverPasses => return Ok(false),
            _ => {}
        }
        let queues = self.liar.books.queues.lock().unwrap();
        let is_gone = |sent: &&Sent| match (lie, sent.state) {
            (_, State::Gone) | (Lie::ForgetsGiven, State::Given) | (Lie::ForgetsPutOff, State::PutOff) => true,
            (lie, State::SetAside) => lie != Lie::WaitsForDeadLetters,
            (Lie::ForgetsNotDue, State::Waits) => sent.due.is_some_and(|due| due > Timestamp::now()),
            (Lie::TakesGivenForGone, _) => sent.given > made,
            (Lie::TakesSettledForGone, _) => sent.settled > made,
            (Lie::PassesWithTheLast, _) => sent.number != last,
            _ => false,
        };
        let in_front = |sent: &&Sent| sent.number <= last || lie == Lie::WaitsForAll;
        Ok(queues.get(&self.endpoint).into_iter().flatten().filter(in_front).all(|sent| is_gone(&sent)))
    }
}
