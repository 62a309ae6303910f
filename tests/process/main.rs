//! A worker process for `processes.rs`, which kills it: `hapax-test-worker FOLDER TASK POINT`.
//!
//! Each task ends with 0 when there is nothing left to do, so that a clean run after a crash leaves the books in order.
#![allow(clippy::unwrap_used)]

mod charges;
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
mod clouds;
mod departs;
mod forgetful;
mod fuse;
mod imports;
mod log;
mod market;
mod next;
mod recurs;
mod sagas;
mod sells;
mod serve;
mod shops;
mod stored;
mod strikes;
mod tally;
mod tills;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use fuse::{Fuse, Fused};
use hapax::{
    Endpoint, MySql, Postgres, Registry, SagaManager, Sqlite, SqliteQueue,
    codec::Codec,
    deliver::{Deliver, Recoverability},
    endpoint::{Jittered, RandomIds, Settings, SystemClock},
    envelope::Outgoing,
    ids::{AttemptId, EndpointName, EntityKey},
    manager::{Limits, Passes, Ports, Stores},
    metrics::NoMetrics,
    ports::{
        Backoff, Cause, DeadLetters, DedupStore, Delivery, DispatchError, Dispatcher, EntityStore, ErrorKind, Granted,
        Receiver, Refused, Schedule, Settled, Settlement, Transport, TransportError,
    },
};
use sagas::{Note, Notes, Tally};
use tally::{ENDPOINT, Step};
use tills::{Deposit, Till};

/// Far above what a pass takes here, far below the patience of whoever waits for the message of a killed process.
const LEASE: Duration = Duration::from_millis(150);
/// A crash is not the message's fault here.
const OFTEN: u32 = 1_000_000;

/// Nobody is poison.
fn often() -> Recoverability {
    Recoverability { poison_above: OFTEN, ..Recoverability::default() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, task, point] = &arguments[..] else { panic!("give a folder, a task and a point") };
    let fuse = || Fuse::parse(point).expect("`none`, `N-before` or `N-after`");
    let folder = Path::new(folder);
    match task.as_str() {
        "migrate" => migrate(folder).await,
        "serve" => serve::serve(folder, point).await,
        "sell" => sells::sell(folder, point).await,
        "market" => market::run(folder, point).await,
        "import" => imports::run(folder).await,
        "charge" => charges::charge(folder).await,
        "strike" => strikes::strike(folder).await,
        "recur" => recurs::recur(folder, point).await,
        task => match stored::server_of(folder) {
            #[cfg(any(feature = "dynamodb", feature = "cosmos"))]
            Some((place, name)) if clouds::is_one(&place) => {
                clouds::run(task, &place, &name, queue_beside(folder).await, fuse()).await;
            }
            Some((url, prefix)) if url.starts_with("mysql") => {
                let store = MySql::options(url)
                    .table_prefix(prefix)
                    .migrate(true)
                    .writers(1)
                    .clean_up_wait(Duration::ZERO)
                    .open()
                    .await
                    .unwrap();
                run_or_depart(task, store, queue_beside(folder).await, fuse()).await;
            }
            Some((url, schema)) => {
                let store = Postgres::options(url)
                    .schema(schema)
                    .migrate(true)
                    .writers(1)
                    .clean_up_wait(Duration::ZERO)
                    .open()
                    .await
                    .unwrap();
                run_or_depart(task, store, queue_beside(folder).await, fuse()).await;
            }
            None => {
                let (store, queue) = open(folder).await;
                run_or_depart(task, store, queue, fuse()).await;
            }
        },
    }
}

/// Of a store that has a schedule, too.
async fn run_or_depart<S: Store + Schedule>(task: &str, store: S, queue: SqliteQueue, fuse: Fuse) {
    match task {
        "depart" => departs::depart(store, queue, fuse).await,
        task => run(task, store, queue, fuse).await,
    }
}

