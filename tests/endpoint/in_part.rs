//! Stores that are away in part. They answer who only reads an entity, so that a look at loads alone would find them well: they take no writes, or
//! the dedup store alone is away, or the place for letters. Nobody hammers them, nothing is sent again and again, and all resumes by itself.

use std::time::Duration;

use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Message,
    endpoint::{EndpointBuilder, EndpointHandle},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    parts::{Counted, Part, Parts},
    work::{Listener, Log, Task, WayOut, Worker, done, letters, send, settings, task},
};

/// Long beside every budget of retries.
pub(crate) const OUTAGE: Duration = Duration::from_secs(1800);
/// How often it is looked whether the endpoint says how it is.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
pub(crate) const KEYS: u32 = 300;
/// Handled before anything is away.
const BEFORE: &str = "before";

/// Where the endpoint keeps what.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// Entities and dedup entries in one store.
    Together,
    /// In two, of which each may be away alone.
    Apart,
}

/// An endpoint on such stores, and another one, which is well and hears what it publishes.
pub(crate) struct Work {
    pub(crate) parts: Parts,
    pub(crate) hub: InProcess,
    pub(crate) out: Counted,
    log: Log,
    pub(crate) handle: EndpointHandle,
    stops: Vec<oneshot::Sender<()>>,
    running: Vec<JoinHandle<Result<(), hapax::endpoint::Error>>>,
}

impl Work {
    pub(crate) async fn begin(kept: Kept) -> Self {
        Self::begin_with(kept, |work| work).await
    }

    pub(crate) async fn begin_with(kept: Kept, with: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        let (parts, hub, log) = (Parts::default(), InProcess::new("in-part"), Log::default());
        let out = Counted::new(&hub);
        let work = Endpoint::builder("work").transport(WayOut(hub.clone(), out.clone()));
        let work = match kept {
            Kept::Together => work.store(parts.clone()),
            Kept::Apart => work.entities(parts.clone()).dedup(parts.clone()).dead_letters(parts.clone()),
        };
        let work = with(work.saga::<Worker>(|worker| worker.starts::<Task>()).handler(Strict));
        let hears = Endpoint::builder("hears").store(Memory::new()).transport(hub.clone()).handler(Listener);
        let start = |endpoint: EndpointBuilder| endpoint.with(log.clone()).settings(settings()).start();
        let (hears, work) = (start(hears).await.unwrap(), start(work).await.unwrap());
        let handle = work.handle();
        let (mut stops, mut running) = (Vec::new(), Vec::new());
        for endpoint in [hears, work] {
            let (stop, stopped) = oneshot::channel::<()>();
            running.push(tokio::spawn(endpoint.run_until(stopped)));
            stops.push(stop);
        }
        let work = Self { parts, hub, out, log, handle, stops, running };
        send(&work.hub, &Task { tells: true, ..task(BEFORE, BEFORE) }).await;
        work.hub.idle().await;
        assert!(work.handle.health().ready());
        sleep(LOOK).await; // Long ago, from now on.
        work
    }

    pub(crate) async fn send(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            send(&self.hub, &Task { tells: true, ..task(&name, &name) }).await;
        }
    }

    /// The outage is on. Copies of what is over come all the time, and are recognised: that they could be read closes nothing.
    pub(crate) async fn outlast(&self, reason: &str) {
        let begun = Instant::now();
        while begun.elapsed() < OUTAGE {
            send(&self.hub, &Task { tells: true, ..task(BEFORE, BEFORE) }).await;
            sleep(LOOK).await;
            let health = self.handle.health();
            assert!(health.live() && !health.ready(), "after {:?}: {health:?}", begun.elapsed());
            assert!(health.reasons().iter().any(|said| said.contains(reason)), "{health:?}");
        }
    }

    /// All that was sent has had its effect, once, and is heard of, once.
    pub(crate) async fn is_over(&self, names: impl IntoIterator<Item = String>) {
        self.hub.idle().await;
        sleep(Duration::from_secs(30)).await; // The sweeper looks every ten seconds: one entity tries, then all go.
        self.hub.idle().await;
        for name in names {
            assert_eq!(done(&self.parts.store, "worker", &name), [name.as_str()]);
            assert_eq!(self.log.runs("listener", &name), 1, "{name}");
        }
        assert!(self.parts.store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
        assert!(letters(&self.parts.store).await.is_empty(), "nobody was to blame");
        assert!(self.handle.health().ready(), "{:?}", self.handle.health());
    }

    pub(crate) async fn stop(self) {
        self.stops.into_iter().for_each(|stop| stop.send(()).unwrap());
        for running in self.running {
            running.await.unwrap().unwrap();
        }
    }
}

pub(crate) fn named(keys: u32) -> impl Iterator<Item = String> {
    (0..keys).map(|key| format!("task-{key}"))
}

