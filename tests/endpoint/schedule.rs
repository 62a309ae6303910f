//! What is due later than the transport holds messages back: it waits in a schedule, comes at its time and not before, and has
//! its effect once. Time is paused, and that of the schedule in memory with it.

#[path = "alarms.rs"]
mod alarms;

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use alarms::*;
use hapax::{
    Endpoint, Enqueued, Memory,
    endpoint::Settings,
    entity::Expected,
    envelope::{Destination, Envelope, Outgoing},
    ids::EndpointName,
    metrics::{Event, Metrics},
    ports::{Delays, EntityStore, Schedule},
    testing::Harness,
    time::Timestamp,
};
use tokio::time::sleep;

use crate::work::{letters, settings};

#[tokio::test(start_paused = true)]
async fn what_is_due_comes_at_its_time_and_not_early_on_a_transport_that_holds_nothing_back() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await;
    // Between two looks into a schedule that is empty: an earlier due time than the next look must be met all the same.
    let begin = Duration::from_secs(65);
    sleep(begin).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    send(&short, &ask("b", Duration::from_secs(3), 30 * HOUR)).await;
    sleep(40 * HOUR).await;
    let expected =
        [("b rings", Duration::from_secs(3)), ("a rings", HOUR), ("a notes", 2 * HOUR), ("b notes", 30 * HOUR)];
    heard.assert(&expected.map(|(what, due)| (what, begin + due)), LATE);
    assert_eq!(letters(&store).await, []);
    assert_eq!(store.next(&EndpointName::parse("work").unwrap()).await.unwrap(), None, "all are done");
}

