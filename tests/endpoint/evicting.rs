//! What an endpoint forgets: by time, which a copy may outlast, and by evidence, which none does. The stores' clocks are not paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::FutureExt;
use hapax::{
    Memory, PartitionedLog, SqliteQueue,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Eviction, Settings},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, ErrorKind, Mark, Marks, Receipt, Receiver, Settled, Settlement, Transport,
        TransportCapabilities, TransportError,
    },
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::work::{Auditor, Log, Task, endpoint, task};

/// Long beside what a busy machine takes for a pass, short beside what a test may last.
pub(crate) const RETENTION: Duration = Duration::from_millis(1000);
const DEADLINE: Duration = Duration::from_millis(400);
/// So that what was not acknowledged comes several times within the retention.
const LEASE: Duration = Duration::from_millis(200);
/// Much longer than the retention.
const LONG: Duration = Duration::from_millis(3000);
/// Some evictions.
const EVICTIONS: Duration = Duration::from_millis(100);
/// What has to come comes long before this, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A transport over which acks get lost for as long as it is told. It says that nothing comes late, which is what a setting of time believes.
#[derive(Debug, Clone)]
pub(crate) struct Lossy {
    inner: Arc<dyn Transport>,
    losing: Arc<AtomicBool>,
    given: Arc<AtomicU32>,
    /// Marks are told when this is true.
    told: watch::Receiver<bool>,
    marked: Arc<AtomicU32>,
}

impl Lossy {
    pub(crate) fn over(inner: impl Transport + 'static) -> (Self, watch::Sender<bool>) {
        let (tell, told) = watch::channel(true);
        let (losing, given, marked) = (Arc::new(AtomicBool::new(true)), Arc::default(), Arc::default());
        (Self { inner: Arc::new(inner), losing, given, told, marked }, tell)
    }

    fn given(&self) -> u32 {
        self.given.load(Ordering::SeqCst)
    }

    /// Whether acks get lost from now on.
    pub(crate) fn loses(&self, acks: bool) {
        self.losing.store(acks, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.loses(false);
    }
}

#[async_trait]
impl Transport for Lossy {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { durable: false, redelivery_max: Duration::ZERO, ..self.inner.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let inner = self.inner.connect(endpoint, types).await?;
        let marks = inner.marks.map(|marks| Arc::new(Told(self.clone(), marks)) as Arc<dyn Marks>);
        Ok(Connected { receiver: Arc::new(End(self.clone(), inner.receiver)), marks, ..inner })
    }
}

#[derive(Debug)]
struct End(Lossy, Arc<dyn Receiver>);

#[async_trait]
impl Receiver for End {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        let deliveries = self.1.receive(max).await?;
        self.0.given.fetch_add(1, Ordering::SeqCst);
        Ok(deliveries)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.1.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        if settlement == Settlement::Ack && self.0.losing.load(Ordering::SeqCst) {
            return Err(TransportError::new(ErrorKind::UnknownOutcome, "settling", "the ack was lost"));
        }
        self.1.settle(receipt, settlement).await
    }
}

#[derive(Debug)]
struct Told(Lossy, Arc<dyn Marks>);

#[async_trait]
impl Marks for Told {
    async fn end(&self) -> Result<Mark, TransportError> {
        let mark = self.1.end().await?;
        self.0.marked.fetch_add(1, Ordering::SeqCst);
        self.0.told.clone().wait_for(|told| *told).await.unwrap();
        Ok(mark)
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        self.1.passed(mark).await
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        retention: RETENTION,
        evict_interval: Duration::from_millis(10),
        deadline: DEADLINE,
        recoverability: Recoverability { poison_above: 10_000, ..Recoverability::default() },
        ..crate::work::settings()
    }
}

struct Rig {
    store: Memory,
    log: Log,
    lossy: Lossy,
    tell: watch::Sender<bool>,
}

impl Rig {
    fn on(transport: impl Transport + 'static) -> Self {
        let (lossy, tell) = Lossy::over(transport);
        Self { store: Memory::new(), log: Log::default(), lossy, tell }
    }