/// How often something is tried to be marked at most: each once when it comes, then whoever's turn it is, and one entity each time the sweeper looks.
pub(crate) fn most_marks() -> u32 {
    KEYS + seconds(OUTAGE) / 5 + seconds(OUTAGE) / 10 + 50
}

pub(crate) fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dedup_store_that_cannot_be_read_is_asked_now_and_then_and_all_resumes_by_itself() {
    let work = Work::begin(Kept::Apart).await;
    work.parts.is_away(Some(Part::Contains));
    work.send(named(KEYS)).await;
    work.outlast("the stores cannot be reached").await;
    let refused = work.parts.refused();
    // One each when they come, one a second at most, and the copies; and whoever's turn it is to try.
    let most = 2 * KEYS + 2 * seconds(OUTAGE);
    assert!((KEYS..most).contains(&refused), "{refused} refused");
    work.parts.is_away(None);
    let back = Instant::now();
    work.hub.idle().await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    work.is_over(named(KEYS)).await;
    work.stop().await;
}

/// All of it is handled and sent, and none of it can be marked.
#[tokio::test(start_paused = true)]
async fn while_a_dedup_store_takes_no_entries_nothing_is_sent_again_and_again() {
    let work = Work::begin(Kept::Apart).await;
    work.parts.is_away(Some(Part::Insert));
    let before = work.out.sent();
    work.send(named(KEYS)).await;
    work.outlast("the dedup store takes no entries").await;
    let (sent, refused) = (work.out.sent() - before, work.parts.refused());
    assert_eq!(sent, KEYS, "once each: the entity store is well, and keeps what was sent");
    assert!((KEYS..most_marks()).contains(&refused), "{refused} refused");
    work.parts.is_away(None);
    work.is_over(named(KEYS)).await;
    for name in named(KEYS) {
        assert_eq!(work.log.runs("worker", &name), 1, "it was saved");
    }
    work.stop().await;
}

