//! A bad day: copies, reordering, lost acks, passes dropped at random awaits, stores that give way. Everything once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Endpoint, InProcess, Memory, MessageId, Routes,
    deliver::{Recoverability, Tries},
    endpoint::{EndpointBuilder, Settings},
    envelope::{Destination, Envelope},
    manager::Stores,
    metrics::{Event, Metrics},
    ports::Cause,
    testing::Drops,
    transports::in_process::Faults,
};
use hapax_model::{
    Fault, Plan, World,
    faults::Faulty,
    invariants,
    ledger::{Act, Alarm, LOWER, Ledger, Post, Posted, Trouble, UPPER, envelope_of, forget_runs},
};

use crate::work::{Log, Task, done, endpoint, letters, send, settings, task};

const LEASE: Duration = Duration::from_secs(5);

/// A world in which each kind of fault comes so often at most.
pub(crate) fn bad_world(seed: u64, each: u32) -> World {
    let faults = [
        Fault::Refused,
        Fault::UnknownApplied,
        Fault::UnknownNotApplied,
        Fault::OwnConflict,
        Fault::CleanUpLeft,
        Fault::Stale,
    ];
    World::new(Plan {
        seed,
        per_mille: 30,
        budgets: faults.into_iter().map(|fault| (fault, each)).collect(),
        yields: true,
        ..Plan::default()
    })
}

/// A bad day, drawn from a seed.
struct Day {
    world: World,
    store: Faulty<Memory>,
    hub: InProcess,
    seed: u64,
}

impl Day {
    fn new(seed: u64) -> Self {
        forget_runs();
        let world = bad_world(seed, 40);
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: Duration::from_secs(20), lost_acks: 0.2 };
        let store = Faulty::new(Memory::new(), world.clone());
        Self { world, store, hub: InProcess::with_faults("bad-day", LEASE, faults), seed }
    }

    fn endpoint(&self, name: &str, drops: f64) -> EndpointBuilder {
        let mut settings = settings();
        // Dropped passes count as deliveries; no message is poison here.
        settings.recoverability.poison_above = u32::MAX;
        Endpoint::builder(name)
            .store(self.store.clone())
            .transport(self.hub.clone())
            .settings(settings)
            .drops(Drops::new(self.seed, drops))
            .routes(Routes::new().sends::<Posted>(LOWER))
            .saga::<Ledger>(|ledger| ledger.starts::<Post>().starts::<Posted>().handles::<Alarm>())
    }

    async fn send(&self, posts: &[Post]) {
        for post in posts {
            let mut envelope: Envelope = envelope_of(MessageId::parse(&post.cause).unwrap(), post);
            envelope.reply_to = None;
            let to = Destination::Endpoint(UPPER.parse().unwrap());
            self.hub.sender().send_envelope(to, envelope).await.unwrap();
        }
    }

    /// The causes of all lines of one endpoint, sorted.
    fn causes(&self, endpoint: &str) -> Vec<String> {
        let mut causes = Vec::new();
        for (key, entity) in self.store.inner().entities() {
            if key.scope().endpoint.as_str() == endpoint {
                causes.extend(Ledger::of(&entity).unwrap().unwrap().lines.into_iter().map(|line| line.cause));
            }
        }
        causes.sort();
        causes
    }

    /// Whatever the store has seen keeps the sentences that need no sink.
    fn check(&self) {
        self.world.ghost(|ghost| {
            invariants::effect_at_most_once(ghost)?;
            invariants::no_lost_update(ghost)
        });
        let broken = self.world.violation();
        // The hub is not the model's sink, so what is marked cannot be compared with what was sent.
        assert!(broken.as_ref().is_none_or(|why| why.contains("was marked before")), "seed {}: {broken:?}", self.seed);
    }
}

pub(crate) fn posts(count: usize, outputs: u8) -> Vec<Post> {
    let post = |n: usize| Post {
        ledger: format!("ledger-{}", n % 4),
        cause: format!("cause-{n:03}"),
        outputs,
        act: Act::Nothing,
        trouble: if n.is_multiple_of(7) { Trouble::Fails(2) } else { Trouble::None },
    };
    (0..count).map(post).collect()
}

pub(crate) fn causes_of(posts: &[Post]) -> Vec<String> {
    posts.iter().map(|post| post.cause.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_message_is_handled_once_although_passes_are_dropped_at_random() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let posts = posts(30, 0);
        day.send(&posts).await;
        let endpoint = day.endpoint(UPPER, 0.3);
        endpoint.run_until(day.hub.idle()).await.unwrap();
        assert_eq!(day.causes(UPPER), causes_of(&posts), "seed {seed}");
        day.check();
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_endpoint_sends_perhaps_repeatedly_the_next_one_handles_once() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let posts = posts(20, 2);
        day.send(&posts).await;
        let mut wanted: Vec<String> =
            posts.iter().flat_map(|post| (0..2).map(move |index| format!("{}#{index}", post.cause))).collect();
        wanted.sort();
        let stop = tokio::sync::Notify::new();
        let (upper, lower) = (day.endpoint(UPPER, 0.3), day.endpoint(LOWER, 0.3));
        tokio::join!(
            async { upper.run_until(stop.notified()).await.unwrap() },
            async { lower.run_until(stop.notified()).await.unwrap() },
            async {
                // What the sweeper sends comes after the queues were empty, perhaps more than once.
                while day.causes(LOWER).len() < wanted.len() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                day.hub.idle().await;
                stop.notify_waiters();
            }
        );
        assert_eq!(day.causes(UPPER), causes_of(&posts), "seed {seed}");
        assert_eq!(day.causes(LOWER), wanted, "seed {seed}");
        day.check();
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_share_the_work_and_every_message_is_handled_once() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let posts = posts(30, 0);
        day.send(&posts).await;
        let (one, two) = (day.endpoint(UPPER, 0.1), day.endpoint(UPPER, 0.1));
        tokio::join!(async { one.run_until(day.hub.idle()).await.unwrap() }, async {
            two.run_until(day.hub.idle()).await.unwrap()
        },);
        assert_eq!(day.causes(UPPER), causes_of(&posts), "seed {seed}");
        day.check();
    }
}

