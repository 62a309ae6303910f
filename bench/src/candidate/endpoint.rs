//! An endpoint, and the closed loop that feeds it.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use hapax::{
    Endpoint, InProcess, Message, MessageId,
    endpoint::EndpointBuilder,
    envelope::{Destination, Envelope, Outgoing},
    ids::{EndpointName, TypeName},
    metrics::{Event, Metrics},
    ports::{
        Connected, DeadLetters, DedupStore, Delivery, DispatchError, Dispatcher, EntityStore, Receipt, Receiver,
        Refused, Settled, Settlement, Transport, TransportCapabilities, TransportError,
    },
};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::{
    AnyError,
    books::Books,
    figure::percentile,
    measure::{Sample, Window},
    run::{Run, Shape},
    workload::{Account, Asked, Deposit, Incoming, Later, Quiet, Workload},
};

/// Name of the endpoint and of its queue.
pub(crate) const ENDPOINT: &str = "bench";
/// How many commits a store has made so far; `None` for one that makes none.
pub(crate) type Commits = Box<dyn Fn() -> Option<u64> + Send + Sync>;
/// Messages that wait in the queue for each one in flight, so that the endpoint never waits for the producer.
const QUEUED_PER_IN_FLIGHT: u64 = 2;

/// Runs an endpoint on `store`, with one message to each entity before the window opens if `warm_up`. The books lack
/// what the store knows.
pub(crate) async fn fed<S>(store: S, commits: Commits, shape: &Shape, warm_up: bool) -> Result<Run, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    fed_by(InProcess::new(ENDPOINT), store, commits, shape, warm_up).await
}

/// The same by queues that are there already.
pub(crate) async fn fed_by<S>(
    hub: InProcess,
    store: S,
    commits: Commits,
    shape: &Shape,
    warm_up: bool,
) -> Result<Run, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
{
    let (transport, shape) = (Arc::new(hub.clone()), *shape);
    run(store, transport, &shape, async move |progress| {
        Producer::new(hub, progress, commits, shape)?.produce(warm_up).await
    })
    .await
}

/// Runs an endpoint while `drive` goes on, which gives the sample and the number of distinct ids.
pub(crate) async fn run<S, D>(
    store: S,
    transport: Arc<dyn Transport>,
    shape: &Shape,
    drive: impl FnOnce(Arc<Progress>) -> D,
) -> Result<Run, AnyError>
where
    S: EntityStore + DedupStore + DeadLetters + 'static,
    D: Future<Output = Result<(Sample, u64), AnyError>> + Send + 'static,
{
    run_built(Endpoint::builder(ENDPOINT).store(store), transport, shape, drive).await
}

/// The same with an endpoint that was given its stores already.
pub(super) async fn run_built<D>(
    endpoint: EndpointBuilder,
    transport: Arc<dyn Transport>,
    shape: &Shape,
    drive: impl FnOnce(Arc<Progress>) -> D,
) -> Result<Run, AnyError>
where
    D: Future<Output = Result<(Sample, u64), AnyError>> + Send + 'static,
{
    let progress = Arc::new(Progress::default());
    let endpoint = endpoint
        .transport(Counted { transport, progress: progress.clone(), timed: shape.timed })
        .saga::<Account>(|account| account.starts::<Deposit>().starts::<Quiet>().starts::<Asked>().starts::<Later>())
        .metrics(progress.clone())
        .start()
        .await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let driving = drive(progress.clone());
    let driving = tokio::spawn(async move {
        let driven = driving.await;
        drop(stop);
        driven
    });
    endpoint.run_until(stopped).await?;
    let (sample, distinct) = driving.await??;
    let books = Books {
        distinct,
        sent: progress.sent.load(Ordering::Relaxed),
        sent_each: u64::from(shape.outgoing),
        disturbed: progress.disturbed.load(Ordering::Relaxed),
        ..Books::default()
    };
    Ok(Run { sample, books })
}

/// What has been done, and who wants to know.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Messages that are over.
    done: AtomicU64,
    /// When `done` reaches this, who waits is woken.
    wake_at: AtomicU64,
    wake: Notify,
    sent: AtomicU64,
    disturbed: AtomicU64,
    /// Seconds from receipt to settlement, where messages are timed.
    times: Mutex<Vec<f64>>,
}

