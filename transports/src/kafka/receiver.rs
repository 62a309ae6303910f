//! An endpoint's end of its partitions: calls wait for what a thread of its own has read, and no commit goes ahead of what is not settled.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{DeadLetter, Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, TransportError},
    time::Timestamp,
};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify},
    time::{sleep_until, timeout},
};

use super::{
    Broker, Kafka,
    asker::Asker,
    letters::Letter,
    member,
    message::headers_of,
    notes::Pen,
    state::{Held, State},
};

pub(super) const RECEIVING: &str = "receiving messages";
const SETTLING: &str = "settling a message";
/// Before a message that could not be set aside is tried again.
const REST: Duration = Duration::from_secs(1);
/// How long a receiver that goes is waited for, so that others have its partitions at once. A broker that is away is not worth more.
const LEAVE: Duration = Duration::from_secs(2);

/// One endpoint's end of its queue, and of what it subscribes to.
pub(super) struct EndpointQueue {
    end: Arc<End>,
    /// One call at a time.
    taking: AsyncMutex<()>,
    /// Ends when the thread does.
    thread: Mutex<Option<mpsc::Receiver<()>>>,
    /// What it needs is declared before the next call.
    is_lost: AtomicBool,
    types: Vec<TypeName>,
}

pub(super) struct End {
    kafka: Kafka,
    pub(super) endpoint: EndpointName,
    /// Its own first.
    pub(super) topics: Vec<Arc<str>>,
    pub(super) asker: Arc<Mutex<Asker>>,
    pub(super) pen: Pen,
    /// Of all processes, and of all ends in them.
    who: u64,
    pub(super) arrived: Notify,
    pub(super) stops: AtomicBool,
    state: Mutex<State>,
    /// For what a thread cannot wait for.
    runtime: Handle,
}

impl End {
    pub(super) fn broker(&self) -> &Broker {
        &self.kafka.0
    }

    /// Who gives the messages of a partition that was taken at this time.
    pub(super) fn giver(&self, epoch: u64) -> String {
        format!("{:016x}.{epoch}", self.who)
    }

    /// Never held over a call of the client library.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the next who asks.
    pub(super) fn failed(&self, error: TransportError) {
        self.state().failed = Some(error);
        self.arrived.notify_one();
    }

    /// Sends what is no message to the dead letters. It is tried until that is confirmed; its partition goes on meanwhile.
    pub(super) fn set_aside(self: &Arc<Self>) {
        for (held, unreadable) in self.state().leaving(Instant::now()) {
            let end = self.clone();
            drop(self.runtime.spawn(async move {
                let lies = (held.place.clone(), held.offset);
                let letter = Letter::unreadable(&end.broker().names, &end.endpoint, &unreadable, lies);
                let put = end.broker().put_letter(SETTLING, &letter, true).await;
                if let Some(lane) = end.state().lane(&held.place, held.epoch) {
                    match &put {
                        Ok(()) => drop(lane.settle(held.offset)),
                        Err(_) => lane.retry(held.offset, Instant::now(), REST, true),
                    }
                }
                // What is committed stands still meanwhile: that is told.
                if let Err(e) = put {
                    tracing::warn!(error = ?e, "setting a message aside failed; tried again");
                    end.failed(e);
                }
            }));
        }
    }
}

impl EndpointQueue {
    pub(super) fn new(kafka: Kafka, endpoint: EndpointName, types: &[TypeName], asker: Arc<Mutex<Asker>>) -> Self {
        let names = &kafka.0.names;
        let of_types = types.iter().map(|kind| names.topic(kind));
        let topics = std::iter::once(names.queue(&endpoint)).chain(of_types).map(Into::into).collect();
        let pen = Pen { topic: names.notes(&endpoint), endpoint: endpoint.clone() };
        let end = End {
            kafka,
            endpoint,
            topics,
            asker,
            pen,
            who: fastrand::u64(..),
            arrived: Notify::new(),
            stops: AtomicBool::new(false),
            state: Mutex::default(),
            runtime: Handle::current(),
        };
        Self {
            end: Arc::new(end),
            taking: AsyncMutex::default(),
            thread: Mutex::default(),
            is_lost: AtomicBool::new(false),
            types: types.to_vec(),
        }
    }

    /// Has the thread run: from the first call on, so that who only sends is no member of a group and holds up nobody in it.
    async fn takes_part(&self) -> Result<(), TransportError> {
        let end = &self.end;
        if end.state().runs {
            return Ok(());
        }
        if self.is_lost.load(Ordering::Relaxed) {
            end.broker().subscribe(&end.endpoint, &self.types).await?;
            self.is_lost.store(false, Ordering::Relaxed);
        }
        let (ends, ended) = mpsc::channel();
        let of_thread = end.clone();
        end.state().runs = true;
        let begun = thread::Builder::new().name("hapax-kafka".to_owned()).spawn(move || {
            member::run(&of_thread);
            drop(of_thread);
            drop(ends);
        });
        if let Err(e) = begun {
            end.state().runs = false;
            let why = "the system has no thread for it: let it have more";
            return Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why).caused_by(e));
        }
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        Ok(())
    }

    /// What can be given now, or when to look again.
    fn given(&self, max: usize) -> Result<Result<Vec<Delivery>, Option<Instant>>, TransportError> {
        let mut state = self.end.state();
        if state.is_dead {
            let why = format!(
                "the thread that reads for {} has failed in itself, and the log says why: start the endpoint anew, and report it",
                self.end.endpoint
            );
            return Err(TransportError::new(ErrorKind::Unavailable, RECEIVING, why));
        }
        let given = state.give(max, Instant::now(), self.end.broker().options.ordered_keys);
        if given.is_ok() {
            return Ok(given);
        }
        match state.failed.take() {
            Some(e) => {
                self.is_lost.store(!state.runs, Ordering::Relaxed);
                Err(e)
            }
            None => Ok(given),
        }
    }
}