async fn run<S: Store>(task: &str, store: S, queue: SqliteQueue, fuse: Fuse) {
    match task {
        "work" => Worker::new(store, queue, fuse, true, Stores::one).await.work().await,
        // As if entities were in one store and dedup entries in another, so that each step is a call of its own.
        "work-in-two" => {
            Worker::new(store, queue, fuse, true, |port| Stores::two(port.clone(), port)).await.work().await
        }
        "ack-early" => Worker::new(store, queue, fuse, true, Stores::one).await.ack_early().await,
        "leave" => Worker::new(store, queue, fuse, false, Stores::one).await.leave().await,
        "sweep" => Worker::new(store, queue, fuse, true, Stores::one).await.sweep().await,
        "upkeep" => Worker::new(store, queue, fuse, true, Stores::one).await.upkeep().await,
        "stop" => stop(store, queue, fuse).await,
        "answer" => answer(store, queue, fuse).await,
        other => panic!("there is no task {other}"),
    }
}

/// What a worker needs of a store.
trait Store: EntityStore + DedupStore + DeadLetters + Clone + 'static {
    async fn close(&self);
}

impl Store for Sqlite {
    async fn close(&self) {
        Self::close(self).await;
    }
}

impl Store for MySql {
    async fn close(&self) {
        Self::close(self).await;
    }
}

impl Store for Postgres {
    async fn close(&self) {
        Self::close(self).await;
    }
}

async fn queue_beside(folder: &Path) -> SqliteQueue {
    SqliteQueue::options().lease(LEASE).open(folder.join("queue.db")).await.unwrap()
}

/// Store and queue, in one file unless the folder holds a file for the queue.
async fn open(folder: &Path) -> (Sqlite, SqliteQueue) {
    let store = Sqlite::open(folder.join("store.db")).await.unwrap();
    let apart = folder.join("queue.db");
    let asked = std::env::var("HAPAX_TEST_LEASE_MS").ok().and_then(|ms| ms.parse().ok());
    let options = SqliteQueue::options().lease(asked.map_or(LEASE, Duration::from_millis));
    let queue = if apart.exists() { options.open(apart).await } else { options.on(&store).await };
    (store, queue.unwrap())
}

async fn migrate(folder: &Path) {
    let (store, queue) = open(folder).await;
    queue.close().await;
    store.close().await;
}

/// The heart without the shell: what it asks of the ports is the same in every run.
struct Worker<S> {
    store: S,
    queue: SqliteQueue,
    endpoint: EndpointName,
    receiver: Arc<dyn Receiver>,
    stores: Stores,
    managers: [Arc<dyn Passes>; 2],
    deliver: Deliver,
}

impl<S: Store> Worker<S> {
    async fn new(
        store: S,
        queue: SqliteQueue,
        fuse: Fuse,
        sends: bool,
        stores: impl FnOnce(Arc<Fused<S>>) -> Stores,
    ) -> Self {
        let endpoint: EndpointName = ENDPOINT.parse().unwrap();
        let transport = Fused { port: Arc::new(queue.clone()), fuse: fuse.clone() };
        let connected = transport.connect(&endpoint, &[]).await.unwrap();
        let fused = Arc::new(Fused { port: Arc::new(store.clone()), fuse });
        let ports = Ports {
            stores: stores(fused.clone()),
            dispatcher: if sends { connected.dispatcher } else { Arc::new(Never) },
            dead_letters: fused.clone(),
            clock: Arc::new(SystemClock::default()),
            ids: Arc::new(RandomIds::default()),
            metrics: Arc::new(NoMetrics),
        };
        let limits = Limits { poison_above: OFTEN, ..Limits::default() };
        let tally = Registry::<Tally>::new().starts::<Step>();
        let notes = Registry::<Notes>::new().starts::<Note>();
        let managers: [Arc<dyn Passes>; 2] = [
            Arc::new(SagaManager::new(&endpoint, tally, ports.clone(), limits, Codec::Json).unwrap()),
            Arc::new(SagaManager::new(&endpoint, notes, ports.clone(), limits, Codec::Json).unwrap()),
        ];
        let deliver = Deliver {
            receiver: connected.receiver.clone(),
            dead_letters: Some(fused),
            backoff: Arc::new(Jittered::default()),
            clock: ports.clock,
            metrics: ports.metrics,
            recoverability: Recoverability { attempts_max: OFTEN, ..Recoverability::default() },
            pass_max: Settings::default().pass_max,
        };
        Self { store, queue, endpoint, receiver: connected.receiver, stores: ports.stores, managers, deliver }
    }