impl Progress {
    /// Those so far, which are forgotten here.
    fn take_times(&self) -> Vec<f64> {
        std::mem::take(&mut self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until `count` messages are over. One at a time may wait.
    pub(super) async fn reaches(&self, count: u64) {
        self.wake_at.store(count, Ordering::Relaxed);
        while self.done() < count {
            self.wake.notified().await;
        }
    }
}

impl Metrics for Progress {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Handled(_) | Event::Duplicate(_) => {}
            // The course of things.
            Event::Started(..)
            | Event::Received(..)
            | Event::Saved(_)
            | Event::Sent(..)
            | Event::Dispatched(..)
            | Event::Ended(..)
            | Event::Waiting(..) => return,
            over => {
                self.disturbed.fetch_add(1, Ordering::Relaxed);
                if !matches!(over, Event::Dropped(..) | Event::DeadLettered(_) | Event::LeftToSweeper(_)) {
                    return; // The message is not over.
                }
            }
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done >= self.wake_at.load(Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

/// Keeps the queue filled.
pub(super) struct Producer {
    hub: InProcess,
    progress: Arc<Progress>,
    commits: Commits,
    shape: Shape,
    workload: Workload,
    queue: EndpointName,
    message_type: TypeName,
    queued: u64,
    chunk: Vec<Outgoing>,
}

impl Producer {
    pub(super) fn new(
        hub: InProcess,
        progress: Arc<Progress>,
        commits: Commits,
        shape: Shape,
    ) -> Result<Self, AnyError> {
        Ok(Self {
            hub,
            progress,
            commits,
            shape,
            workload: shape.workload(),
            queue: EndpointName::parse(ENDPOINT)?,
            message_type: TypeName::parse(if shape.outgoing { Deposit::TYPE } else { Quiet::TYPE })?,
            queued: 0,
            chunk: Vec::new(),
        })
    }

    /// Messages of another type, with the same bodies.
    pub(super) fn of<M: Message>(self) -> Result<Self, AnyError> {
        Ok(Self { message_type: TypeName::parse(M::TYPE)?, ..self })
    }

    pub(super) async fn produce(mut self, warm_up: bool) -> Result<(Sample, u64), AnyError> {
        let mut entity = 0..if warm_up { self.shape.entities } else { 0 };
        while self.fill(|workload| entity.next().map(|entity| workload.fresh_for(entity))).await? {
            self.progress.wake.notified().await;
        }
        self.progress.reaches(self.queued).await;
        let (before, commits) = (self.progress.done(), (self.commits)());
        self.progress.take_times();
        let window = Window::open();
        let end = Instant::now() + self.shape.time;
        let last = before.saturating_add(self.shape.deliveries_max);
        let (mut times, mut begun) = (Vec::new(), Instant::now());
        while Instant::now() < end && self.progress.done() < last {
            self.fill(|workload| Some(workload.next())).await?;
            self.progress.wake.notified().await;
            if self.shape.in_flight == 1 {
                times.push(begun.elapsed().as_secs_f64());
                begun = Instant::now();
            }
        }
        let mut sample = window.close(self.progress.done() - before);
        if self.shape.timed {
            times = self.progress.take_times();
        }
        (sample.median_seconds, sample.p99_seconds) = (percentile(&mut times, 50), percentile(&mut times, 99));
        sample.commits = (self.commits)().zip(commits).map(|(now, then)| now - then);
        self.progress.reaches(self.queued).await;
        Ok((sample, self.workload.distinct))
    }

    /// Fills the queue up and says when to be woken; whether `next` has more.
    async fn fill(&mut self, mut next: impl FnMut(&mut Workload) -> Option<Incoming>) -> Result<bool, AnyError> {
        let in_flight = self.shape.in_flight as u64;
        let (full, low) = if in_flight == 1 { (1, 0) } else { (QUEUED_PER_IN_FLIGHT * in_flight, in_flight * 3 / 2) };
        let mut more = true;
        while more && self.queued - self.progress.done() + (self.chunk.len() as u64) < full {
            match next(&mut self.workload) {
                Some(message) => self.chunk.push(self.outgoing(message)),
                None => more = false,
            }
        }
        self.queued += self.chunk.len() as u64;
        self.progress.wake_at.store(self.queued.saturating_sub(low), Ordering::Relaxed);
        for result in self.hub.dispatch(&self.chunk).await {
            result?;
        }
        self.chunk.clear();
        Ok(more)
    }

    fn outgoing(&self, message: Incoming) -> Outgoing {
        outgoing(&self.queue, &self.message_type, message)
    }
}

/// `message` on its way to `queue`.
pub(crate) fn outgoing(queue: &EndpointName, message_type: &TypeName, message: Incoming) -> Outgoing {
    let id = MessageId::from(Uuid::from_bytes(message.id));
    let envelope = Arc::new(Envelope::new(id, message_type.clone(), message.body));
    Outgoing { destination: Destination::Endpoint(queue.clone()), envelope }
}

/// A transport with what is dispatched through it counted. The future is handed on as it is: counting costs an addition.
#[derive(Debug)]
struct Counted {
    transport: Arc<dyn Transport>,
    progress: Arc<Progress>,
    timed: bool,
}

#[async_trait::async_trait]
impl Transport for Counted {
    fn capabilities(&self) -> TransportCapabilities {
        self.transport.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.transport.connect(endpoint, types).await?;
        let progress = self.progress.clone();
        let dispatcher = Arc::new(Counter { dispatcher: connected.dispatcher, progress: progress.clone() });
        let receiver = connected.receiver;
        let receiver =
            if self.timed { Arc::new(Timer { receiver, begun: Mutex::default(), progress }) } else { receiver };
        Ok(Connected { dispatcher, receiver, ..connected })
    }
}

#[derive(Debug)]
struct Counter {
    dispatcher: Arc<dyn Dispatcher>,
    progress: Arc<Progress>,
}

type Dispatching<'a> = Pin<Box<dyn Future<Output = Vec<Result<(), DispatchError>>> + Send + 'a>>;

impl Dispatcher for Counter {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.dispatcher.check(outgoing)
    }

    fn dispatch<'life0, 'life1, 'async_trait>(&'life0 self, outgoing: &'life1 [Outgoing]) -> Dispatching<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        self.progress.sent.fetch_add(outgoing.len() as u64, Ordering::Relaxed);
        self.dispatcher.dispatch(outgoing)
    }
}

/// Notes when each message was received, and how long it took until it is settled.
#[derive(Debug)]
struct Timer {
    receiver: Arc<dyn Receiver>,
    begun: Mutex<HashMap<Receipt, Instant>>,
    progress: Arc<Progress>,
}

#[async_trait::async_trait]
impl Receiver for Timer {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.receiver.receive(max).await?;
        let now = Instant::now();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.extend(deliveries.iter().map(|delivery| (delivery.receipt.clone(), now)));
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let settled = self.receiver.settle(receipt, settlement).await?;
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(receipt);
        if let Some(begun) = begun {
            let mut times = self.progress.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.push(begun.elapsed().as_secs_f64());
        }
        Ok(settled)
    }
}
