//! How messages end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Correlation, Endpoint, Handle, Handler, HandlerError, InProcess, Memory, Message, Saga,
    deliver::{Recoverability, Tries},
    endpoint::Settings,
    ids::EndpointName,
    ports::{DeadLetter, DeadLetters, ErrorKind, Page, StoreError},
};
use hapax_model::{Fault, Plan, World, faults::Faulty};
use serde::{Deserialize, Serialize};

use crate::entities::{Dedup, Entities};
use crate::work::{
    Auditor, Cut, Done, Listener, Log, Task, Unheard, WayOut, Worker, done, endpoint, letters, send, settings, task,
};

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_dropped() {
    let (store, hub, log) = (Memory::new(), InProcess::new("twice"), Log::default());
    let twice = task("a", "twice");
    send(&hub, &twice).await;
    send(&hub, &twice).await;
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    send(&hub, &twice).await;
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["twice"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_for_several_sagas_is_settled_once_when_all_of_them_are_done() {
    let (store, hub, log) = (Memory::new(), InProcess::new("several"), Log::default());
    // More failures than are retried in place: the message is given back, although the auditor is done with it.
    send(&hub, &Task { fails: 5, ..task("a", "shared") }).await;
    let builder = endpoint(&store, hub.clone(), &log).saga::<Auditor>(|auditor| auditor.starts::<Task>());
    builder.run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["shared"]);
    assert_eq!(done(&store, "auditor", "a"), ["shared"]);
    assert_eq!((log.runs("worker", "shared"), log.runs("auditor", "shared")), (6, 1));
    assert_eq!(letters(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_type_that_nobody_handles_is_dead_lettered() {
    let (store, hub, log) = (Memory::new(), InProcess::new("unheard"), Log::default());
    hub.sender().send("work", &Unheard).await.unwrap();
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    let letters = letters(&store).await;
    assert_eq!(letters.len(), 1);
    let reason = &letters[0].reason;
    assert!(reason.starts_with("endpoint work has no handler for work.unheard; add .handles(..)"), "{reason}");
}

/// Takes no letter the first times.
#[derive(Debug, Clone)]
struct Full {
    times: Arc<AtomicU32>,
    letters: Memory,
}

#[async_trait]
impl DeadLetters for Full {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let left = self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(StoreError::new(ErrorKind::Unavailable, "adding a letter", "it is full")),
            Err(_) => self.letters.add(letter).await,
        }
    }

    async fn list(&self, endpoint: &EndpointName, page: &Page) -> Result<Vec<DeadLetter>, StoreError> {
        self.letters.list(endpoint, page).await
    }

    async fn discard(&self, letters: &[DeadLetter]) -> Result<usize, StoreError> {
        self.letters.discard(letters).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_handles_is_acknowledged_only_when_its_letter_is_confirmed() {
    let (store, hub, log) = (Memory::new(), InProcess::new("unheard-full"), Log::default());
    hub.sender().send("work", &Unheard).await.unwrap();
    let full = Full { times: Arc::new(AtomicU32::new(3)), letters: store.clone() };
    endpoint(&store, hub.clone(), &log).dead_letters(full.clone()).run_until(hub.idle()).await.unwrap();
    assert_eq!((letters(&store).await.len(), full.times.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_name_its_saga_is_dead_lettered() {
    let (store, hub, log) = (Memory::new(), InProcess::new("nameless"), Log::default());
    send(&hub, &task("", "nameless")).await;
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    let letters = letters(&store).await;
    assert_eq!(letters[0].reason, "work.task does not name its worker: key is empty");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_keeps_failing_is_dead_lettered_after_its_deliveries_and_the_others_go_on() {
    let (store, hub, log) = (Memory::new(), InProcess::new("failing"), Log::default());
    let recoverability = Recoverability { in_place: Tries::NONE, attempts_max: 3, ..Recoverability::default() };
    send(&hub, &Task { fails: u32::MAX, ..task("a", "bad") }).await;
    send(&hub, &task("a", "good")).await;
    let builder = endpoint(&store, hub.clone(), &log).settings(Settings { recoverability, ..settings() });
    builder.run_until(hub.idle()).await.unwrap();
    let letters = letters(&store).await;
    let reason = "told to fail\nbefore:\n  attempt 1: told to fail\n  attempt 2: told to fail";
    assert_eq!((letters.len(), letters[0].attempts, letters[0].reason.as_str()), (1, 3, reason));
    assert_eq!(log.runs("worker", "bad"), 3);
    assert_eq!(done(&store, "worker", "a"), ["good"]);
}

/// Goal: what has failed once and is over costs nothing any more. Method: what is remembered is seen in a letter alone, so another
/// message bears the same id, which for another entity is no repeat.
#[tokio::test(start_paused = true)]
async fn failures_of_a_message_that_was_handled_after_all_are_forgotten() {
    let (store, hub, log) = (Memory::new(), InProcess::new("forgotten"), Log::default());
    let recoverability = Recoverability { in_place: Tries::NONE, attempts_max: 2, ..Recoverability::default() };
    let builder = endpoint(&store, hub.clone(), &log).settings(Settings { recoverability, ..settings() });
    let both = async {
        send(&hub, &Task { fails: 1, ..task("a", "twice") }).await;
        hub.idle().await;
        send(&hub, &Task { fails: u32::MAX, ..task("b", "twice") }).await;
        hub.idle().await;
    };
    builder.run_until(both).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["twice"]);
    let letters = letters(&store).await;
    assert_eq!((letters.len(), letters[0].reason.as_str()), (1, "told to fail\nbefore:\n  attempt 1: told to fail"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_rests_before_it_comes_again() {
    let (store, hub, log) = (Memory::new(), InProcess::new("rests"), Log::default());
    let recoverability =
        Recoverability { in_place: Tries::NONE, retry_delay: Duration::from_secs(100), ..Recoverability::default() };
    send(&hub, &Task { fails: 2, ..task("a", "rests") }).await;
    let begun = tokio::time::Instant::now();
    let builder = endpoint(&store, hub.clone(), &log).settings(Settings { recoverability, ..settings() });
    builder.run_until(hub.idle()).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(300), "100 s, then twice as long, not {:?}", begun.elapsed());
    assert_eq!(done(&store, "worker", "a"), ["rests"]);
}

#[tokio::test(start_paused = true)]
async fn a_stateless_handler_handles_each_message_once() {
    let (store, hub, log) = (Memory::new(), InProcess::new("stateless"), Log::default());
    for name in ["one", "two"] {
        let told = Task { tells: true, ..task("a", name) };
        send(&hub, &told).await;
    }
    let stop = async {
        hub.idle().await;
        let done = Done { name: "by hand".into() };
        for _ in 0..3 {
            hub.sender().send_as("by-hand".parse().unwrap(), "work", &done).await.unwrap();
        }
        hub.idle().await;
    };
    endpoint(&store, hub.clone(), &log).handler(Listener).run_until(stop).await.unwrap();
    for name in ["one", "two", "by hand"] {
        assert_eq!(log.runs("listener", name), 1, "{name}");
    }
}

/// Sets a timeout, which could not come back to anything.
#[derive(Debug, Clone)]
struct Alarmed;

impl Handler<Done> for Alarmed {
    const NAME: &'static str = "alarmed";

    async fn handle(&self, done: Done, cx: &mut Context) -> Result<(), HandlerError> {
        cx.timeout(Duration::from_secs(1), done).map(drop)
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_handler_without_state_is_refused_and_not_lost_in_silence() {
    let (store, hub, log) = (Memory::new(), InProcess::new("stateless-timeout"), Log::default());
    hub.sender().send("work", &Done { name: "alarm".into() }).await.unwrap();
    endpoint(&store, hub.clone(), &log).handler(Alarmed).run_until(hub.idle()).await.unwrap();
    let letters = letters(&store).await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("use send_after, or a saga"), "{}", letters[0].reason);
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_sends_what_a_message_that_was_given_up_has_left() {
    let (store, hub, log) = (Memory::new(), InProcess::new("swept"), Log::default());
    let cut = Cut::new(&hub);
    let told = Task { tells: true, ..task("a", "told") };
    send(&hub, &told).await;
    let stop = async {
        hub.idle().await; // Acked, although nothing could be sent.
        assert_eq!(done(&store, "worker", "a"), ["told"]);
        assert_eq!(log.runs("listener", "told"), 0);
        cut.mend();
        while log.runs("listener", "told") == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        hub.idle().await;
    };
    endpoint(&store, WayOut(hub.clone(), cut.clone()), &log).handler(Listener).run_until(stop).await.unwrap();
    assert_eq!((log.runs("worker", "told"), log.runs("listener", "told")), (1, 1));
    assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
}

/// Among a million entities that wait a look takes seconds, of the server and of this process.
#[tokio::test(start_paused = true)]
async fn a_sweeper_that_finds_nothing_rests_longer_than_it_has_looked() {
    let settings = Settings::default();
    for (look, most) in [
        (Duration::ZERO, settings.sweep_interval),
        (Duration::from_secs(3), Duration::from_secs(30)),
        (Duration::from_secs(20), settings.sweep_age),
    ] {
        let entities = Entities { look, ..Entities::default() };
        let (hub, looks) = (InProcess::new("idle"), entities.looks.clone());
        let endpoint = Endpoint::builder("work").entities(entities).dedup(Memory::new()).transport(hub);
        let endpoint =
            endpoint.saga::<Worker>(|worker| worker.starts::<Task>()).with(Log::default()).settings(settings.clone());
        let hour = Duration::from_secs(3600);
        endpoint.start().await.unwrap().run_until(tokio::time::sleep(hour)).await.unwrap();
        let (looks, each) = (looks.load(Ordering::Relaxed), most + look);
        let expected = hour.as_secs() / each.as_secs();
        assert!(u64::from(looks).abs_diff(expected) <= 1, "{looks} looks of {look:?} in an hour, not {expected}");
    }
}

/// Neither of the two that are registered, whichever comes first, nor eviction.
#[tokio::test(start_paused = true)]
async fn upkeep_of_one_saga_that_fails_holds_up_no_other() {
    for fails in ["worker", "auditor"] {
        let entities = Entities { fails: Some(fails), ..Entities::default() };
        let (looks, purges) = (entities.looks.clone(), entities.purges.clone());
        let endpoint = Endpoint::builder("work")
            .entities(entities)
            .dedup(Dedup { durable: false, evicts: false, ..Dedup::GOOD })
            .transport(InProcess::new("upkeep"))
            .with(Log::default())
            .saga::<Worker>(|worker| worker.starts::<Task>())
            .saga::<Auditor>(|auditor| auditor.starts::<Task>());
        let hour = Duration::from_secs(3600);
        endpoint.start().await.unwrap().run_until(tokio::time::sleep(hour)).await.unwrap();
        let settings = Settings::default();
        for (count, every) in [(looks, settings.sweep_interval), (purges, settings.evict_interval)] {
            let (count, expected) = (count.load(Ordering::Relaxed), hour.as_secs() / every.as_secs());
            assert!(u64::from(count).abs_diff(expected) <= 1, "{fails}: {count}, not {expected}");
        }
    }
}

/// Its messages panic where no handler runs: while they are routed, and while the state is read.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Explosive;

#[derive(Debug, Serialize, Deserialize)]
struct Bomb {
    in_route: bool,
}

impl Message for Bomb {
    const TYPE: &'static str = "work.bomb";
}

impl Saga for Explosive {
    const NAME: &'static str = "explosive";
}

impl Handle<Bomb> for Explosive {
    fn correlate(bomb: &Bomb) -> Correlation<'_> {
        if bomb.in_route {
            std::panic::resume_unwind(Box::new("told to panic in correlate"));
        }
        "bomb".into()
    }

    async fn handle(&mut self, _: Bomb, _: &mut Context) -> Result<(), HandlerError> {
        std::panic::resume_unwind(Box::new("told to panic in the handler"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_error_of_its_message_and_of_nothing_else() {
    let (store, hub, log) = (Memory::new(), InProcess::new("panics"), Log::default());
    for in_route in [true, false] {
        hub.sender().send("work", &Bomb { in_route }).await.unwrap();
    }
    send(&hub, &task("a", "calm")).await;
    let builder = endpoint(&store, hub.clone(), &log).saga::<Explosive>(|explosive| explosive.starts::<Bomb>());
    builder.run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["calm"]);
    let mut reasons: Vec<String> = letters(&store).await.into_iter().map(|letter| letter.reason).collect();
    reasons.sort();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("told to panic in correlate"), "{reasons:?}");
    assert!(reasons[1].contains("told to panic in the handler"), "{reasons:?}");
}

/// A state that panics while it is read.
#[derive(Debug, Default, Serialize)]
struct Brittle {
    lines: Vec<String>,
}

impl<'de> Deserialize<'de> for Brittle {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        std::panic::resume_unwind(Box::new("told to panic in the state"))
    }
}

impl Saga for Brittle {
    const NAME: &'static str = "brittle";
}

impl Handle<Task> for Brittle {
    fn correlate(task: &Task) -> Correlation<'_> {
        (&task.key).into()
    }

    async fn handle(&mut self, task: Task, _: &mut Context) -> Result<(), HandlerError> {
        self.lines.push(task.name);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_state_is_read_is_the_error_of_its_message_too() {
    let (store, hub) = (Memory::new(), InProcess::new("brittle"));
    let stop = async {
        send(&hub, &task("a", "first")).await;
        hub.idle().await;
        send(&hub, &task("a", "second")).await;
        send(&hub, &task("b", "third")).await;
        hub.idle().await;
    };
    let builder = Endpoint::builder("work").store(store.clone()).transport(hub.clone()).settings(settings());
    builder.saga::<Brittle>(|brittle| brittle.starts::<Task>()).run_until(stop).await.unwrap();
    let letters = letters(&store).await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("told to panic in the state"), "{}", letters[0].reason);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_makes_no_message_poison() {
    let (memory, hub, log) = (Memory::new(), InProcess::new("outage"), Log::default());
    let budgets = [(Fault::Refused, u32::MAX)].into_iter().collect();
    let world = World::new(Plan { per_mille: 1000, budgets, ..Plan::default() });
    send(&hub, &task("a", "patient")).await;
    let stop = async {
        const LONG: Duration = Duration::from_secs(24 * 3600);
        tokio::time::sleep(LONG).await;
        world.calm();
        hub.idle().await;
    };
    let builder = Endpoint::builder("work")
        .store(Faulty::new(memory.clone(), world.clone()))
        .transport(hub.clone())
        .with(log.clone())
        .settings(settings())
        .saga::<Worker>(|worker| worker.starts::<Task>());
    builder.run_until(stop).await.unwrap();
    assert_eq!(letters(&memory).await, []);
    assert_eq!(done(&memory, "worker", "a"), ["patient"]);
}
