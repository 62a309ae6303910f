//! A broker that is asked for messages and never answers. To an endpoint it is like one that has none: what it holds goes on.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Handle, HandlerError, InProcess, Memory, Message, Saga,
    endpoint::Settings,
    ids::{EndpointName, TypeName},
    ports::{
        Connected, Delays, Delivery, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities,
        TransportError,
    },
    transports::in_process::Faults,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, timeout},
};

use crate::work::{Cut, Done, Log, Task, done, endpoint, send, settings, task};

const SECOND: Duration = Duration::from_secs(1);
/// Short beside what a handler here takes.
const LEASE: Duration = Duration::from_secs(5);

/// Who asks for messages waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hang {
    /// Before anything is taken.
    Empty,
    /// With what was taken: the answer is lost.
    Taken,
}

/// A hub that holds nothing back, with a way out of its own, and that hangs when it is told to.
#[derive(Debug, Clone)]
struct Hanging {
    hub: InProcess,
    out: Cut,
    hang: Arc<watch::Sender<Option<Hang>>>,
    asked: Arc<AtomicU32>,
}

impl Hanging {
    fn new(hub: &InProcess) -> Self {
        let out = Cut::only_to(hub, "ear");
        Self { hub: hub.clone(), out, hang: Arc::default(), asked: Arc::default() }
    }

    /// From now on, or no more. Whoever waits by then is not answered any more.
    fn hangs(&self, hang: Option<Hang>) {
        self.hang.send_replace(hang);
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Transport for Hanging {
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities { delays: Delays::Never, ..self.hub.capabilities() }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let connected = self.hub.connect(endpoint, types).await?;
        let receiver = Arc::new(Queue { receiver: connected.receiver, broker: self.clone() });
        Ok(Connected { receiver, dispatcher: Arc::new(self.out.clone()), ..connected })
    }
}

#[derive(Debug)]
struct Queue {
    receiver: Arc<dyn Receiver>,
    broker: Hanging,
}

#[async_trait]
impl Receiver for Queue {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError> {
        self.broker.asked.fetch_add(1, Ordering::Relaxed);
        let mut hang = self.broker.hang.subscribe();
        let given = tokio::select! {
            biased;
            () = async { drop(hang.wait_for(|hang| *hang == Some(Hang::Empty)).await) } => pending().await,
            given = self.receiver.receive(max) => given,
        };
        let is_lost = *hang.borrow() == Some(Hang::Taken);
        if is_lost { pending().await } else { given }
    }

    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError> {
        self.receiver.extend(receipts).await
    }

    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError> {
        self.receiver.settle(receipt, settlement).await
    }
}

/// Has something sent at once, and something later.
#[derive(Debug, Serialize, Deserialize)]
struct Remind {
    seconds: u64,
}

impl Message for Remind {
    const TYPE: &'static str = "hanging.remind";
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Clerk;

impl Saga for Clerk {
    const NAME: &'static str = "clerk";
}

impl Handle<Remind> for Clerk {
    fn correlate(_: &Remind) -> Correlation<'_> {
        "all".into()
    }

