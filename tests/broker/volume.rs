//! Very many messages through two endpoints, in two processes each that die now and then; then the history by ids: nothing lost,
//! effects once, order as declared.

#[path = "volume/given.rs"]
mod given;
#[path = "volume/history.rs"]
mod history;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use given::{Counted, Given};
use hapax::{
    Context, Correlation, Endpoint, Handle, HandlerError, Memory, Message, Saga, Sender,
    endpoint::Settings,
    envelope::{Destination, Outgoing},
    ports::{Dispatcher, Transport},
};
use history::{Faults, Numbers, Step, Volume};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Something happens within this, on any machine; leases run out, too.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NAMES: [&str; 2] = ["front", "back"];

/// A broker on which nobody else has an endpoint of these names.
pub(crate) trait Broker: Send + Sync + 'static {
    type Queue: Transport + Dispatcher + Clone + 'static;

    /// A repeat within a moment is dropped by the server.
    const DROPS_REPEATS: bool = false;
    /// For each push.
    const FEW: u32 = 5_000;
    /// With `HAPAX_THOROUGH`, as the promise is to be shown.
    const MANY: u32 = 1_000_000;
    /// Messages that wait at most: the broker is not what is to be filled.
    const BACKLOG_MAX: u64 = 50_000;
    /// Whether what one that died had taken comes again in its place.
    const KEEPS_ITS_PLACE: bool = true;

    async fn start(ordered: bool) -> Self;

    async fn open(&self) -> Self::Queue;

    /// Nothing is left on a server that others use.
    async fn ends(&self) {}
}

/// Processes that die in the middle.
const DEATHS: u64 = 2;

/// The tests of a broker; where it keeps no order, only the first.
macro_rules! volumes {
    ($broker:ty, unordered) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn of_a_volume_each_message_has_its_effect_once() {
            broker::pass_through::<$broker>(false).await;
        }
    };
    ($broker:ty) => {
        broker::volumes!($broker, unordered);

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn of_a_volume_in_order_each_message_has_its_effect_once_and_each_key_its_order() {
            broker::pass_through::<$broker>(true).await;
        }
    };
}
pub(crate) use volumes;

/// Few for each push, many with `HAPAX_THOROUGH`, through both endpoints of a new broker.
pub(crate) async fn pass_through<B: Broker>(ordered: bool) {
    let messages = if std::env::var_os("HAPAX_THOROUGH").is_some() { B::MANY } else { B::FEW };
    let broker = Arc::new(B::start(ordered).await);
    let deaths = if ordered && !B::KEEPS_ITS_PLACE { 0 } else { DEATHS };
    passes_through(broker.clone(), messages, deaths, ordered).await;
    broker.ends().await;
}

#[derive(Serialize, Deserialize)]
struct Add(Step);
impl Message for Add {
    const TYPE: &'static str = "test.volume-add";
}

#[derive(Serialize, Deserialize)]
struct Added(Step);
impl Message for Added {
    const TYPE: &'static str = "test.volume-added";
}

/// How often each endpoint's handler has run.
type Runs = Arc<[AtomicU64; 2]>;

#[derive(Default, Serialize, Deserialize)]
struct Ledger(Numbers);
impl Saga for Ledger {
    const NAME: &'static str = "ledger";
}
impl Handle<Add> for Ledger {
    fn correlate(add: &Add) -> Correlation<'_> {
        add.0.key.into()
    }
    async fn handle(&mut self, add: Add, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Runs>()?[0].fetch_add(1, Ordering::Relaxed);
        self.0.push(add.0.number);
        cx.send("back", Added(add.0))
    }
}
impl Handle<Added> for Ledger {
    fn correlate(added: &Added) -> Correlation<'_> {
        added.0.key.into()
    }
    async fn handle(&mut self, added: Added, cx: &mut Context) -> Result<(), HandlerError> {
        cx.get::<Runs>()?[1].fetch_add(1, Ordering::Relaxed);
        self.0.push(added.0.number);
        Ok(())
    }
}

/// What all processes share.
#[derive(Clone, Default)]
struct Shared {
    store: Memory,
    runs: Runs,
    given: [Arc<Given>; 2],
    ordered: bool,
}