/// In one database for both nothing can be kept of what was sent: each further try sends it again.
#[tokio::test(start_paused = true)]
async fn what_is_saved_when_the_disk_fills_is_sent_again_now_and_then_and_marked_by_itself() {
    let work = Work::begin(Kept::Together).await;
    work.out.fills(&work.parts);
    let before = work.out.sent();
    work.send(named(KEYS)).await;
    work.outlast("the dedup store takes no entries").await;
    let (sent, refused) = (work.out.sent() - before, work.parts.refused());
    assert!((KEYS..most_marks()).contains(&sent), "{sent} sent");
    // Each of which is tried to be kept, too.
    assert!((KEYS..2 * most_marks()).contains(&refused), "{refused} refused");
    work.parts.is_away(None);
    work.is_over(named(KEYS)).await;
    work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_dedup_store_takes_no_entries_is_handled_one_a_second() {
    let work = Work::begin(Kept::Apart).await;
    work.parts.is_away(Some(Part::Insert));
    work.send(named(5)).await;
    sleep(LOOK).await;
    assert!(!work.handle.health().ready());
    // Taken by what was asked for before that was known: what comes now is asked for since.
    work.send(["asked-for".to_owned()]).await;
    sleep(Duration::from_secs(1)).await;
    let late = || (0..60).map(|key| format!("late-{key}"));
    work.send(late()).await;
    sleep(Duration::from_secs(30)).await;
    let handled = late().filter(|name| work.log.runs("worker", name) == 1).count();
    assert!((28..=32).contains(&handled), "{handled} in 30 s");
    work.parts.is_away(None);
    work.is_over(named(5).chain(late())).await;
    work.stop().await;
}

/// A full disk, a server that is read only, writes that are throttled; and writes that are never confirmed.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_no_writes_is_asked_now_and_then_and_all_resumes_by_itself() {
    for (kept, part) in [
        (Kept::Together, Part::Writes),
        (Kept::Apart, Part::Writes),
        (Kept::Together, Part::WritesUntold),
        (Kept::Apart, Part::WritesUntold),
    ] {
        let work = Work::begin(kept).await;
        work.parts.is_away(Some(part));
        let before = work.parts.loads();
        work.send(named(KEYS)).await;
        work.outlast("the entity store takes no writes").await;
        let (loads, refused, sent) = (work.parts.loads() - before, work.parts.refused(), work.out.sent());
        // As for one that cannot be read; and the copies.
        let copies = seconds(OUTAGE) / seconds(LOOK);
        let most = KEYS + 2 * seconds(OUTAGE) + copies;
        assert!((KEYS..most).contains(&loads), "{kept:?}, {part:?}: {loads} loads");
        assert!((KEYS..most).contains(&refused), "{kept:?}, {part:?}: {refused} refused");
        assert_eq!(sent, 1, "{kept:?}, {part:?}: what is not saved is not sent");
        work.parts.is_away(None);
        let back = Instant::now();
        work.hub.idle().await;
        assert!(back.elapsed() < Duration::from_secs(10), "{kept:?}, {part:?}: {:?}", back.elapsed());
        work.is_over(named(KEYS)).await;
        work.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn entities_that_alone_take_no_writes_do_not_stop_the_others() {
    let work = Work::begin(Kept::Together).await;
    work.parts.takes_no_writes_of("bad");
    let bad = || (0..20).map(|key| format!("bad-{key}"));
    work.send(bad()).await;
    for number in 0..100 {
        let good = format!("good-{number}");
        send(&work.hub, &task("good", &good)).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(work.log.runs("worker", &good), 1, "it has not waited");
        assert!(work.handle.health().ready(), "{:?}", work.handle.health());
    }
    assert_eq!(done(&work.parts.store, "worker", "good").len(), 100);
    work.parts.is_away(None);
    work.is_over(bad()).await;
    work.stop().await;
}

#[derive(Debug, Serialize, Deserialize)]
struct Hopeless;

impl Message for Hopeless {
    const TYPE: &'static str = "in-part.hopeless";
}

/// Refuses whatever it is given.
#[derive(Debug, Clone)]
struct Strict;

impl Handler<Hopeless> for Strict {
    const NAME: &'static str = "strict";

    async fn handle(&self, _: Hopeless, _: &mut Context) -> Result<(), HandlerError> {
        Err(HandlerError::permanent("told to refuse"))
    }
}

/// One that keeps failing, one that is refused by its handler, and one that nobody can take: each comes back uncounted, until there is room for its
/// letter. Were they counted, they would become poison, of which the process may die.
#[tokio::test(start_paused = true)]
async fn what_has_to_be_set_aside_comes_back_uncounted_while_the_place_for_letters_is_away() {
    let work = Work::begin(Kept::Apart).await;
    work.parts.is_away(Some(Part::Letters));
    send(&work.hub, &Task { fails: u32::MAX, ..task("fails", "fails") }).await;
    send(&work.hub, &task("", "nameless")).await;
    work.hub.sender().send_as("hopeless".parse().unwrap(), "work", &Hopeless).await.unwrap();
    let begun = Instant::now();
    let mut good = 0;
    while begun.elapsed() < OUTAGE {
        send(&work.hub, &task("good", &format!("good-{good}"))).await;
        good += 1;
        sleep(LOOK).await;
        assert_eq!(done(&work.parts.store, "worker", "good").len(), good, "others do not wait");
        // Two entities that alone cannot go on, and one message that no pass takes.
        assert!(work.handle.health().ready(), "{:?}", work.handle.health());
    }
    let (refused, runs) = (work.parts.refused(), work.log.runs("worker", "fails"));
    // Every sixteen seconds, every five, and by the budget of what is away.
    assert!((100..2 * seconds(OUTAGE)).contains(&refused), "{refused} refused");
    assert!(runs < 3 * seconds(OUTAGE) / 15, "{runs} runs");
    assert!(letters(&work.parts.store).await.is_empty());
    work.parts.is_away(None);
    work.hub.idle().await;
    let mut told: Vec<_> = letters(&work.parts.store)
        .await
        .into_iter()
        .map(|letter| {
            let reason = letter.reason.lines().next().unwrap().to_owned();
            (letter.envelope.message_id.to_string(), letter.attempts, reason)
        })
        .collect();
    told.sort();
    let told: Vec<_> =
        told.iter().map(|(name, attempts, reason)| (name.as_str(), *attempts, reason.as_str())).collect();
    let nameless = "work.task does not name its worker: key is empty";
    assert_eq!(told, [("fails", 5, "told to fail"), ("hopeless", 1, "told to refuse"), ("nameless", 1, nameless)]);
    work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_for_letters_that_is_away_is_asked_now_and_then_where_all_has_to_be_set_aside() {
    let work = Work::begin(Kept::Apart).await;
    work.parts.is_away(Some(Part::Letters));
    for _ in 0..KEYS {
        work.hub.sender().send("work", &Hopeless).await.unwrap();
    }
    sleep(OUTAGE).await;
    let (health, refused) = (work.handle.health(), work.parts.refused());
    assert!(health.live() && !health.ready(), "{health:?}");
    assert_eq!(health.reasons(), ["the stores cannot be reached"]);
    let most = 2 * KEYS + 2 * seconds(OUTAGE);
    assert!((KEYS..most).contains(&refused), "{refused} refused");
    work.parts.is_away(None);
    let back = Instant::now();
    work.hub.idle().await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    let letters = letters(&work.parts.store).await;
    assert_eq!(letters.len(), KEYS as usize);
    assert!(letters.iter().all(|letter| letter.attempts == 1), "none was counted");
    work.stop().await;
}