    /// Message after message, until none is left.
    async fn work(&self) {
        while self.queue.backlog(&self.endpoint).await.unwrap() > 0 {
            for delivery in self.receiver.receive(1).await.unwrap() {
                self.deliver(&delivery).await;
            }
        }
        self.store.close().await;
    }

    /// What must not be done: the message is gone from the queue before it is handled.
    async fn ack_early(&self) {
        while self.queue.backlog(&self.endpoint).await.unwrap() > 0 {
            for delivery in self.receiver.receive(1).await.unwrap() {
                self.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap();
                self.deliver(&delivery).await;
            }
        }
    }

    /// Saves what waits and sends nothing of it; the messages are lost, as if acknowledged long ago.
    async fn leave(mut self) {
        self.deliver.backoff = Arc::new(Never);
        while self.queue.backlog(&self.endpoint).await.unwrap() > 0 {
            for delivery in self.receiver.receive(1).await.unwrap() {
                // On a busy machine its lease may be over already: then it comes again.
                if self.receiver.settle(&delivery.receipt, Settlement::Ack).await.unwrap() == Settled::Done {
                    self.deliver(&delivery).await;
                }
            }
        }
        self.store.close().await;
    }

    async fn deliver(&self, delivery: &Delivery) {
        let manager = self.managers.iter().find(|m| m.types().contains(&delivery.envelope.message_type)).unwrap();
        let (key, incoming) = manager.route(&delivery.envelope, delivery.receipt.clone(), delivery.attempts).unwrap();
        self.deliver.deliver(manager.as_ref(), &key, vec![incoming]).await;
    }

    /// Finishes what others left, then works.
    async fn sweep(&self) {
        for manager in &self.managers {
            let pending = self.stores.entities().pending(manager.scope(), Duration::ZERO, None, 100).await.unwrap();
            for left in pending {
                let attempts: Vec<AttemptId> = left.entries.iter().map(|entry| entry.attempt).collect();
                let key: EntityKey = left.key;
                manager.pass(&key, &mut [], &attempts).await;
            }
        }
        self.work().await;
    }

    /// Evicts and purges as if everything were old, until there is nothing left to remove.
    async fn upkeep(&self) {
        const ALL: usize = 1000;
        for _ in 0..4 {
            self.stores.dedup().evict(Duration::ZERO).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await; // Until the store's clock has moved.
        }
        for manager in &self.managers {
            while self.stores.entities().purge(manager.scope(), Duration::ZERO, ALL).await.unwrap() > 0 {}
        }
        self.store.close().await;
    }
}

/// Nothing is sent, and nothing is tried again.
#[derive(Debug)]
struct Never;

#[async_trait]
impl Dispatcher for Never {
    fn check(&self, _: &Outgoing) -> Result<(), Refused> {
        Ok(())
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let away = || TransportError::new(ErrorKind::Unavailable, "dispatching", "the broker is away");
        outgoing.iter().map(|_| Err(DispatchError::Transient(away()))).collect()
    }
}

#[async_trait]
impl Backoff for Never {
    async fn pause(&self, _: Cause, _: u32) -> Granted {
        Granted::Stop
    }
}

/// A whole endpoint that is told to stop when it has just begun to handle its first message.
async fn stop<S: Store>(store: S, queue: SqliteQueue, fuse: Fuse) {
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(Fused { port: Arc::new(store), fuse: fuse.clone() })
        .transport(Fused { port: Arc::new(queue), fuse: fuse.clone() })
        .saga::<Tally>(Registry::starts::<Step>)
        .saga::<Notes>(Registry::starts::<Note>)
        .settings(Settings { recoverability: often(), ..Settings::default() });
    endpoint.run_until(fuse.first_load()).await.unwrap();
}

/// A whole endpoint that answers until its standard input is closed.
async fn answer<S: Store>(store: S, queue: SqliteQueue, fuse: Fuse) {
    let endpoint = Endpoint::builder(ENDPOINT)
        .store(Fused { port: Arc::new(store.clone()), fuse: fuse.clone() })
        .transport(Fused { port: Arc::new(queue), fuse })
        .saga::<Till>(Registry::starts::<Deposit>)
        .settings(Settings { recoverability: often(), ..Settings::default() });
    endpoint.run_until(serve::input_closed()).await.unwrap();
    store.close().await;
}
