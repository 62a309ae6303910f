//! Bounds that are turned up and down, in two processes, while the broker gives copies, fails and loses acks, the stores are away and
//! processes die: whatever is set is kept, a pause holds, and in the end everything was handled once.

use std::{
    collections::HashMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    InProcess,
    deliver::Recoverability,
    endpoint::{EndpointHandle, Rate, Settings},
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delivery, ErrorKind, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities,
        TransportError,
    },
    transports::in_process::Faults,
};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    entities::Entities,
    work::{Log, Task, done, letters, send, settings, task},
};

const LEASE: Duration = Duration::from_secs(5);
const TASKS: usize = 400;
const KEYS: usize = 40;
/// Something happens so often in a day.
const TURNS: usize = 80;
const OFTEN: u32 = 1_000_000;

/// What is set. A rate is so many a second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bounds {
    messages: usize,
    bytes: usize,
    rate: Option<u32>,
}

impl Bounds {
    fn random(random: &mut fastrand::Rng) -> Self {
        Self {
            messages: [0, 1, 3, 20, 1000][random.usize(..5)],
            bytes: [1, 2 << 10, 20 << 10, 64 << 20][random.usize(..4)],
            rate: [None, None, Some(0), Some(1), Some(15), Some(200)][random.usize(..6)],
        }
    }
}

/// What one process was given, and whether that was within its bounds.
#[derive(Debug)]
struct Meter {
    bounds: Bounds,
    /// Those before, which may hold in the moment of the change.
    before: Bounds,
    since: Instant,
    /// Bytes of what is not settled.
    held: HashMap<Receipt, usize>,
    /// Messages that came since.
    came: usize,
    /// Of all of them.
    given: usize,
    /// How often it was given all that it may be.
    full: usize,
    random: fastrand::Rng,
}

impl Meter {
    fn set(&mut self, bounds: Bounds) {
        (self.before, self.bounds) = (self.bounds, bounds);
        (self.since, self.came) = (Instant::now(), 0);
    }

    fn take(&mut self, deliveries: &[Delivery]) {
        let largest = deliveries.iter().map(|delivery| delivery.envelope.size()).max().unwrap_or_default();
        self.held.extend(deliveries.iter().map(|delivery| (delivery.receipt.clone(), delivery.envelope.size())));
        self.given += deliveries.len();
        let (messages, bytes) = (self.held.len(), self.held.values().sum::<usize>());
        // What the broker gives in the moment of a change, it may give by what was asked for before.
        let is_new = self.since == Instant::now();
        let Bounds { messages: mut messages_max, bytes: mut bytes_max, rate } = self.bounds;
        if is_new {
            messages_max = messages_max.max(self.before.messages);
            bytes_max = bytes_max.max(self.before.bytes);
        }
        assert!(messages <= messages_max, "{messages} messages are held, by {self:?}");
        // All are of one size, so that it is known: the last one alone is beyond the bound, or the only one.
        assert!(bytes < bytes_max + largest || messages == 1, "{bytes} bytes are held, by {self:?}");
        self.full += usize::from(messages == messages_max || bytes >= bytes_max);
        if let Some(rate) = rate.filter(|_| !is_new) {
            self.came += deliveries.len();
            let at_once = if rate == 0 { 0.0 } else { (f64::from(rate) / 10.0).max(1.0) };
            let most = f64::from(rate).mul_add(self.since.elapsed().as_secs_f64(), at_once);
            assert!(self.came as f64 <= most + 1e-6, "{} came, and not {most}, by {self:?}", self.came);
        }
    }
}

/// A process's end of a hub, at which its meter is.
#[derive(Debug, Clone)]
struct Metered {
    hub: InProcess,
    meter: Arc<Mutex<Meter>>,
}

#[async_trait]
impl Transport for Metered {
    fn capabilities(&self) -> TransportCapabilities {
        self.hub.capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let receiver = Arc::new(Queue { receiver: connected.receiver, meter: self.meter.clone() });
        Ok(Connected { receiver, ..connected })
    }
}

#[derive(Debug)]
struct Queue {
    receiver: Arc<dyn Receiver>,
    meter: Arc<Mutex<Meter>>,
}

#[async_trait]
impl Receiver for Queue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        const FAILS: f64 = 0.1;
        if self.meter.lock().unwrap().random.f64() < FAILS {
            return Err(TransportError::new(ErrorKind::Unavailable, "receiving", "it fails now and then"));
        }
        let given = self.receiver.receive(max).await?;
        self.meter.lock().unwrap().take(&given);
        Ok(given)
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        let settled = self.receiver.settle(receipt, settlement).await;
        self.meter.lock().unwrap().held.remove(receipt);
        settled
    }
}

/// A process. When it is dropped, it has died.
struct Process {
    handle: EndpointHandle,
    meter: Arc<Mutex<Meter>>,
    running: AbortHandle,
}

impl Process {
    async fn start(entities: &Entities, hub: &InProcess, log: &Log, random: &mut fastrand::Rng) -> Self {
        // One that would begin with a pause does not start.
        let bounds = Bounds { messages: 20, rate: None, ..Bounds::random(random) };
        let (held, random) = (HashMap::new(), random.fork());
        let since = Instant::now();
        let meter = Meter { bounds, before: bounds, since, held, came: 0, given: 0, full: 0, random };
        let meter = Arc::new(Mutex::new(meter));
        let settings = Settings {
            in_flight_max: bounds.messages,
            bytes_in_flight_max: bounds.bytes,
            rate_max: bounds.rate.map(Rate::per_second),
            // Who dies is not the message's fault.
            recoverability: Recoverability { attempts_max: 1000, poison_above: OFTEN, ..Recoverability::default() },
            ..settings()
        };
        let broker = Metered { hub: hub.clone(), meter: meter.clone() };
        let endpoint = crate::outage::endpoint(entities, hub, log).transport(broker).settings(settings);
        let endpoint = endpoint.start().await.unwrap();
        let handle = endpoint.handle();
        let running = tokio::spawn(endpoint.run_until(pending::<()>())).abort_handle();
        Self { handle, meter, running }
    }