#[async_trait]
impl Receiver for EndpointQueue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let _turn = self.taking.lock().await;
        loop {
            let arrived = self.end.arrived.notified(); // Before the look, so that nothing told in between is missed.
            // From here on nothing is waited for with a message in hand: a call that is dropped has taken nothing.
            let later = match self.given(max.max(1))? {
                Ok(deliveries) => return Ok(deliveries),
                Err(later) => later,
            };
            self.takes_part().await?;
            match later {
                None => arrived.await,
                Some(later) => {
                    tokio::select! {
                        () = arrived => {}
                        () = sleep_until(later.into()) => {}
                    }
                }
            }
        }
    }

    /// There is nothing that runs out: a message is this process' as long as its partition is.
    async fn extend(&self, _receipts: &[Receipt]) -> Result<(), TransportError> {
        Ok(())
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let taken = receipt.as_number().and_then(|number| self.end.state().take_back(number));
        let Some(held) = taken else { return Ok(Settled::LeaseLost) };
        let mut back = GivenBack { end: &self.end, held: Some(held.clone()), delay: REST, counts: true };
        match settlement {
            Settlement::Retry { delay, counts } => {
                if self.end.state().lane(&held.place, held.epoch).is_none() {
                    back.held = None;
                    return Ok(Settled::LeaseLost);
                }
                (back.delay, back.counts) = (delay, counts);
                drop(back);
                return Ok(Settled::Done);
            }
            Settlement::DeadLetter { reason } => {
                let Some((envelope, attempts)) =
                    self.end.state().lane(&held.place, held.epoch).and_then(|lane| lane.envelope(held.offset))
                else {
                    back.held = None;
                    return Ok(Settled::LeaseLost);
                };
                let headers = headers_of(&envelope, &self.end.broker().options.written_as);
                let (endpoint, time) = (self.end.endpoint.clone(), Timestamp::now());
                let letter = DeadLetter { envelope, endpoint, saga: None, destination: None, reason, attempts, time };
                let lies = (held.place.clone(), held.offset);
                let letter = Letter::of(&self.end.broker().names, &letter, headers, Some(lies));
                // First put, confirmed, where it goes, and only then taken from here: a crash in between leaves two copies, and never none.
                self.end.broker().put_letter(SETTLING, &letter, true).await?;
            }
            Settlement::Ack => {}
        }
        back.held = None;
        self.committed(&held).await
    }
}

impl EndpointQueue {
    /// Settles for good: done once that is committed, or where something before it is not settled, at once. It comes again then if this
    /// process dies.
    async fn committed(&self, held: &Held) -> Result<Settled, TransportError> {
        let mut watched = {
            let mut state = self.end.state();
            let Some(lane) = state.lane(&held.place, held.epoch) else { return Ok(Settled::LeaseLost) };
            if lane.settle(held.offset) {
                return Ok(Settled::Done);
            }
            lane.watch()
        };
        self.end.arrived.notify_one(); // There is room again, or, where order is kept, a turn.
        let patience = self.end.broker().link.patience;
        match timeout(patience, watched.wait_for(|committed| *committed > held.offset)).await {
            Ok(Ok(_)) => Ok(Settled::Done),
            Ok(Err(_)) => Err(self.unsure("its partition was handed over meanwhile")),
            Err(_) => Err(self.unsure(&format!("it was not confirmed within {patience:?}"))),
        }
    }

    fn unsure(&self, why: &str) -> TransportError {
        let place = self.end.broker().link.place();
        let why =
            format!("{place}: whether the message is committed is not known, for {why}; if it is not, it comes again");
        TransportError::new(ErrorKind::UnknownOutcome, SETTLING, why)
    }
}

/// Gives a message back that is not settled after all, also when the call that settled it is dropped: nobody else would.
struct GivenBack<'e> {
    end: &'e End,
    held: Option<Held>,
    delay: Duration,
    counts: bool,
}

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        if let Some(lane) = self.end.state().lane(&held.place, held.epoch) {
            lane.retry(held.offset, Instant::now(), self.delay, self.counts);
        }
        self.end.arrived.notify_one();
    }
}

impl Drop for EndpointQueue {
    /// It leaves its group, after a last commit, so that others have its partitions at once: else they wait until it is taken for dead.
    fn drop(&mut self) {
        self.end.stops.store(true, Ordering::Release);
        if let Some(ended) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = ended.recv_timeout(LEAVE); // It ends without a word.
        }
    }
}

impl fmt::Debug for EndpointQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointQueue").field("endpoint", &self.end.endpoint).finish_non_exhaustive()
    }
}
