//! Messages that recur by the calendar.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Message, MessageId, Needs, PartitionedLog,
    endpoint::{Calendar, EndpointBuilder},
    envelope::Outgoing,
    ids::EndpointName,
    ports::{Due, Next, Receipt, Schedule, ScheduleCapabilities, StoreError, Take},
    testing::Harness,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    due: u64,
}

impl Message for Report {
    const TYPE: &'static str = "work.report";
}

fn shop(store: &Memory, calendar: Calendar) -> EndpointBuilder {
    Endpoint::builder("reports")
        .store(store.clone())
        .recurring("report", calendar, |due, cx| cx.publish(Report { due: due.as_millis() }))
}

async fn started(store: &Memory, calendar: Calendar) -> Harness {
    let mut shop = Harness::start(shop(store, calendar)).await.unwrap();
    shop.advance(Duration::ZERO).await.unwrap();
    shop
}

fn dues(shop: &Harness) -> Vec<String> {
    let reports = shop.published::<Report>().unwrap().into_iter();
    reports.map(|report| Timestamp::from_millis(report.due).to_string().replace(".000", "")).collect()
}

/// `to` is later than what the harness begins with, the year 2000.
async fn advance_to(shop: &mut Harness, to: &str) {
    let to = Timestamp::parse(to).unwrap();
    shop.advance(to.since(shop.now())).await.unwrap();
}

#[tokio::test]
async fn each_occurrence_is_told_once_by_the_clocks_of_its_place() {
    let athens = Calendar::cron("0 3 * * *").unwrap().zone("Europe/Athens").unwrap();
    let mut shop = started(&Memory::new(), athens).await;
    assert_eq!(dues(&shop), [""; 0]);
    for _ in 0..9 {
        shop.advance(8 * HOUR).await.unwrap();
        shop.redeliver().await.unwrap();
    }
    assert_eq!(dues(&shop), ["2000-01-01T01:00:00Z", "2000-01-02T01:00:00Z", "2000-01-03T01:00:00Z"]);
}

#[tokio::test]
async fn what_recurs_seldom_is_waited_for_in_steps_and_comes_on_its_day() {
    let mut shop = started(&Memory::new(), Calendar::cron("0 0 1 */2 *").unwrap()).await;
    for _ in 0..130 {
        assert!(shop.waiting().iter().all(|(due, _)| due.since(shop.now()) <= DAY));
        shop.advance(DAY).await.unwrap();
    }
    assert_eq!(dues(&shop), ["2000-03-01T00:00:00Z", "2000-05-01T00:00:00Z"]);
}

#[tokio::test]
async fn clocks_that_are_set_forward_and_back_lose_no_day_and_double_none() {
    let athens = Calendar::cron("30 3 * * *").unwrap().zone("Europe/Athens").unwrap();
    let mut shop = started(&Memory::new(), athens).await;
    // On 26 March 03:00 was followed by 04:00, on 29 October 04:00 by 03:00.
    advance_to(&mut shop, "2000-03-25T12:00:00Z").await;
    let before = dues(&shop).len();
    advance_to(&mut shop, "2000-03-27T12:00:00Z").await;
    let forward = dues(&shop).split_off(before);
    assert_eq!((forward.len(), forward[1].as_str()), (2, "2000-03-27T00:30:00Z"), "{forward:?}");
    advance_to(&mut shop, "2000-10-28T12:00:00Z").await;
    let before = dues(&shop).len();
    advance_to(&mut shop, "2000-10-30T12:00:00Z").await;
    let back = dues(&shop).split_off(before);
    assert_eq!((back.len(), back[1].as_str()), (2, "2000-10-30T01:30:00Z"), "{back:?}");
}

#[tokio::test]
async fn a_process_that_starts_goes_on_and_one_with_another_calendar_changes_it() {
    let store = Memory::new();
    let daily = || Calendar::cron("0 6 * * *").unwrap();
    drop(started(&store, daily()).await); // With all that was under way.
    let mut shop = started(&store, daily()).await;
    shop.advance(DAY).await.unwrap();
    assert_eq!(dues(&shop), ["2000-01-01T06:00:00Z"]);

    let mut other = started(&store, Calendar::cron("0 */6 * * *").unwrap()).await;
    other.advance(DAY).await.unwrap();
    assert_eq!(dues(&other).len(), 4);
    // What waited by the old calendar does not count any more.
    shop.advance(DAY).await.unwrap();
    assert_eq!(dues(&shop).len(), 1);
}

#[tokio::test]
async fn a_process_that_starts_with_a_later_time_does_not_tell_at_the_earlier_one() {
    let store = Memory::new();
    drop(started(&store, Calendar::cron("0 6 * * *").unwrap()).await);
    let mut shop = started(&store, Calendar::cron("0 18 * * *").unwrap()).await;
    shop.advance(DAY).await.unwrap();
    assert_eq!(dues(&shop), ["2000-01-01T18:00:00Z"]);
}

#[test]
fn a_pattern_or_a_place_that_is_none_is_refused() {
    for (pattern, told) in
        [("* * *", "is no cron pattern"), ("61 * * * *", "is no cron pattern"), ("0 0 30 2 *", "never comes")]
    {
        let refused = Calendar::cron(pattern).unwrap_err().to_string();
        assert!(refused.contains(told) && refused.contains(pattern), "{refused}");
    }
    let refused = Calendar::cron("* * * * *").unwrap().zone("Europe/Atlantis").unwrap_err().to_string();
    assert!(refused.contains("`Europe/Atlantis` is no time zone"), "{refused}");
}