    fn set(&self, bounds: Bounds) {
        self.meter.lock().unwrap().set(bounds);
        self.handle.set_in_flight_max(bounds.messages);
        self.handle.set_bytes_in_flight_max(bounds.bytes);
        self.handle.set_rate_max(bounds.rate.map(Rate::per_second));
    }

    /// How many messages it was given, and how often as many as it may be.
    fn given(&self) -> (usize, usize) {
        assert!(!self.running.is_finished(), "a bound was not kept");
        let meter = self.meter.lock().unwrap();
        (meter.given, meter.full)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn sent(number: usize) -> Task {
    // All are of one size.
    Task { millis: 50, ..task(&format!("key-{:02}", number % KEYS), &format!("task-{number:03}")) }
}

/// Answers how many messages were given, and how often as many as may be.
async fn day(seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: 4 * LEASE, lost_acks: 0.1 };
    let hub = InProcess::with_faults("turned", LEASE, faults);
    let (entities, log) = (Entities::default(), Log::default());
    for number in 0..TASKS {
        send(&hub, &sent(number)).await;
    }
    let mut processes = [
        Process::start(&entities, &hub, &log, &mut random).await,
        Process::start(&entities, &hub, &log, &mut random).await,
    ];
    let (mut given, mut full) = (0, 0);
    let mut count = |process: &Process| {
        let (more, often) = process.given();
        (given, full) = (given + more, full + often);
    };
    for _ in 0..TURNS {
        let process = &mut processes[random.usize(..2)];
        match random.usize(..10) {
            0 => {
                count(process);
                *process = Process::start(&entities, &hub, &log, &mut random).await;
            }
            1 => entities.is_away(Some("")),
            2..=3 => entities.is_away(None),
            _ => process.set(Bounds::random(&mut random)),
        }
        sleep(Duration::from_millis(random.u64(1..1500))).await;
    }
    entities.is_away(None);
    for process in &processes {
        process.set(Bounds { messages: 2, bytes: 1, rate: Some(40) });
    }
    let starved = format!("seed {seed}: something is starved");
    timeout(Duration::from_secs(3600), hub.idle()).await.unwrap_or_else(|_| panic!("{starved}"));
    processes.iter().for_each(&mut count);
    for key in 0..KEYS {
        let key = format!("key-{key:02}");
        let all: Vec<String> = (0..TASKS).map(sent).filter(|task| task.key == key).map(|task| task.name).collect();
        let mut did = done(&entities.store, "worker", &key);
        did.sort();
        assert_eq!(did, all, "seed {seed}, {key}");
    }
    assert_eq!(letters(&entities.store).await, [], "seed {seed}");
    (given, full)
}

#[tokio::test(start_paused = true)]
async fn bounds_that_are_turned_up_and_down_in_two_processes_are_kept_and_nothing_is_lost_doubled_or_starved() {
    let (mut given, mut full) = (0, 0);
    for seed in 0..10 {
        println!("seed {seed}");
        let (more, often) = day(seed).await;
        (given, full) = (given + more, full + often);
    }
    assert!(given > 10 * TASKS && full > 100, "{given} given, {full} times as many as may be");
}

/// A pause of one process is none of the other, and ends when it is told to, whatever else has happened meanwhile.
#[tokio::test(start_paused = true)]
async fn a_pause_of_one_process_holds_while_the_stores_go_and_come_and_the_other_goes_on() {
    let faults = Faults { duplicates: 1.0, delay_max: LEASE, lost_acks: 0.2, ..Faults::default() };
    let hub = InProcess::with_faults("paused", LEASE, faults);
    let (entities, log, mut random) = (Entities::default(), Log::default(), fastrand::Rng::with_seed(1));
    let all = Bounds { messages: 100, bytes: 64 << 20, rate: None };
    let paused = Process::start(&entities, &hub, &log, &mut random).await;
    let other = Process::start(&entities, &hub, &log, &mut random).await;
    paused.set(all);
    other.set(all);
    sleep(Duration::from_secs(1)).await; // Both wait for messages.
    paused.set(Bounds { messages: 0, ..all });
    sleep(Duration::from_secs(1)).await;
    let before = paused.given().0;
    for number in 0..TASKS {
        send(&hub, &sent(number)).await;
        if number % 50 == 0 {
            entities.is_away((number % 100 == 0).then_some(""));
            paused.set(Bounds { messages: 0, rate: Some(u32::try_from(number).unwrap()), ..all });
            sleep(Duration::from_secs(5)).await;
        }
    }
    timeout(Duration::from_secs(3600), hub.idle()).await.expect("the other goes on");
    assert_eq!(paused.given().0, before);
    other.set(Bounds { messages: 0, ..all });
    paused.set(all);
    for number in 0..TASKS {
        send(&hub, &sent(TASKS + number)).await;
    }
    timeout(Duration::from_secs(3600), hub.idle()).await.expect("it goes on");
    assert!(paused.given().0 >= before + TASKS);
    let did: usize = (0..KEYS).map(|key| done(&entities.store, "worker", &format!("key-{key:02}")).len()).sum();
    assert_eq!(did, 2 * TASKS);
}
