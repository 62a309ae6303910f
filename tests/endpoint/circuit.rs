//! The circuit breaker before the stores: what closes it and what does not, how long it holds what waits, and whom the sweeper lets try.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    endpoint::{Audit, EndpointBuilder},
    metrics::{Event, Metrics},
};
use tokio::time::{Instant, sleep};

use crate::{
    in_part::{KEYS, Kept, LOOK, OUTAGE, Work, named, seconds},
    parts::Part,
    work::{Task, send, task},
};

const SECOND: Duration = Duration::from_secs(1);

/// What is told of deliveries and of sweeps.
#[derive(Debug, Clone, Default)]
struct Told {
    most_attempts: Arc<AtomicU32>,
    sweeps: Arc<AtomicU32>,
    swept: Arc<AtomicU32>,
    sweeps_failed: Arc<AtomicU32>,
}

impl Metrics for Told {
    fn observe(&self, event: Event<'_>) {
        match event {
            Event::Ended(_, message, _) => drop(self.most_attempts.fetch_max(message.attempts, Ordering::Relaxed)),
            Event::Waiting(..) => drop(self.sweeps.fetch_add(1, Ordering::Relaxed)),
            Event::Swept(..) => drop(self.swept.fetch_add(1, Ordering::Relaxed)),
            Event::SweepFailed(..) => drop(self.sweeps_failed.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

/// So many messages are in their handlers when writes are away: all of them wait from the same moment, and nothing more is received.
async fn all_are_held(messages: u32, with: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Work {
    let work = Work::begin_with(Kept::Together, with).await;
    for name in named(messages) {
        send(&work.hub, &Task { millis: 5000, tells: true, ..task(&name, &name) }).await;
    }
    sleep(SECOND).await;
    assert_eq!(work.handle.in_flight(), messages as usize);
    work.handle.set_in_flight_max(0);
    work.parts.is_away(Some(Part::Writes));
    sleep(4 * SECOND).await;
    work
}

async fn nothing_is_held(work: &Work) {
    let begun = Instant::now();
    while work.handle.in_flight() > 0 {
        assert!(begun.elapsed() < OUTAGE, "{} are held", work.handle.in_flight());
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_waited_for_its_turn_for_a_minute_goes_back_to_its_broker_uncounted() {
    const HELD: u32 = 60;
    let told = Told::default();
    let work = all_are_held(HELD, |work| work.metrics(told.clone())).await;
    sleep(58 * SECOND).await;
    assert_eq!(work.handle.in_flight(), HELD as usize, "before the minute is over");
    sleep(4 * SECOND).await;
    // Seven try within the first seconds, then one every five; each waits for its next turn.
    let held = work.handle.in_flight();
    assert!((10..=25).contains(&held), "{held} are held still");
    assert_eq!(work.hub.backlog(&"work".parse().unwrap()), HELD as usize);
    work.parts.is_away(None);
    work.handle.set_in_flight_max(1000);
    work.is_over(named(HELD)).await;
    assert_eq!(told.most_attempts.load(Ordering::Relaxed), 1, "none was counted");
    work.stop().await;
}

/// Although who has waited longest goes back to its broker in the middle of its turn.
#[tokio::test(start_paused = true)]
async fn those_who_wait_try_every_five_seconds_however_long_an_outage_lasts() {
    let work = Work::begin(Kept::Together).await;
    work.parts.is_away(Some(Part::Whole));
    work.send(named(KEYS)).await;
    work.outlast("the stores cannot be reached").await;
    work.handle.set_in_flight_max(0); // Nobody new comes, who would try at once.
    let loads = work.parts.loads();
    sleep(50 * SECOND).await;
    let tried = work.parts.loads() - loads;
    assert!((8..=14).contains(&tried), "{tried} have tried in 50 s");
    work.handle.set_in_flight_max(1000);
    work.parts.is_away(None);
    work.is_over(named(KEYS)).await;
    work.stop().await;
}

/// Where another process has taken all that is left, nobody here tries any more.
#[tokio::test(start_paused = true)]
async fn a_process_that_gets_nothing_more_does_not_stay_unready_for_ever() {
    let work = all_are_held(5, |work| work).await;
    sleep(SECOND).await;
    assert!(!work.handle.health().ready());
    nothing_is_held(&work).await;
    work.parts.is_away(None);
    sleep(80 * SECOND).await;
    let health = work.handle.health();
    assert_eq!(health.reasons(), ["the entity store takes no writes"], "who was given back may come again");
    sleep(40 * SECOND).await;
    assert!(work.handle.health().ready(), "{:?}", work.handle.health());
    work.handle.set_in_flight_max(1000);
    work.is_over(named(5)).await;
    work.stop().await;
}

/// It is in its entity before the disk is full, and its mark is taken elsewhere: one at each sweep.
#[tokio::test(start_paused = true)]
async fn what_is_marked_says_nothing_of_writes() {
    let told = Told::default();
    let work = Work::begin_with(Kept::Apart, |work| work.metrics(told.clone())).await;
    let left = || (0..KEYS).map(|key| format!("left-{key}"));
    work.parts.is_away(Some(Part::Insert));
    work.send(left()).await;
    sleep(SECOND).await;
    nothing_is_held(&work).await;
    // Before the next sweep it is known that no writes are taken, so that it does not mark all.
    let sweeps = told.sweeps.load(Ordering::Relaxed);
    while told.sweeps.load(Ordering::Relaxed) == sweeps {
        sleep(SECOND / 10).await;
    }
    work.parts.is_away(Some(Part::Writes));
    let before = work.parts.loads();
    work.send(named(KEYS)).await;
    work.outlast("the entity store takes no writes").await;
    let (loads, swept) = (work.parts.loads() - before, told.swept.load(Ordering::Relaxed));
    assert!(swept > 50, "{swept} were marked");
    // One each when they come, one a second at most, and whoever's turn it is; the copies; and some for each sweep.
    let most = KEYS + 2 * seconds(OUTAGE) + 10 * seconds(OUTAGE) / seconds(LOOK);
    assert!((KEYS..most).contains(&loads), "{loads} loads");
    work.parts.is_away(None);
    work.is_over(left().chain(named(KEYS))).await;
    work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_has_read_before_an_outage_says_nothing_of_reading() {
    let work = Work::begin(Kept::Together).await;
    send(&work.hub, &Task { millis: 30_000, tells: true, ..task("slow", "slow") }).await;
    sleep(SECOND).await;
    work.parts.is_away(Some(Part::Whole));
    work.send(named(KEYS)).await;
    sleep(25 * SECOND).await;
    let before = work.parts.refused();
    sleep(10 * SECOND).await; // It is to be saved meanwhile, in vain.
    let refused = work.parts.refused() - before;
    // One a second that is received, whoever's turn it is, and the one that was slow.
    assert!((10..30).contains(&refused), "{refused} refused");
    let health = work.handle.health();
    assert!(health.reasons().iter().any(|said| said.contains("cannot be reached")), "{health:?}");
    work.parts.is_away(None);
    work.is_over(named(KEYS).chain(["slow".to_owned()])).await;
    work.stop().await;
}

/// The first page of what waits are entities that alone are away, as if each sweep found those that hang.
#[tokio::test(start_paused = true)]
async fn whoever_waits_may_be_the_one_that_the_sweeper_lets_try_and_the_others_have_not_failed() {
    const PAGE: u32 = 256;
    let told = Told::default();
    let audit = Audit { interval: OUTAGE, ..Audit::default() };
    let work = Work::begin_with(Kept::Together, |work| work.metrics(told.clone()).audit(audit)).await;
    let good = || (0..PAGE).map(|key| format!("good-{key}"));
    let bad = || (0..PAGE).map(|key| format!("bad-{key}"));
    let waiting = |begin: &str| {
        let entities = work.parts.store.entities();
        let waits =
            entities.iter().filter(|(key, entity)| key.key().as_str().starts_with(begin) && !entity.outbox.is_empty());
        waits.count()
    };
    work.out.fills(&work.parts);
    work.send(bad().chain(good())).await;
    sleep(SECOND).await;
    nothing_is_held(&work).await;
    assert_eq!((waiting("bad-"), waiting("good-")), (PAGE as usize, PAGE as usize));

    let report = work.handle.audit_once().await.unwrap();
    assert_eq!(report.violations(), 0, "{report:#?}");
    let before = told.sweeps_failed.load(Ordering::Relaxed);
    sleep(20 * LOOK).await;
    let failed = told.sweeps_failed.load(Ordering::Relaxed) - before;
    assert!((18..=22).contains(&failed), "{failed}: one at each sweep");
    // Nor have the sweeps passed them by for no reason.
    let report = work.handle.audit_once().await.unwrap();
    assert_eq!(report.violations(), 0, "{report:#?}");

    assert!(!work.handle.health().ready());
    work.parts.takes_no_writes_of("bad-");
    sleep(50 * LOOK).await; // As if a coin fell the same way fifty times.
    // Where more than two fail and then one is finished, it opens and closes by turns.
    assert!(waiting("bad-") == PAGE as usize && waiting("good-") < PAGE as usize, "{} wait", waiting("good-"));
    work.parts.is_away(None);
    work.is_over(bad().chain(good())).await;
    work.stop().await;
}

/// So many are in their entities, sent, and not marked, and nobody gives them again: only the sweeper has them.
async fn are_left_to_the_sweeper(work: &Work, told: &Told, left: u32) {
    work.parts.is_away(Some(Part::Insert));
    work.send((0..left).map(|key| format!("left-{key}"))).await;
    sleep(SECOND).await;
    nothing_is_held(work).await;
    let sweeps = told.sweeps.load(Ordering::Relaxed);
    while told.sweeps.load(Ordering::Relaxed) == sweeps {
        sleep(SECOND / 10).await;
    }
}

/// A quota for each of them, or a key that is too hot: nothing else comes that would show that the store takes writes.
#[tokio::test(start_paused = true)]
async fn entities_that_alone_take_no_writes_do_not_keep_the_sweeper_from_the_others() {
    const LEFT: u32 = 600;
    let told = Told::default();
    let work = Work::begin_with(Kept::Apart, |work| work.metrics(told.clone())).await;
    are_left_to_the_sweeper(&work, &told, LEFT).await;
    work.parts.takes_no_writes_of("bad");
    let bad = || (0..5).map(|key| format!("bad-{key}"));
    work.send(bad()).await;
    sleep(8 * SECOND).await; // One a second comes.
    assert!(work.handle.health().reasons().contains(&"the entity store takes no writes".to_owned()));
    sleep(3 * LOOK).await;
    assert_eq!(told.swept.load(Ordering::Relaxed), LEFT, "at the first sweep that has found one it could finish");
    work.parts.is_away(None);
    work.is_over((0..LEFT).map(|key| format!("left-{key}")).chain(bad())).await;
    work.stop().await;
}

/// Where no message comes, the sweeper is the only one who asks: it does not forget that it had no answer.
#[tokio::test(start_paused = true)]
async fn a_store_that_only_the_sweeper_asks_is_not_asked_for_all_that_waits_at_each_sweep() {
    const LEFT: u32 = 1000;
    let told = Told::default();
    let work = Work::begin_with(Kept::Apart, |work| work.metrics(told.clone())).await;
    are_left_to_the_sweeper(&work, &told, LEFT).await;
    work.parts.is_away(Some(Part::Contains));
    sleep(30 * SECOND).await;
    for minute in 0..10 {
        let before = work.parts.loads();
        sleep(60 * SECOND).await;
        let loads = work.parts.loads() - before;
        assert!((3..20).contains(&loads), "{loads} loads in minute {minute}");
        assert!(work.handle.health().reasons().contains(&"the stores cannot be reached".to_owned()), "{minute}");
    }
    work.parts.is_away(None);
    work.is_over((0..LEFT).map(|key| format!("left-{key}"))).await;
    work.stop().await;
}