/// Goal: what the transport holds back itself does not go through the schedule, and nothing is ever given to it that it does not
/// hold. Method: it refuses for good what is due later.
#[tokio::test(start_paused = true)]
async fn a_transport_with_a_limit_is_given_what_it_holds_and_nothing_beyond() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::UpTo(15 * MINUTE)));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone())).await;
    send(&short, &ask("a", 14 * MINUTE, 16 * MINUTE)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((short.sent().len(), schedule.put.load(Ordering::Relaxed)), (1, 1));
    sleep(8 * MINUTE).await;
    assert_eq!(short.sent().len(), 1);
    // Half of what the transport holds back is left to it.
    sleep(MINUTE).await;
    assert_eq!(short.sent().len(), 2);
    send(&short, &Quiet { key: "a".into() }).await;
    sleep(2 * HOUR).await;
    heard.assert(&[("a notes", 16 * MINUTE)], Duration::from_secs(1));
    assert_eq!(letters(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_timeout_is_not_handled_when_the_schedule_gives_it() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    send(&short, &Quiet { key: "a".into() }).await;
    sleep(3 * HOUR).await;
    assert_eq!(short.sent().len(), 2, "it was sent, and then");
    heard.assert(&[("a notes", 2 * HOUR)], LATE);
}

/// Goal: cancelling is exact whoever sends the timeout, and however often. Method: two processes, of which one fails to tell that it has sent
/// what was due.
#[tokio::test(start_paused = true)]
async fn a_cancelled_timeout_is_not_handled_by_either_of_two_processes_however_often_it_comes() {
    const KEYS: usize = 50;
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    schedule.dones.store(3, Ordering::Relaxed);
    let process = || alarms(&store, &heard).transport(short.clone());
    let _running =
        (running(process().schedule(schedule.clone())).await, running(process().schedule(store.clone())).await);
    for key in 0..KEYS {
        send(&short, &ask(&format!("key-{key}"), HOUR, 2 * HOUR)).await;
    }
    sleep(MINUTE).await;
    for key in (0..KEYS).step_by(2) {
        send(&short, &Quiet { key: format!("key-{key}") }).await;
    }
    sleep(3 * HOUR).await;
    let sent = short.sent().len();
    assert!(sent > 2 * KEYS, "{sent} were sent, some of them again");
    let heard = heard.all();
    let of = |key: usize, what: &str| heard.iter().filter(|(heard, _)| *heard == format!("key-{key} {what}")).count();
    for key in 0..KEYS {
        assert_eq!((of(key, "rings"), of(key, "notes")), (key % 2, 1), "key-{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_send_what_is_due_once() {
    const KEYS: usize = 600;
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let process = || alarms(&store, &heard).transport(short.clone()).schedule(store.clone());
    let _running = (running(process()).await, running(process()).await);
    for key in 0..KEYS {
        send(&short, &ask(&format!("key-{key}"), HOUR, 2 * HOUR)).await;
    }
    sleep(3 * HOUR).await;
    assert_eq!(heard.all().len(), 2 * KEYS);
    assert_eq!(short.sent().len(), 2 * KEYS, "each was sent once");
}

/// Goal: nobody is harmed by a crash between sending and `done`. Method: `done` fails for the first process, which sends again.
#[tokio::test(start_paused = true)]
async fn what_was_sent_and_not_told_as_done_is_sent_again_under_its_id_and_handled_once() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    schedule.dones.store(1, Ordering::Relaxed);
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule)).await;
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(2 * HOUR).await;
    heard.assert(&[("a rings", HOUR)], LATE);
    let sent = short.sent();
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_process_had_put_is_sent_by_another_after_it_has_died() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let process = || alarms(&store, &heard).transport(short.clone()).schedule(store.clone());
    let (_stop, first) = running(process()).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    first.abort();
    sleep(3 * HOUR).await;
    assert_eq!(heard.all(), []);
    let back = heard.0.elapsed();
    let _running = running(process()).await;
    sleep(MINUTE).await;
    heard.assert(&[("a rings", back), ("a notes", back)], LATE);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_away_leaves_what_it_was_to_keep_with_the_sweeper() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    schedule.puts.store(30, Ordering::Relaxed);
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone());
    let _running = running(builder).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(Duration::from_secs(30)).await;
    assert!(store.entities().iter().any(|(_, entity)| !entity.outbox.is_empty()), "its entry waits");
    assert_eq!(schedule.put.load(Ordering::Relaxed), 0);
    sleep(3 * HOUR).await;
    // The wall clock, by which it is due, has stood still until the schedule had it.
    heard.assert(&[("a rings", HOUR), ("a notes", 2 * HOUR)], 5 * MINUTE);
    assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
    assert_eq!(letters(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_away_when_a_message_is_due_has_it_when_it_is_back() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let endpoint = alarms(&store, &heard).transport(short.clone()).schedule(store.clone()).start().await.unwrap();
    let handle = endpoint.handle();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    short.is_away(u32::MAX);
    sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(heard.all(), []);
    let health = handle.health();
    assert!(health.ready() && health.warnings()[0].contains("has been due for"), "{health:?}");
    short.is_away(0);
    sleep(2 * MINUTE).await;
    heard.assert(&[("a rings", HOUR)], 9 * MINUTE);
    assert!(handle.health().ready() && handle.health().warnings().is_empty(), "{:?}", handle.health());
    running.abort();
}

/// Goal: what waits for one destination holds up no other, however much it is. Method: thousands that are due before the others.
#[tokio::test(start_paused = true)]
async fn a_destination_that_is_away_holds_up_no_other_and_is_tried_now_and_then() {
    const WAITING: u64 = 8_000;
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let work = EndpointName::parse("work").unwrap();
    let now = Timestamp::now().as_millis();
    let due = |to: &str, back: u64| {
        let envelope = Envelope { due: Some(Timestamp::from_millis(now - back)), ..note() };
        Outgoing { destination: Destination::Endpoint(to.parse().unwrap()), envelope: Arc::new(envelope) }
    };
    let waiting: Vec<Outgoing> = (0..WAITING).map(|number| due(GONE, 60_000 + number)).collect();
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await;
    send(&short, &ask("a", 20 * HOUR, 20 * HOUR)).await;
    sleep(Duration::from_secs(1)).await;
    store.put(&work, &waiting).await.unwrap();
    store.put(&work, &[due("work", 1_000), due("work", 900)]).await.unwrap();
    // Nobody is told of a put of somebody else, and looks within ten seconds.
    sleep(Duration::from_secs(14)).await;
    heard.assert(&[("a notes", Duration::ZERO), ("a notes", Duration::ZERO)], Duration::from_secs(15));
    assert!((1..=16).contains(&short.gone.load(Ordering::Relaxed)), "{short:?}");
    // Again and again, while others come and go.
    send(&short, &ask("b", Duration::from_secs(300), HOUR)).await;
    sleep(10 * MINUTE).await;
    let heard = heard.all();
    assert!(heard.len() == 3 && heard[2].1 <= Duration::from_secs(320), "{heard:?}");
    let tried = short.gone.load(Ordering::Relaxed);
    assert!((10..=400).contains(&tried), "tried {tried} times in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_cannot_be_looked_into_is_told_of_and_looked_into_again() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone());
    let endpoint = builder.start().await.unwrap();
    let handle = endpoint.handle();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    schedule.takes.store(600, Ordering::Relaxed);
    sleep(5 * MINUTE).await;
    let health = handle.health();
    assert!(health.ready() && health.warnings()[0].contains("the schedule cannot be reached"), "{health:?}");
    let left = schedule.takes.load(Ordering::Relaxed);
    assert!((280..=320).contains(&left), "asked once a second: {left} of 600 are left");
    sleep(2 * HOUR).await;
    heard.assert(&[("a rings", HOUR)], LATE);
    running.abort();
}

#[derive(Debug, Default)]
struct Overdue(Mutex<Vec<Option<Duration>>>);

impl Metrics for Overdue {
    fn observe(&self, event: Event<'_>) {
        if let Event::Overdue(_, overdue) = event {
            self.0.lock().unwrap().push(overdue);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn for_how_long_the_earliest_message_has_been_due_is_told_at_each_look() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let told = Arc::new(Overdue::default());
    let builder = alarms(&store, &heard).transport(short.clone()).schedule(store.clone()).metrics(told.clone());
    let _running = running(builder).await;
    send(&short, &ask("a", HOUR, 9 * HOUR)).await;
    sleep(MINUTE).await;
    assert!(told.0.lock().unwrap().iter().all(Option::is_none));
    short.is_away(u32::MAX);
    sleep(HOUR + 9 * MINUTE).await;
    let last = told.0.lock().unwrap().last().copied().flatten().unwrap();
    assert!((9 * MINUTE..11 * MINUTE).contains(&last), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_schedule_what_is_due_too_late_is_refused_before_it_is_saved_with_the_remedy() {
    for (delays, told) in [
        (Delays::Never, "in-process does not hold messages back: add .schedule(..) to endpoint work"),
        (Delays::UpTo(15 * MINUTE), "holds messages back for 900s at most: add .schedule(..) to endpoint work"),
    ] {
        let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(delays));
        let _running = running(alarms(&store, &heard).transport(short.clone())).await;
        send(&short, &ask("a", 16 * MINUTE, 17 * MINUTE)).await;
        sleep(MINUTE).await;
        let letters = letters(&store).await;
        assert!(letters.len() == 1 && letters[0].reason.contains(told), "{letters:?}");
        assert!(store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
        assert_eq!(short.sent(), []);
    }
}

/// Goal: what was saved while the endpoint had a schedule, or was enqueued by somebody else, does not come early either. Method: the wall
/// clock decides when it is due, so this test waits in real time.
#[tokio::test]
async fn without_a_schedule_what_was_enqueued_is_held_back_until_it_is_due() {
    const WAIT: Duration = Duration::from_millis(1500);
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let envelope = Envelope { due: Some(Timestamp::now().after(WAIT)), ..note() };
    let destination = Destination::Endpoint("work".parse().unwrap());
    let enqueued = Enqueued::new("front", Outgoing { destination, envelope: Arc::new(envelope) }).unwrap();
    drop(store.save(enqueued.key(), &Expected::Absent, enqueued.entity(), &[]).await.unwrap());
    let settings = Settings { enqueued_interval: Duration::from_millis(100), ..settings() };
    let front = Endpoint::builder("front").store(store.clone()).transport(short.clone()).sends_enqueued();
    let _running = (
        running(front.settings(settings)).await,
        running(alarms(&store, &heard).transport(short.clone()).schedule(store.clone())).await,
    );
    send(&short, &ask("a", HOUR, HOUR)).await;
    while heard.all().is_empty() && heard.0.elapsed() < 10 * WAIT {
        tokio::task::yield_now().await;
    }
    heard.assert(&[("a notes", WAIT)], MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_message_too_large_for_the_schedule_is_refused_before_it_is_saved() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Never));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule)).await;
    let large = Ask { says: "a".repeat(10_000), ..ask("a", HOUR, HOUR) };
    send(&short, &large).await;
    sleep(2 * HOUR).await;
    let letters = letters(&store).await;
    assert!(letters.len() == 1 && letters[0].reason.contains("the schedule in memory takes 10000"), "{letters:?}");
    assert_eq!((heard.all(), short.sent()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_holds_everything_back_is_given_everything_and_what_is_left_in_the_schedule_goes_too() {
    let (store, heard, short) = (Memory::new(), Heard::new(), Short::new(Delays::Any));
    let schedule = Troubled { kept: store.clone(), ..Troubled::default() };
    let work = EndpointName::parse("work").unwrap();
    let note = Envelope { due: Some(Timestamp::now().after(3 * HOUR)), ..note() };
    let destination = Destination::Endpoint(work.clone());
    schedule.kept.put(&work, &[Outgoing { destination, envelope: Arc::new(note) }]).await.unwrap();
    let _running = running(alarms(&store, &heard).transport(short.clone()).schedule(schedule.clone())).await;
    send(&short, &ask("a", HOUR, 2 * HOUR)).await;
    sleep(MINUTE).await;
    assert_eq!((short.sent().len(), schedule.put.load(Ordering::Relaxed)), (3, 0));
    sleep(4 * HOUR).await;
    heard.assert(&[("a rings", HOUR), ("a notes", 2 * HOUR), ("a notes", 3 * HOUR)], LATE);
}

#[tokio::test]
async fn the_harness_lets_timeouts_pass_whatever_schedule_the_endpoint_has() {
    let (store, heard) = (Memory::new(), Heard::new());
    let mut alarm = Harness::start(alarms(&store, &heard).schedule(store.clone())).await.unwrap();
    alarm.send(&ask("a", HOUR, 2 * HOUR)).await.unwrap();
    alarm.advance(HOUR).await.unwrap();
    assert_eq!(heard.all().len(), 1);
    alarm.advance(HOUR).await.unwrap();
    assert_eq!(heard.all().len(), 2);
}