#[tokio::test(start_paused = true)]
async fn two_stores_keep_the_promise_as_one_does() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let dedup = Faulty::new(Memory::new(), day.world.clone());
        let stores = Stores::two(Arc::new(day.store.clone()), Arc::new(dedup.clone()));
        assert!(!stores.entities().capabilities().together);
        let posts = posts(20, 0);
        day.send(&posts).await;
        let mut settings = settings();
        settings.recoverability.poison_above = u32::MAX;
        let endpoint = Endpoint::builder(UPPER)
            .entities(day.store.clone())
            .dedup(dedup)
            .dead_letters(Memory::new())
            .transport(day.hub.clone())
            .settings(settings)
            .drops(Drops::new(seed, 0.2))
            .saga::<Ledger>(|ledger| ledger.starts::<Post>());
        endpoint.run_until(day.hub.idle()).await.unwrap();
        assert_eq!(day.causes(UPPER), causes_of(&posts), "seed {seed}");
        day.check();
    }
}

/// A second saga for the same messages.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Copybook {
    lines: Vec<String>,
}

impl hapax::Saga for Copybook {
    const NAME: &'static str = "copybook";
}

impl hapax::Handle<Post> for Copybook {
    fn correlate(post: &Post) -> hapax::Correlation<'_> {
        (&post.ledger).into()
    }

    async fn handle(&mut self, post: Post, _: &mut hapax::Context) -> Result<(), hapax::HandlerError> {
        self.lines.push(post.cause);
        Ok(())
    }
}

/// What was copied and what was posted, each sorted.
fn both(day: &Day) -> (Vec<String>, Vec<String>) {
    let (mut copied, mut posted) = (Vec::new(), Vec::new());
    for (key, entity) in day.store.inner().entities() {
        let state = &entity.state[hapax::codec::FRAME_BYTES..];
        if key.scope().saga.as_str() == "copybook" {
            copied.extend(serde_json::from_slice::<Copybook>(state).unwrap().lines);
        } else {
            posted.extend(Ledger::of(&entity).unwrap().unwrap().lines.into_iter().map(|line| line.cause));
        }
    }
    copied.sort();
    posted.sort();
    (copied, posted)
}

#[tokio::test(start_paused = true)]
async fn a_message_for_two_sagas_is_handled_by_both_although_passes_are_dropped() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let posts = posts(20, 0);
        day.send(&posts).await;
        let endpoint = day.endpoint(UPPER, 0.3).saga::<Copybook>(|copybook| copybook.starts::<Post>());
        endpoint.run_until(day.hub.idle()).await.unwrap();
        assert_eq!(both(&day), (causes_of(&posts), causes_of(&posts)), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_for_two_sagas_is_handled_by_both_in_two_processes_although_passes_are_dropped() {
    for seed in 0..20 {
        let day = Day::new(seed);
        let posts = posts(20, 0);
        day.send(&posts).await;
        let process = || {
            let endpoint = day.endpoint(UPPER, 0.2).saga::<Copybook>(|copybook| copybook.starts::<Post>());
            endpoint.run_until(day.hub.idle())
        };
        let (one, two) = tokio::join!(process(), process());
        one.unwrap();
        two.unwrap();
        assert_eq!(both(&day), (causes_of(&posts), causes_of(&posts)), "seed {seed}");
    }
}

/// Counts passes that were made again since somebody else had saved.
#[derive(Debug, Default)]
struct Lost(AtomicU32);

impl Metrics for Lost {
    fn observe(&self, event: Event<'_>) {
        if let Event::Retried(_, Cause::Conflict) = event {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Goal: races for one entity have a budget of their own. Method: two processes have all their messages for one, a message may be given twice, and
/// each race that is lost goes back to the broker nearly at once.
#[tokio::test(start_paused = true)]
async fn races_of_two_processes_for_one_entity_count_against_no_message() {
    const TASKS: usize = 200;
    let (store, hub, log, lost) = (Memory::new(), InProcess::new("races"), Log::default(), Arc::new(Lost::default()));
    let briefly = Tries::new(1, Duration::from_millis(1), Duration::from_millis(1));
    let few = Recoverability { attempts_max: 2, poison_above: 2, conflict: briefly, ..Recoverability::default() };
    for number in 0..TASKS {
        send(&hub, &Task { millis: 5, ..task("busy", &format!("task-{number}")) }).await;
    }
    let process = || {
        let settings = Settings { recoverability: few.clone(), pass_max: 4, in_flight_max: 16, ..settings() };
        endpoint(&store, hub.clone(), &log).settings(settings).metrics(lost.clone()).run_until(hub.idle())
    };
    let (one, other) = tokio::join!(process(), process());
    one.and(other).unwrap();
    assert!(lost.0.load(Ordering::SeqCst) > 20, "{lost:?}");
    let mut names = done(&store, "worker", "busy");
    names.sort();
    let mut all: Vec<_> = (0..TASKS).map(|number| format!("task-{number}")).collect();
    all.sort();
    assert_eq!((names, letters(&store).await), (all, vec![]));
}
