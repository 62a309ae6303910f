//! Numbers of senders on a bad day: two processes of each endpoint, of which senders and receivers die, passes that are dropped, stores and a way out
//! that give way, copies, reordering, lost acks. Entries are folded meanwhile, and later copies recognised. The stores' clocks are not paused.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use hapax::{
    Endpoint, InProcess, Memory, MessageId,
    deliver::Recoverability,
    endpoint::{EndpointBuilder, Eviction, Settings},
    envelope::{Destination, Outgoing},
    ports::{DeadLetters, DispatchError, Dispatcher, Page, Refused},
    testing::Drops,
    transports::in_process::Faults,
};
use hapax_model::{
    faults::Faulty,
    ledger::{LOWER, Ledger, Post, Posted, UPPER, envelope_of, forget_runs},
};
use tokio::time::{sleep, timeout};

use crate::{
    changing_hands::Process,
    evicting::{Lossy, PATIENCE, RETENTION, settings, until},
    faults::{bad_world, causes_of, posts},
    remembered::prompt,
    work::WayOut,
};

const POSTS: usize = 120;
/// What each sends on.
const OUTPUTS: u8 = 2;
/// Some posts come, and a process may die, so often.
const TURN: Duration = Duration::from_millis(100);
/// Shorter than the retention, so that what died with its process comes again while others are folded.
const LEASE: Duration = Duration::from_millis(300);
/// Longer than the retention: copies come when entries are folded.
const HELD: Duration = Duration::from_millis(2500);

/// A way out that keeps what was sent, each once.
#[derive(Debug, Clone)]
struct Kept {
    hub: InProcess,
    sent: Arc<Mutex<BTreeMap<MessageId, Outgoing>>>,
}

#[async_trait]
impl Dispatcher for Kept {
    fn check(&self, outgoing: &Outgoing) -> Result<(), Refused> {
        self.hub.check(outgoing)
    }

    async fn dispatch(&self, outgoing: &[Outgoing]) -> Vec<Result<(), DispatchError>> {
        let sent = outgoing.iter().map(|outgoing| (outgoing.envelope.message_id.clone(), outgoing.clone()));
        self.sent.lock().unwrap().extend(sent);
        self.hub.dispatch(outgoing).await
    }
}

struct Day {
    seed: u64,
    hub: InProcess,
    out: Faulty<Kept>,
    /// Of the upper endpoint, which remembers by time, and of the lower one.
    stores: [Faulty<Memory>; 2],
    /// How many processes there were.
    processes: u64,
}

impl Day {
    fn new(seed: u64) -> Self {
        let world = bad_world(seed, 100);
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: HELD, lost_acks: 0.2 };
        let hub = InProcess::with_faults(format!("numbered-{seed}"), LEASE, faults);
        let out = Faulty::new(Kept { hub: hub.clone(), sent: Arc::default() }, world.clone());
        let stores = [(); 2].map(|()| Faulty::new(Memory::new(), world.clone()));
        Self { seed, hub, out, stores, processes: 0 }
    }

    fn endpoint(&mut self, name: &str, store: &Faulty<Memory>, retention: Duration) -> EndpointBuilder {
        self.processes += 1;
        let recoverability = Recoverability { attempts_max: 1_000, ..settings().recoverability };
        let settings = Settings { recoverability, retention, sweep_interval: TURN, ..settings() };
        Endpoint::builder(name)
            .store(store.clone())
            .settings(settings)
            .drops(Drops::new(self.seed * 1_000 + self.processes, 0.2))
            .saga::<Ledger>(|ledger| ledger.starts::<Post>().starts::<Posted>())
    }

    /// A sender, or a receiver. What comes to a sender is not numbered: it is remembered for longer than the day lasts.
    async fn start(&mut self, sends: bool) -> Process {
        let [uppers, lowers] = self.stores.clone();
        let endpoint = if sends {
            let endpoint = self.endpoint(UPPER, &uppers, Settings::default().retention);
            endpoint.transport(WayOut(self.hub.clone(), self.out.clone())).number_messages()
        } else {
            let lossy: Lossy = prompt(&self.hub);
            self.endpoint(LOWER, &lowers, RETENTION).transport(lossy).eviction(Eviction::Evidence)
        };
        Process::start(endpoint).await
    }

    /// The causes of all lines of one of the endpoints, sorted.
    fn causes(&self, of: usize) -> Vec<String> {
        let entities = self.stores[of].inner().entities();
        let ledgers = entities.iter().map(|(_, entity)| Ledger::of(entity).unwrap().unwrap());
        let mut causes: Vec<String> = ledgers.flat_map(|ledger| ledger.lines).map(|line| line.cause).collect();
        causes.sort();
        causes
    }
}

