//! Stores and brokers that are away for a while: nobody hammers them, what is well goes on, and all resumes by itself.

use std::{sync::atomic::Ordering, time::Duration};

use hapax::{Context, Correlation, Endpoint, Handle, HandlerError, InProcess, Memory, Message, Saga};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::{
    entities::Entities,
    reluctant::{Reluctant, Settling},
    work::{Cut, Log, WayOut, Worker, done, letters, send, settings, task},
};

/// Long beside every budget of retries.
const OUTAGE: Duration = Duration::from_secs(1800);

pub(crate) fn endpoint(entities: &Entities, hub: &InProcess, log: &Log) -> hapax::endpoint::EndpointBuilder {
    Endpoint::builder("work")
        .entities(entities.clone())
        .dedup(entities.store.clone())
        .dead_letters(entities.store.clone())
        .transport(hub.clone())
        .with(log.clone())
        .settings(settings())
        .saga::<Worker>(|worker| worker.starts::<crate::work::Task>())
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_now_and_then_and_all_resumes_by_itself() {
    const KEYS: u32 = 300;
    let (entities, hub, log) = (Entities::default(), InProcess::new("outage"), Log::default());
    entities.is_away(Some(""));
    for key in 0..KEYS {
        send(&hub, &task(&format!("key-{key}"), &format!("task-{key}"))).await;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint(&entities, &hub, &log).run_until(stopped));
    sleep(OUTAGE).await;
    let loads = entities.loads.load(Ordering::Relaxed);
    // One each when they come, one second apart at most, and whoever's turn it is to try.
    let most = KEYS + 2 * u32::try_from(OUTAGE.as_secs()).unwrap();
    assert!((KEYS..most).contains(&loads), "{loads} loads");
    entities.is_away(None);
    let back = Instant::now();
    hub.idle().await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    for key in 0..KEYS {
        assert_eq!(done(&entities.store, "worker", &format!("key-{key}")), [format!("task-{key}")]);
    }
    // Nobody was to blame.
    assert!(letters(&entities.store).await.is_empty());
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn entities_that_are_away_do_not_stop_the_others() {
    let (entities, hub, log) = (Entities::default(), InProcess::new("outage"), Log::default());
    entities.is_away(Some("bad"));
    for key in 0..20 {
        send(&hub, &task(&format!("bad-{key}"), &format!("bad-task-{key}"))).await;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint(&entities, &hub, &log).run_until(stopped));
    sleep(Duration::from_secs(30)).await; // Nobody can be reached so far.
    // Taken by what was asked for before that was known: what comes now is asked for since.
    send(&hub, &task("bad-20", "bad-task-20")).await;
    sleep(Duration::from_secs(1)).await;
    for key in 0..20 {
        send(&hub, &task("good", &format!("good-{key}"))).await;
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(done(&entities.store, "worker", "good").len(), 20);
    assert!(done(&entities.store, "worker", "bad-1").is_empty());
    entities.is_away(None);
    hub.idle().await;
    assert_eq!(done(&entities.store, "worker", "bad-1"), ["bad-task-1"]);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_gives_nothing_is_asked_twice_a_second_is_told_of_and_all_resumes_by_itself() {
    for processes in [1, 2] {
        broker_away(processes).await;
    }
}

async fn broker_away(processes: u32) {
    let (store, hub, log) = (Memory::new(), InProcess::new(format!("outage-{processes}")), Log::default());
    let broker = Reluctant::new(&hub, Settling::After(Duration::ZERO));
    broker.is_away(true);
    let (mut handles, mut stops, mut running) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..processes {
        let endpoint = crate::work::endpoint(&store, broker.clone(), &log).start().await.unwrap();
        handles.push(endpoint.handle());
        let (stop, stopped) = oneshot::channel::<()>();
        running.push(tokio::spawn(endpoint.run_until(stopped)));
        stops.push(stop);
    }
    send(&hub, &task("a", "one")).await;
    sleep(OUTAGE).await;
    let (asked, twice) = (broker.asked(), 2 * processes * u32::try_from(OUTAGE.as_secs()).unwrap());
    assert!((twice - 2 * processes..=twice + 2 * processes).contains(&asked), "asked {asked} times");
    for handle in &handles {
        let health = handle.health();
        assert!(health.live() && !health.ready(), "{health:?}");
        assert!(health.reasons()[0].starts_with("receiving fails: "), "{health:?}");
        assert!(health.reasons()[0].contains("it is away, as the test wants it"), "{health:?}");
    }
    broker.is_away(false);
    let back = Instant::now();
    hub.idle().await;
    assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
    assert_eq!(done(&store, "worker", "a"), ["one"]);
    // Where there are two, one gets nothing more; a minute without an error says as much.
    assert_eq!(handles.iter().filter(|handle| handle.health().ready()).count(), 1);
    sleep(Duration::from_secs(60)).await;
    for handle in &handles {
        assert!(handle.health().ready(), "{:?}", handle.health());
    }
    for stop in stops {
        stop.send(()).unwrap();
    }
    for running in running {
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_store_that_is_away() {
    let (entities, hub, log) = (Entities::default(), InProcess::new("outage"), Log::default());
    entities.is_away(Some(""));
    for key in 0..20 {
        send(&hub, &task(&format!("key-{key}"), &format!("task-{key}"))).await;
    }
    let begun = Instant::now();
    endpoint(&entities, &hub, &log).run_until(sleep(Duration::from_secs(20))).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(21), "{:?}", begun.elapsed());
    assert_eq!(hub.backlog(&"work".parse().unwrap()), 20);
}

/// Tells some endpoints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tell {
    pub(crate) key: String,
    pub(crate) to: String,
}

impl Message for Tell {
    const TYPE: &'static str = "outage.tell";
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Teller;

impl Saga for Teller {
    const NAME: &'static str = "teller";
}

impl Handle<Tell> for Teller {
    fn correlate(tell: &Tell) -> Correlation<'_> {
        (&tell.key).into()
    }
    async fn handle(&mut self, tell: Tell, cx: &mut Context) -> Result<(), HandlerError> {
        let to = tell.to.clone();
        for to in to.split(' ') {
            cx.send(to, Tell { key: tell.key.clone(), to: to.into() })?;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_takes_nothing_is_offered_little_and_the_others_get_theirs() {
    const KEYS: u32 = 200;
    let (store, hub) = (Memory::new(), InProcess::new("outage"));
    let out = Cut::only_to(&hub, "deaf");
    let taken_by = |endpoint: &str| hub.backlog(&endpoint.parse().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let endpoint = Endpoint::builder("tell")
        .store(store.clone())
        .transport(WayOut(hub.clone(), out.clone()))
        .settings(settings())
        .saga::<Teller>(|teller| teller.starts::<Tell>());
    let running = tokio::spawn(endpoint.run_until(stopped));
    for key in 0..KEYS {
        let to = if key % 2 == 0 { "deaf" } else { "hears" };
        hub.sender().send("tell", &Tell { key: key.to_string(), to: to.into() }).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(taken_by("hears"), 100, "the others do not wait");
    sleep(OUTAGE).await;
    let offered = out.refused();
    // What was under way when it was held back, and one every five seconds.
    assert!((5..100 + 1800 / 5 + 20).contains(&offered), "{offered} offered");
    out.mend();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(taken_by("deaf"), 100);
    assert!(
        hub.backlog(&"tell".parse().unwrap()) == 0
            && store.entities().iter().all(|(_, entity)| entity.outbox.is_empty())
    );
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

/// Each sweep sends again what is left of an entry. Were that all of it, the endpoint that hears would be sent the same for as long as the
/// other is away: longer than it remembers it.
#[tokio::test(start_paused = true)]
async fn what_one_destination_has_taken_is_not_sent_to_it_again_while_another_is_away() {
    const KEYS: usize = 20;
    let (store, hub) = (Memory::new(), InProcess::new("outage"));
    let out = Cut::only_to(&hub, "deaf");
    let taken_by = |endpoint: &str| hub.backlog(&endpoint.parse().unwrap());
    let (mut stops, mut running) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (stop, stopped) = oneshot::channel::<()>();
        let endpoint = Endpoint::builder("tell")
            .store(store.clone())
            .transport(WayOut(hub.clone(), out.clone()))
            .settings(settings())
            .saga::<Teller>(|teller| teller.starts::<Tell>());
        running.push(tokio::spawn(endpoint.run_until(stopped)));
        stops.push(stop);
    }
    for key in 0..KEYS {
        let to = if key % 2 == 0 { "hears deaf" } else { "deaf hears" };
        hub.sender().send("tell", &Tell { key: key.to_string(), to: to.into() }).await.unwrap();
    }
    sleep(OUTAGE).await;
    assert_eq!(taken_by("hears"), KEYS, "each once, half an hour and {} refusals later", out.refused());
    // Of two processes, one each every five seconds, and before it rests what was under way.
    let refused = out.refused();
    assert!((100..2 * (1800 / 5 + 20) + 100).contains(&refused), "the others were tried {refused} times");
    out.mend();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((taken_by("hears"), taken_by("deaf")), (KEYS, KEYS));
    assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
    for stop in stops {
        stop.send(()).unwrap();
    }
    for running in running {
        running.await.unwrap().unwrap();
    }
}