/// Both endpoints on a thread and in a runtime of their own, with which all that they have begun ends.
struct Process {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Process {
    fn start<B: Broker>(broker: &Arc<B>, shared: &Shared) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let (broker, shared) = (broker.clone(), shared.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let queue = broker.open().await;
                let endpoints = async {
                    // What one that died has left is soon the sweeper's.
                    let soon = || Settings {
                        sweep_age: Duration::from_secs(1),
                        sweep_interval: Duration::from_secs(1),
                        ..Settings::default()
                    };
                    let Shared { store, runs, given, ordered } = shared;
                    let endpoint = |place: usize| {
                        let transport = Counted { transport: queue.clone(), given: given[place].clone() };
                        let endpoint = Endpoint::builder(NAMES[place]).store(store.clone()).transport(transport);
                        let endpoint = endpoint.with(runs.clone()).settings(soon());
                        endpoint.saga::<Ledger>(|ledger| {
                            let ledger = if place == 0 { ledger.starts::<Add>() } else { ledger.starts::<Added>() };
                            if ordered { ledger.ordered_outputs() } else { ledger }
                        })
                    };
                    // Whoever sends needs a queue to send to.
                    let back = endpoint(1).start().await.unwrap();
                    let front = endpoint(0).start().await.unwrap();
                    let never = std::future::pending::<()>;
                    tokio::join!(front.run_until(never()), back.run_until(never()))
                };
                tokio::select! {
                    ended = endpoints => panic!("an endpoint has ended by itself: {ended:?}"),
                    _ = &mut stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { stop, thread }
    }

    /// As a crash: nothing that is under way is finished.
    fn dies(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

/// Sends all, some of it twice, a round after the other.
async fn send_all<B: Broker>(queue: B::Queue, volume: Volume, runs: Runs) {
    let sender = Sender::new(Arc::new(queue.clone()));
    let front = Destination::Endpoint("front".parse().unwrap());
    for number in 0..volume.numbers {
        let sent = u64::from(number) * u64::from(volume.keys);
        while sent.saturating_sub(runs[0].load(Ordering::Relaxed)) > B::BACKLOG_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut left = Vec::new();
        for step in volume.round(number) {
            let id = format!("volume-{}-{}", step.key, step.number).parse().unwrap();
            let mut envelope = sender.envelope(id, &Add(step)).unwrap();
            envelope.partition_key = Some(step.key.to_string().parse().unwrap());
            let outgoing = Outgoing { destination: front.clone(), envelope: Arc::new(envelope) };
            left.extend(std::iter::repeat_n(outgoing, 1 + usize::from(step.is_doubled())));
        }
        while !left.is_empty() {
            let mut results = queue.dispatch(&left).await.into_iter();
            left.retain(|_| results.next().unwrap().is_err());
        }
    }
}

/// What the entities of an endpoint were told, by their keys.
fn told(store: &Memory, volume: Volume) -> [Vec<Numbers>; 2] {
    let mut told = [0, 1].map(|_| vec![Numbers::default(); volume.keys as usize]);
    for (key, entity) in store.entities() {
        let place = NAMES.iter().position(|name| key.scope().endpoint.as_str() == *name).unwrap();
        // JSON behind a frame of two bytes.
        let ledger: Ledger = serde_json::from_slice(&entity.state[2..]).unwrap();
        told[place][key.key().as_str().parse::<usize>().unwrap()] = ledger.0;
    }
    told
}

/// Until `enough`; a fault where for long nothing changes.
async fn until(runs: &Runs, enough: impl Fn([u64; 2]) -> bool) -> bool {
    let (mut last, mut changed) = ([0, 0], Instant::now());
    loop {
        let now = [0, 1].map(|place: usize| runs[place].load(Ordering::Relaxed));
        if enough(now) {
            return true;
        }
        if now != last {
            (last, changed) = (now, Instant::now());
        }
        if changed.elapsed() > PATIENCE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `messages` through both endpoints, of which a process dies `deaths` times and another one takes its place.
async fn passes_through<B: Broker>(broker: Arc<B>, messages: u32, deaths: u64, ordered: bool) {
    let (volume, begun) = (Volume::of(messages), Instant::now());
    let shared = Shared { ordered, ..Shared::default() };
    let mut processes = vec![Process::start(&broker, &shared), Process::start(&broker, &shared)];
    let queue = broker.open().await;
    for name in NAMES {
        // There is a queue before the first is sent.
        queue.connect(&name.parse().unwrap(), &[]).await.unwrap();
    }
    let all = volume.messages();
    let sending = tokio::spawn(send_all::<B>(queue, volume, shared.runs.clone()));
    for death in 1..=deaths {
        let due = all * death / (deaths + 1);
        assert!(until(&shared.runs, |[front, _]| front >= due).await, "nothing goes on before death {death}");
        processes.remove(0).dies();
        processes.push(Process::start(&broker, &shared));
    }
    let sent = until(&shared.runs, |runs| runs.iter().all(|runs| *runs >= all)).await;
    let complete = async {
        while told(&shared.store, volume).iter().flatten().map(Numbers::len).sum::<u64>() < 2 * all {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let complete = sent && tokio::time::timeout(PATIENCE, complete).await.is_ok();
    let seconds = begun.elapsed().as_secs_f64();
    if complete {
        sending.await.unwrap();
    }
    for process in processes {
        process.dies();
    }
    judged::<B>(&shared, volume, deaths, seconds);
}

fn judged<B: Broker>(shared: &Shared, volume: Volume, deaths: u64, seconds: f64) {
    let (all, told) = (volume.messages(), told(&shared.store, volume));
    let mut problems = Vec::new();
    for (place, name) in NAMES.iter().enumerate() {
        let faults = Faults::of(volume, &told[place]);
        let (given, again) = (&shared.given[place].deliveries, &shared.given[place].again);
        let (given, again) = (given.load(Ordering::Relaxed), again.load(Ordering::Relaxed));
        let (effects, copies) = (told[place].iter().map(Numbers::len).sum::<u64>(), given.saturating_sub(all));
        println!(
            "{name}: {all} messages, {effects} effects, {copies} copies came, {again} of them again, {} overtaken, {} deaths, {seconds:.1} s",
            faults.overtaken.count, deaths
        );
        if let Some(problem) = faults.problem(shared.ordered) {
            problems.push(format!("{name}: {problem}"));
        }
        let comes_twice = place == 0 && (deaths > 0 || !B::DROPS_REPEATS);
        if comes_twice && copies == 0 {
            problems.push(format!("{name}: void, since no copy came"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
