//! Messages are put into the schedule while the endpoint looks into it, and as it goes to rest.

use futures_util::future::BoxFuture;

use super::*;
use crate::{
    endpoint::SystemClock,
    envelope::{Destination, Envelope},
    ids::{MessageId, TypeName},
    metrics::NoMetrics,
    ports::{Page, ScheduleCapabilities},
    sync::explored::{Timers, all, block_on, exhaust, explore, spawn, step},
};

/// After it a message is due: the timer for it ends.
const SOON: Duration = Duration::from_millis(100);
/// The timer for it never ends.
const LATER: Duration = Duration::from_secs(3600);

/// A schedule whose clock is ahead, so that what is due soon is due.
#[derive(Debug, Default)]
struct Shelf(std::sync::Mutex<Vec<Outgoing>>);

impl Shelf {
    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Outgoing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_due(outgoing: &Outgoing) -> bool {
    outgoing.envelope.due.is_none_or(|due| due.since(Timestamp::now()) <= SOON)
}

#[async_trait]
impl Schedule for Shelf {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        ScheduleCapabilities { name: "shelf", message_bytes_max: usize::MAX, durable: true }
    }

    async fn put(&self, _: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        step();
        self.kept().extend_from_slice(messages);
        Ok(())
    }

    async fn cancel(&self, _: &EndpointName, _: &[MessageId]) -> Result<usize, StoreError> {
        Ok(0)
    }

    /// For good: nobody dies here.
    async fn take_due(&self, _: &EndpointName, _: Take) -> Result<Vec<Due>, StoreError> {
        step();
        let taken = self.kept().extract_if(.., |outgoing| is_due(outgoing)).collect::<Vec<_>>();
        Ok(taken.into_iter().map(|outgoing| Due { outgoing, receipt: Receipt::number(0) }).collect())
    }

    async fn done(&self, _: &EndpointName, _: &[Receipt]) -> Result<(), StoreError> {
        step();
        Ok(())
    }

    async fn next(&self, _: &EndpointName) -> Result<Option<Next>, StoreError> {
        step();
        let kept = self.kept();
        let next = || if kept.iter().any(is_due) { Next::Overdue(Duration::ZERO) } else { Next::In(LATER) };
        Ok((!kept.is_empty()).then(next))
    }
}

/// Takes everything, and tells of it.
#[derive(Debug, Default)]
struct Broker {
    sent: std::sync::Mutex<Vec<MessageId>>,
    more: Notify,
}

#[async_trait]
impl Dispatcher for Broker {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let ids = outgoing.iter().map(|outgoing| outgoing.envelope.message_id.clone());
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        self.more.notify_one();
        outgoing.iter().map(|_| Ok(())).collect()
    }
}

impl Broker {
    async fn until(&self, messages: usize) {
        while self.sent.lock().unwrap_or_else(PoisonError::into_inner).len() < messages {
            self.more.notified().await;
        }
    }
}

/// Nothing is ever set aside.
#[derive(Debug)]
struct NoLetters;

#[async_trait]
impl DeadLetters for NoLetters {
    async fn add(&self, _: &DeadLetter) -> Result<(), StoreError> {
        Ok(())
    }

    async fn list(&self, _: &EndpointName, _: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(Vec::new())
    }

    async fn discard(&self, _: &[DeadLetter]) -> Result<usize, StoreError> {
        Ok(0)
    }
}

fn departures() -> (Arc<Departures>, Arc<Broker>) {
    let broker = Arc::<Broker>::default();
    let transport = TransportCapabilities {
        name: "broker",
        lease: None,
        counts_deliveries: true,
        delays: Delays::Never,
        ordered_keys: false,
        message_bytes_max: usize::MAX,
        durable: true,
        redelivery_max: Duration::ZERO,
        offsets: false,
        marks: false,
    };
    let schedule: Option<Arc<dyn Schedule>> = Some(Arc::<Shelf>::default());
    let endpoint = "shop".parse().expect("a name");
    let clock = Arc::new(SystemClock::default());
    (Arc::new(Departures::new(&endpoint, broker.clone(), &transport, schedule, clock)), broker)
}

fn due_after(delay: Duration) -> Outgoing {
    let envelope = Envelope::new(MessageId::random(), TypeName::parse("t").expect("it is one"), "");
    let envelope = Envelope { due: Some(Timestamp::now().after(delay)), ..envelope };
    Outgoing { destination: Destination::parse("endpoint:billing").expect("it is one"), envelope: Arc::new(envelope) }
}

/// As a pass sends it.
fn put(departures: &Arc<Departures>, delay: Duration) -> BoxFuture<'static, ()> {
    let departures = departures.clone();
    Box::pin(async move {
        for result in departures.dispatch(&[due_after(delay)]).await {
            result.expect("it is kept");
        }
    })
}

/// The endpoint's looks, which never end: nothing but what was put wakes it between two of them.
fn look(departures: &Arc<Departures>) {
    let departures = departures.clone();
    drop(spawn(async move { departures.depart(&NoLetters, &NoMetrics).await }));
}

fn puts(delays: &[Duration], soon: usize) {
    let (departures, broker) = departures();
    look(&departures);
    all(delays.iter().map(|delay| put(&departures, *delay)).collect::<Vec<_>>());
    block_on(broker.until(soon));
    assert_eq!(departures.trouble(), None);
}

fn soon_ends() -> Timers {
    Timers::up_to(SOON)
}

#[test]
fn what_is_put_beside_a_look_leaves_when_it_is_due() {
    let _timers = soon_ends();
    explore(|| puts(&[SOON], 1));
    explore(|| puts(&[SOON, SOON], 2));
}

#[test]
fn what_is_due_soon_is_not_hidden_by_what_is_put_beside_it_for_later() {
    let _timers = soon_ends();
    explore(|| puts(&[SOON, LATER], 1));
    explore(|| puts(&[LATER, SOON, LATER], 1));
}

/// It goes to rest, and hears of what is put.
#[test]
fn what_is_put_as_it_goes_to_rest_ends_the_rest() {
    let _timers = soon_ends();
    exhaust(|| {
        let (departures, _) = departures();
        let rests = departures.clone();
        let resting = spawn(async move { rests.rest(LOOK_LONGEST).await });
        departures.expect(&[due_after(SOON)], Timestamp::now());
        block_on(resting).expect("it ends");
    });
}