/// Goal: by its number each message is known for ever, whatever happened to it, to its copies and to who has sent it. Method: a bad day, at whose end
/// all that was sent comes once more, when every entry is gone.
#[tokio::test]
async fn what_is_numbered_has_its_effect_once_on_a_bad_day_although_its_entries_are_folded_meanwhile() {
    forget_runs();
    join_all((0..3).map(numbered)).await;
}

async fn numbered(seed: u64) {
    let (mut day, mut random) = (Day::new(seed), fastrand::Rng::with_seed(seed));
    let posts = posts(POSTS, OUTPUTS);
    let mut processes = Vec::new();
    for sends in [true, true, false, false] {
        processes.push(day.start(sends).await);
    }
    let mut folded = false;
    for some in posts.chunks(3) {
        for post in some {
            let mut envelope = envelope_of(MessageId::parse(&post.cause).unwrap(), post);
            envelope.reply_to = None;
            let to = Destination::Endpoint(UPPER.parse().unwrap());
            day.hub.sender().send_envelope(to, envelope).await.unwrap();
        }
        if random.u8(..3) == 0 {
            let of = random.usize(..processes.len());
            let next = day.start(of < 2).await;
            std::mem::replace(&mut processes[of], next).die().await;
        }
        sleep(TURN).await;
        folded |= day.stores[1].inner().dedup_entries() < day.causes(1).len();
    }
    assert!(folded && day.processes > 10, "seed {seed}: it was another day: {folded}, {}", day.processes);
    let mut wanted: Vec<String> =
        posts.iter().flat_map(|post| (0..OUTPUTS).map(move |index| format!("{}#{index}", post.cause))).collect();
    wanted.sort();
    let all_sent = || day.stores[0].inner().entities().iter().all(|(_, entity)| entity.outbox.is_empty());
    until("sent", || day.causes(0).len() >= POSTS && all_sent()).await;
    timeout(PATIENCE, day.hub.idle()).await.unwrap_or_else(|_| panic!("seed {seed}: never idle"));
    assert_eq!((day.causes(0), day.causes(1)), (causes_of(&posts), wanted.clone()), "seed {seed}");

    until("folded", || day.stores[1].inner().dedup_entries() == 0).await;
    let sent: Vec<Outgoing> = day.out.inner().sent.lock().unwrap().values().cloned().collect();
    let senders: BTreeSet<_> = sent.iter().map(|sent| sent.envelope.sequence.unwrap().sequence).collect();
    assert!(sent.len() == wanted.len() && senders.len() > 2, "seed {seed}: {} of {senders:?}", sent.len());
    assert!(day.hub.dispatch(&sent).await.iter().all(Result::is_ok));
    timeout(PATIENCE, day.hub.idle()).await.unwrap_or_else(|_| panic!("seed {seed}: never idle again"));
    assert_eq!(day.causes(1), wanted, "seed {seed}: late copies");
    for (store, name) in day.stores.iter().zip([UPPER, LOWER]) {
        let letters = store.inner().list(&name.parse().unwrap(), &Page::first(10)).await.unwrap();
        assert_eq!(letters, [], "seed {seed}");
    }
    for process in processes {
        process.stop().await;
    }
}