/// How often each occurrence was told.
#[derive(Debug, Clone, Default)]
struct Told(Arc<(Mutex<BTreeMap<u64, u32>>, Notify)>);

impl Told {
    fn all(&self) -> BTreeMap<u64, u32> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until so many occurrences were told.
    async fn reaches(self, occurrences: usize) {
        loop {
            let changed = self.0.1.notified();
            if self.all().len() >= occurrences {
                return;
            }
            changed.await;
        }
    }
}

#[derive(Debug)]
struct Listener;

impl Handler<Report> for Listener {
    const NAME: &'static str = "listener";

    fn needs() -> Needs {
        Needs::default().and::<Told>()
    }

    async fn handle(&self, report: Report, cx: &mut Context) -> Result<(), HandlerError> {
        let (told, changed) = &*cx.get::<Told>()?.0;
        *told.lock().unwrap().entry(report.due).or_default() += 1;
        changed.notify_waiters();
        Ok(())
    }
}

#[tokio::test]
async fn several_processes_tell_each_occurrence_once() {
    const OCCURRENCES: usize = 3;
    let (store, hub, told) = (Memory::new(), InProcess::new("instances"), Told::default());
    let each_second = || Calendar::cron("* * * * * *").unwrap();
    let process = || {
        let shop = shop(&store, each_second()).transport(hub.clone()).with(told.clone()).handler(Listener);
        shop.run_until(told.clone().reaches(OCCURRENCES))
    };
    let (one, two, three) = tokio::join!(process(), process(), process());
    one.unwrap();
    two.unwrap();
    three.unwrap();
    let told = told.all();
    assert!(told.values().all(|times| *times == 1), "{told:?}");
    assert!(told.keys().all(|due| due % 1000 == 0), "{told:?}");
    let dues: Vec<u64> = told.into_keys().collect();
    assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == 1000), "{dues:?}");
}

/// A schedule in memory that counts what it is given to keep.
#[derive(Debug, Clone, Default)]
struct Counted {
    kept: Memory,
    put: Arc<AtomicUsize>,
}

#[async_trait]
impl Schedule for Counted {
    fn schedule_capabilities(&self) -> ScheduleCapabilities {
        self.kept.schedule_capabilities()
    }

    async fn put(&self, endpoint: &EndpointName, messages: &[Outgoing]) -> Result<(), StoreError> {
        self.put.fetch_add(messages.len(), Ordering::Relaxed);
        self.kept.put(endpoint, messages).await
    }

    async fn cancel(&self, endpoint: &EndpointName, ids: &[MessageId]) -> Result<usize, StoreError> {
        self.kept.cancel(endpoint, ids).await
    }

    async fn take_due(&self, endpoint: &EndpointName, take: Take) -> Result<Vec<Due>, StoreError> {
        self.kept.take_due(endpoint, take).await
    }

    async fn done(&self, endpoint: &EndpointName, receipts: &[Receipt]) -> Result<(), StoreError> {
        self.kept.done(endpoint, receipts).await
    }

    async fn next(&self, endpoint: &EndpointName) -> Result<Option<Next>, StoreError> {
        self.kept.next(endpoint).await
    }
}

/// Goal: each occurrence is told once where a schedule waits for it, whichever process takes it from there. Method: logs, which hold nothing
/// back. What recurs goes by the wall clock, so time is real; what is missed is made up for, so that none may lack.
#[tokio::test]
async fn two_processes_that_share_a_schedule_tell_each_occurrence_once() {
    const OCCURRENCES: usize = 3;
    let (store, logs) = (Memory::new(), PartitionedLog::new("scheduled-instances"));
    let (schedule, told) = (Counted::default(), Told::default());
    let process = || {
        let each_second = Calendar::cron("* * * * * *").unwrap().each_missed();
        let shop = shop(&store, each_second).transport(logs.clone()).schedule(schedule.clone());
        shop.with(told.clone()).handler(Listener).run_until(told.clone().reaches(OCCURRENCES))
    };
    let (one, two) = tokio::join!(process(), process());
    one.unwrap();
    two.unwrap();
    let told = told.all();
    assert!(told.len() >= OCCURRENCES && told.values().all(|times| *times == 1), "{told:?}");
    let dues: Vec<u64> = told.into_keys().collect();
    assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == 1000), "{dues:?}");
    assert!(schedule.put.load(Ordering::Relaxed) > 0, "none has waited in the schedule");
}

/// While an old program runs beside a new one, it may be given what the new one says, and does not understand it.
#[tokio::test(start_paused = true)]
async fn what_recurs_is_said_again_every_ten_minutes() {
    let (store, hub) = (Memory::new(), InProcess::new("again"));
    let seldom = Calendar::cron("0 0 29 2 *").unwrap();
    let shop = shop(&store, seldom).transport(hub).handler(Listener).with(Told::default());
    shop.run_until(tokio::time::sleep(Duration::from_secs(25 * 60))).await.unwrap();
    let commits: Vec<u64> = store.entities().iter().map(|(_, entity)| entity.commits).collect();
    assert_eq!(commits, [3]);
}