    fn endpoint(&self, eviction: Eviction) -> EndpointBuilder {
        endpoint(&self.store, self.lossy.clone(), &self.log).settings(settings()).eviction(eviction)
    }

    fn runs(&self) -> u32 {
        self.log.runs("worker", "late")
    }

    async fn is_handled(&self) {
        until("handled", || self.runs() > 0).await;
    }

    /// Until so long after, and until it was given again since.
    async fn is_given_for(&self, long: Duration) {
        let begun = Instant::now();
        until("over", || begun.elapsed() > long).await;
        let given = self.lossy.given();
        until("given again", || self.lossy.given() > given).await;
    }
}

pub(crate) async fn until(what: &str, is: impl Fn() -> bool) {
    let look = async {
        while !is() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("never {what}"));
}

/// A queue in a file, which goes with the guard.
async fn queue() -> (SqliteQueue, Directory) {
    let directory = std::env::temp_dir().join(format!("hapax-evicting-{}", uuid()));
    std::fs::create_dir_all(&directory).unwrap();
    let queue = SqliteQueue::options().lease(LEASE).open(directory.join("queue.db")).await.unwrap();
    (queue, Directory(directory))
}

fn uuid() -> String {
    hapax::MessageId::random().to_string()
}

struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0)); // What cannot be removed is left in the temporary directory.
    }
}

async fn send(sender: hapax::Sender) {
    sender.send_as("late".parse().unwrap(), "work", &task("a", "late")).await.unwrap();
}

/// Goal: by time, what comes later than the retention is handled again, so that the tests below can fail. Method: acks get lost until it was.
#[tokio::test]
async fn by_time_what_comes_later_than_the_retention_is_handled_twice() {
    let (queue, _directory) = queue().await;
    let rig = Rig::on(queue.clone());
    send(queue.sender()).await;
    let twice = until("handled twice", || rig.runs() == 2);
    rig.endpoint(Eviction::After(RETENTION)).run_until(twice).await.unwrap();

    let logs = PartitionedLog::new("time");
    let rig = Rig::on(logs.clone());
    send(logs.sender()).await;
    let begun = Instant::now();
    while rig.runs() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it is not handled again");
        let given = rig.lossy.given();
        // Its receiver is gone with each, and the next begins at the committed offset.
        let again = until("given again", || rig.lossy.given() > given);
        rig.endpoint(Eviction::After(RETENTION)).run_until(again).await.unwrap();
    }
}

/// Goal: by evidence, it is not, however often its lease is lost; and once it is gone from the queue its entry goes. Method: two processes, so
/// that each is shown what the other has not settled.
#[tokio::test]
async fn by_evidence_what_stays_in_a_queue_for_long_is_handled_once_and_forgotten_when_it_is_gone() {
    let (queue, _directory) = queue().await;
    let rig = Rig::on(queue.clone());
    send(queue.sender()).await;
    let watched = async {
        rig.is_handled().await;
        rig.is_given_for(LONG).await;
        assert_eq!(rig.store.dedup_entries(), 1);
        rig.lossy.mend();
        until("forgotten", || rig.store.dedup_entries() == 0).await;
    };
    let watched = watched.shared();
    let [one, other] = [(); 2].map(|()| rig.endpoint(Eviction::Evidence).run_until(watched.clone()));
    let (one, other) = tokio::join!(one, other);
    one.and(other).unwrap();
    assert_eq!((rig.runs(), queue.messages().await.unwrap()), (1, 0));
}

/// The same on a log, whose receivers are gone again and again.
#[tokio::test]
async fn by_evidence_what_stays_behind_an_offset_for_long_is_handled_once_and_forgotten_when_it_is_committed() {
    let logs = PartitionedLog::new("evidence");
    let rig = Rig::on(logs.clone());
    send(logs.sender()).await;
    rig.endpoint(Eviction::Evidence).run_until(rig.is_handled()).await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        let (given, started) = (rig.lossy.given(), Instant::now());
        let again = until("given again", || rig.lossy.given() > given && started.elapsed() > EVICTIONS);
        rig.endpoint(Eviction::Evidence).run_until(again).await.unwrap();
    }
    assert_eq!((rig.runs(), rig.store.dedup_entries(), logs.backlog(&"work".parse().unwrap())), (1, 1, 1));
    rig.lossy.mend();
    let forgotten = until("forgotten", || rig.store.dedup_entries() == 0);
    rig.endpoint(Eviction::Evidence).run_until(forgotten).await.unwrap();
    assert_eq!((rig.runs(), logs.backlog(&"work".parse().unwrap())), (1, 0));
}

