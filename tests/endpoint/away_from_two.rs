//! Stores that are away from two processes of one endpoint at the same time: neither hammers them, neither sends what the other has sent, and both
//! resume by themselves. Each counts what it asks.

use std::time::Duration;

use hapax::{
    Endpoint, InProcess, Memory,
    endpoint::{EndpointBuilder, EndpointHandle},
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    in_part::{KEYS, Kept, LOOK, OUTAGE, most_marks, named, seconds},
    parts::{Counted, Part, Parts},
    work::{Listener, Log, Task, WayOut, Worker, done, letters, send, settings, task},
};

/// Each of them tries every five seconds.
const BACK_MAX: Duration = Duration::from_secs(10);
/// Handled before anything is away.
const BEFORE: &str = "before";

struct Process {
    parts: Parts,
    out: Counted,
    handle: EndpointHandle,
}

/// Two processes on such stores, and an endpoint which is well and hears what they publish.
struct Two {
    hub: InProcess,
    log: Log,
    processes: Vec<Process>,
    stops: Vec<oneshot::Sender<()>>,
    running: Vec<JoinHandle<Result<(), hapax::endpoint::Error>>>,
}

impl Two {
    async fn begin(kept: Kept) -> Self {
        let (hub, log) = (InProcess::new("away-from-two"), Log::default());
        let mut two = Self { hub, log, processes: Vec::new(), stops: Vec::new(), running: Vec::new() };
        let hears = Endpoint::builder("hears").store(Memory::new()).transport(two.hub.clone()).handler(Listener);
        two.start(hears).await;
        let parts = Parts::default();
        for parts in [parts.clone(), parts.beside()] {
            let out = Counted::new(&two.hub);
            let work = Endpoint::builder("work").transport(WayOut(two.hub.clone(), out.clone()));
            let work = match kept {
                Kept::Together => work.store(parts.clone()),
                Kept::Apart => work.entities(parts.clone()).dedup(parts.clone()).dead_letters(parts.clone()),
            };
            let handle = two.start(work.saga::<Worker>(|worker| worker.starts::<Task>())).await;
            two.processes.push(Process { parts, out, handle });
        }
        two.send([BEFORE.to_owned()]).await;
        two.hub.idle().await;
        sleep(LOOK).await; // Long ago, from now on.
        two
    }

    async fn start(&mut self, endpoint: EndpointBuilder) -> EndpointHandle {
        let endpoint = endpoint.with(self.log.clone()).settings(settings()).start().await.unwrap();
        let handle = endpoint.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        self.running.push(tokio::spawn(endpoint.run_until(stopped)));
        self.stops.push(stop);
        handle
    }

    async fn send(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            send(&self.hub, &Task { tells: true, ..task(&name, &name) }).await;
        }
    }

    fn is_away(&self, part: Option<Part>) {
        self.processes[0].parts.is_away(part); // From both.
    }

    /// The outage is on, and both say so all the time. Copies of what is over come meanwhile.
    async fn outlast(&self, reason: &str) {
        let begun = Instant::now();
        while begun.elapsed() < OUTAGE {
            self.send([BEFORE.to_owned()]).await;
            sleep(LOOK).await;
            for process in &self.processes {
                let health = process.handle.health();
                assert!(health.live() && !health.ready(), "after {:?}: {health:?}", begun.elapsed());
                assert!(health.reasons().iter().any(|said| said.contains(reason)), "{health:?}");
            }
        }
    }

    /// What each has asked, and both, is at most what one that is alone may, and twice that.
    fn asked(&self, what: &str, count: impl Fn(&Process) -> u32, most: u32) {
        let counts: Vec<u32> = self.processes.iter().map(count).collect();
        assert!(counts.iter().all(|count| (1..most).contains(count)), "{counts:?} {what} and not {most}");
        assert!((KEYS..2 * most).contains(&counts.iter().sum()), "{counts:?} {what}");
    }

    fn sent(&self) -> u32 {
        self.processes.iter().map(|process| process.out.sent()).sum()
    }

    /// It has resumed by itself: all has had its effect, once, and is heard of, once.
    async fn resumes(self, back: Instant) {
        self.hub.idle().await;
        assert!(back.elapsed() < BACK_MAX, "{:?}", back.elapsed());
        sleep(Duration::from_secs(30)).await; // Some sweeps.
        self.hub.idle().await;
        let store = &self.processes[0].parts.store;
        for name in named(KEYS) {
            assert_eq!(done(store, "worker", &name), [name.as_str()]);
            assert_eq!(self.log.runs("listener", &name), 1, "{name}");
        }
        assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
        assert!(letters(store).await.is_empty(), "nobody was to blame");
        let ready = || self.processes.iter().filter(|process| process.handle.health().ready()).count();
        assert!(ready() >= 1);
        // Where one has finished all that there was, the other does not find out, until that is two minutes ago.
        sleep(Duration::from_secs(120)).await;
        assert_eq!(ready(), 2);
        self.stops.into_iter().for_each(|stop| stop.send(()).unwrap());
        for running in self.running {
            running.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_from_two_processes_is_asked_no_more_than_twice_as_often() {
    for kept in [Kept::Together, Kept::Apart] {
        let two = Two::begin(kept).await;
        let before = two.sent();
        two.is_away(Some(Part::Whole));
        two.send(named(KEYS)).await;
        two.outlast("the stores cannot be reached").await;
        // One each when they come, one a second at most, and whoever's turn it is; and one for each sweep.
        let most = KEYS + 2 * seconds(OUTAGE) + seconds(OUTAGE) / 10;
        two.asked("refused", |process| process.parts.refused(), most);
        assert_eq!(two.sent(), before, "what is not saved is not sent");
        let back = Instant::now();
        two.is_away(None);
        two.resumes(back).await;
    }
}

/// All of it is handled and sent, and none of it can be marked. Who has sent it notes that in its outbox entry, which both processes read: only
/// who reads before the note is written sends as well. That may be, once each, the pass and whatever sweeps are under way then: one of each process, by
/// settings that let no entry become older first. It is no more than that for as long as the outage lasts.
#[tokio::test(start_paused = true)]
async fn while_a_dedup_store_takes_no_entries_of_two_processes_neither_sends_again_what_one_has_sent() {
    let moment = Duration::from_millis(100);
    for (confirmed_after, of_one_max, most) in [(Duration::ZERO, 1, KEYS), (moment, 2, 3 * KEYS)] {
        let two = Two::begin(Kept::Apart).await;
        sleep(LOOK - moment / 2).await; // So that both sweep while all of it is being sent.
        two.is_away(Some(Part::Insert));
        two.processes.iter().for_each(|process| process.out.takes(confirmed_after));
        let before = two.sent();
        two.send(named(KEYS)).await;
        two.outlast("the dedup store takes no entries").await;
        two.asked("refused", |process| process.parts.refused(), most_marks());
        let (sent, of_one) = (two.sent() - before, [0, 1].map(|process| two.processes[process].out.most_of_one()));
        assert!((KEYS..=most).contains(&sent), "{sent} sent");
        assert!(of_one.iter().all(|times| *times <= of_one_max), "one was sent {of_one:?} times");
        let back = Instant::now();
        two.is_away(None);
        let log = two.log.clone();
        two.resumes(back).await;
        for name in named(KEYS) {
            assert_eq!(log.runs("worker", &name), 1, "it was saved");
        }
    }
}