    async fn handle(&mut self, remind: Remind, cx: &mut Context) -> Result<(), HandlerError> {
        cx.send("ear", Done { name: "at once".into() })?;
        cx.send_after(Duration::from_secs(remind.seconds), "desk", Done { name: "later".into() })
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_receive_hangs_what_is_held_is_handled_and_what_waits_is_sent() {
    let hub = InProcess::with_faults("hanging", LEASE, Faults::default());
    let (store, log, broker) = (Memory::new(), Log::default(), Hanging::new(&hub));
    let backlog = |of: &str| hub.backlog(&of.parse().unwrap());
    let builder = endpoint(&store, broker.clone(), &log).schedule(store.clone());
    let endpoint = builder.saga::<Clerk>(|clerk| clerk.starts::<Remind>()).start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    hub.sender().send("work", &Remind { seconds: 20 }).await.unwrap();
    send(&hub, &Task { millis: 20_000, ..task("a", "long") }).await;
    sleep(SECOND).await;
    send(&hub, &task("a", "behind")).await;
    sleep(SECOND).await;
    assert!(handle.in_flight() >= 2 && backlog("ear") + backlog("desk") == 0);

    broker.hangs(Some(Hang::Empty));
    sleep(30 * SECOND).await;
    // Its lease was extended, or the end of neither would have counted.
    assert_eq!(done(&store, "worker", "a"), ["long", "behind"]);
    assert_eq!((log.runs("worker", "long"), backlog("work"), handle.in_flight()), (1, 0, 0));
    assert_eq!(backlog("desk"), 1, "what became due was sent");
    assert!(broker.out.refused() > 0 && backlog("ear") == 0);
    broker.out.mend();
    sleep(15 * SECOND).await;
    assert_eq!(backlog("ear"), 1, "the sweeper has sent what waited");

    // Nobody can tell it from a queue in which there is nothing.
    send(&hub, &task("a", "late")).await;
    sleep(3600 * SECOND).await;
    assert!(handle.health().ready(), "{:?}", handle.health());
    assert_eq!((backlog("work"), log.runs("worker", "late")), (1, 0));
    let asked = broker.asked();
    // Whoever changes a bound has the broker asked anew.
    broker.hangs(None);
    handle.set_in_flight_max(100);
    sleep(SECOND).await;
    assert_eq!((log.runs("worker", "late"), backlog("work")), (1, 0));
    assert_eq!(broker.asked(), asked + 2, "once for it, and once since");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_not_held_up_by_a_receive_that_hangs() {
    let (store, hub, log) = (Memory::new(), InProcess::new("hanging"), Log::default());
    let broker = Hanging::new(&hub);
    for (millis, most) in [(0, Duration::from_millis(1)), (2000, 2 * SECOND), (60_000, 4 * SECOND)] {
        broker.hangs(None);
        let hurried = Settings { stop_limit: 3 * SECOND, ..settings() };
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(endpoint(&store, broker.clone(), &log).settings(hurried).run_until(stopped));
        send(&hub, &Task { millis, ..task(&format!("key-{millis}"), &format!("task-{millis}")) }).await;
        sleep(Duration::from_millis(10)).await;
        broker.hangs(Some(Hang::Empty));
        sleep(Duration::from_millis(10)).await;
        stop.send(()).unwrap();
        let begun = Instant::now();
        timeout(600 * SECOND, running).await.expect("it stops").unwrap().unwrap();
        assert!(begun.elapsed() <= most, "{:?} beside {millis} ms", begun.elapsed());
    }
}

/// Goal: what a process has taken, as the broker sees it, and never heard of, is not lost with it. Method: nobody extends the leases of
/// what he does not know of.
#[tokio::test(start_paused = true)]
async fn what_a_receive_that_hangs_has_taken_is_handled_by_another_process() {
    const TASKS: usize = 20;
    let hub = InProcess::with_faults("hanging", LEASE, Faults::default());
    let (store, log, broker) = (Memory::new(), Log::default(), Hanging::new(&hub));
    broker.hangs(Some(Hang::Taken));
    let process = async |broker: &Hanging| {
        let endpoint = endpoint(&store, broker.clone(), &log).start().await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        (stop, endpoint.handle(), tokio::spawn(endpoint.run_until(stopped)))
    };
    for number in 0..TASKS {
        send(&hub, &task(&format!("key-{number}"), &format!("task-{number}"))).await;
    }
    let hung = process(&broker).await;
    sleep(SECOND).await;
    let other = process(&Hanging::new(&hub)).await;
    sleep(2 * LEASE).await;
    assert_eq!((broker.asked(), hub.backlog(&"work".parse().unwrap())), (1, 0));
    for number in 0..TASKS {
        let task = format!("task-{number}");
        assert_eq!(log.runs("worker", &task), 1, "{task}");
        assert_eq!(done(&store, "worker", &format!("key-{number}")), [task]);
    }
    for (stop, handle, running) in [hung, other] {
        assert!(handle.health().ready(), "{:?}", handle.health());
        stop.send(()).unwrap();
        timeout(SECOND, running).await.expect("it stops").unwrap().unwrap();
    }
}