/// Goal: what one saga is done with is not handled there again while another fails, for longer than the retention. Method: it fails so often.
#[tokio::test]
async fn by_evidence_what_is_retried_again_and_again_is_handled_once_by_who_is_done_with_it() {
    let rest = Duration::from_millis(300);
    let rests =
        Recoverability { attempts_max: 1_000, retry_delay: rest, retry_delay_max: rest, ..settings().recoverability };
    for on_log in [false, true] {
        let ((queue, _directory), logs) = (queue().await, PartitionedLog::new("retried"));
        let (rig, sender) = match on_log {
            true => (Rig::on(logs.clone()), logs.sender()),
            false => (Rig::on(queue.clone()), queue.sender()),
        };
        rig.lossy.mend();
        let failing = Task { fails: u32::MAX, ..task("a", "late") };
        sender.send_as("late".parse().unwrap(), "work", &failing).await.unwrap();
        let settings = Settings { recoverability: rests.clone(), ..settings() };
        let endpoint = rig.endpoint(Eviction::Evidence).settings(settings);
        let endpoint = endpoint.saga::<Auditor>(|auditor| auditor.starts::<Task>());
        let watched = async {
            rig.is_handled().await;
            rig.is_given_for(LONG).await;
        };
        endpoint.run_until(watched).await.unwrap();
        assert!(rig.runs() > 3, "it was not retried again and again");
        assert_eq!(rig.log.runs("auditor", "late"), 1, "on a log: {on_log}");
    }
}

/// Goal: what is inserted while a mark is being made is not taken for what is in front of it. Method: a mark is told late, and meanwhile a
/// message comes, is handled, and becomes older than the retention.
#[tokio::test]
async fn what_comes_while_a_mark_is_made_is_not_in_front_of_it() {
    let (queue, _directory) = queue().await;
    let rig = Rig::on(queue.clone());
    rig.tell.send(false).unwrap();
    let watched = async {
        until("marked", || rig.lossy.marked.load(Ordering::SeqCst) == 1).await;
        send(queue.sender()).await;
        rig.is_handled().await;
        rig.is_given_for(RETENTION * 3 / 2).await;
        rig.tell.send(true).unwrap();
        until("marked again", || rig.lossy.marked.load(Ordering::SeqCst) == 2).await;
        rig.is_given_for(RETENTION / 2).await;
    };
    rig.endpoint(Eviction::Evidence).run_until(watched).await.unwrap();
    assert_eq!((rig.runs(), rig.store.dedup_entries()), (1, 1));
}

/// Goal: a sender that sends again within the retention is not handled twice, however long that copy takes. Method: the first copy is gone
/// and a mark behind it has passed; the second one's acks get lost for much longer than the retention.
#[tokio::test]
async fn what_is_sent_again_within_the_retention_is_handled_once() {
    let (queue, _directory) = queue().await;
    let rig = Rig::on(queue.clone());
    rig.lossy.mend();
    send(queue.sender()).await;
    let watched = async {
        rig.is_handled().await;
        // One mark at least that was made after the message was gone has passed when there are two more.
        let marked = rig.lossy.marked.load(Ordering::SeqCst);
        until("marked again", || rig.lossy.marked.load(Ordering::SeqCst) > marked + 2).await;
        rig.lossy.losing.store(true, Ordering::SeqCst);
        send(queue.sender()).await;
        rig.is_given_for(LONG).await;
    };
    rig.endpoint(Eviction::Evidence).run_until(watched).await.unwrap();
    assert_eq!((rig.runs(), rig.store.dedup_entries()), (1, 1));
}
