//! How an endpoint is, and what may change while it runs.

use std::time::Duration;

use hapax::{
    InProcess, Memory,
    endpoint::{EndpointHandle, Rate, Settings},
    transports::in_process::Faults,
};
use tokio::{sync::oneshot, time::sleep};

use crate::{
    entities::Entities,
    work::{Log, endpoint, send, settings, task},
};

const SECOND: Duration = Duration::from_secs(1);

fn reasons(handle: &EndpointHandle) -> String {
    handle.health().reasons().join("; ")
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_ready_from_when_it_runs_until_it_stops() {
    // Leases so long that extending them does not bring the endpoint round.
    let hub = InProcess::with_faults("health", Duration::from_secs(3600), Faults::default());
    let (store, log) = (Memory::new(), Log::default());
    let endpoint = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let handle = endpoint.handle();
    assert!(handle.health().live() && !handle.health().ready());
    assert_eq!(reasons(&handle), "endpoint work does not run yet");

    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    sleep(Duration::from_secs(3600)).await; // Nothing to do is no reason.
    assert!(handle.health().ready(), "{}", reasons(&handle));

    let slow = crate::work::Task { millis: 5000, ..task("key", "slow") };
    send(&hub, &slow).await;
    sleep(SECOND).await;
    assert_eq!(handle.in_flight(), 1);
    stop.send(()).unwrap();
    sleep(SECOND).await;
    assert!(handle.health().live() && !handle.health().ready());
    assert_eq!(reasons(&handle), "endpoint work stops");
    running.await.unwrap().unwrap();
    assert!(!handle.health().live() && !handle.health().ready());
    assert_eq!((reasons(&handle).as_str(), handle.in_flight()), ("endpoint work has stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_whose_future_is_dropped_says_that_it_has_stopped() {
    let (store, hub, log) = (Memory::new(), InProcess::new("health"), Log::default());
    let endpoint = endpoint(&store, hub, &log).start().await.unwrap();
    let handle = endpoint.handle();
    let running = tokio::spawn(endpoint.run_until(std::future::pending::<()>()));
    sleep(SECOND).await;
    assert!(handle.health().ready());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!handle.health().live() && !handle.health().ready());
    assert_eq!((reasons(&handle).as_str(), handle.in_flight()), ("endpoint work has stopped", 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_nobody_polls_is_not_live() {
    let (store, hub, log) = (Memory::new(), InProcess::new("health"), Log::default());
    let endpoint = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let handle = endpoint.handle();
    let mut running = Box::pin(endpoint.run_until(std::future::pending::<()>()));
    tokio::select! {
        _ = &mut running => unreachable!("nobody stops it"),
        () = sleep(SECOND) => {}
    }
    assert!(handle.health().ready());
    sleep(Duration::from_secs(15)).await;
    assert!(!handle.health().live());
    assert!(reasons(&handle).starts_with("endpoint work has not come round for 1"), "{}", reasons(&handle));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_whose_stores_are_away_is_live_and_not_ready() {
    let (entities, hub, log) = (Entities::default(), InProcess::new("health"), Log::default());
    entities.is_away(Some(""));
    let endpoint = crate::outage::endpoint(&entities, &hub, &log).start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    for key in ["a", "b", "c"] {
        send(&hub, &task(key, key)).await;
    }
    sleep(SECOND).await;
    assert!(handle.health().live() && !handle.health().ready());
    assert_eq!(reasons(&handle), "the stores cannot be reached");
    entities.is_away(None);
    hub.idle().await;
    assert!(handle.health().ready(), "{}", reasons(&handle));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn how_many_messages_are_held_can_be_changed_while_it_runs() {
    let (store, hub, log) = (Memory::new(), InProcess::new("bounds"), Log::default());
    let endpoint = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let handle = endpoint.handle();
    handle.set_in_flight_max(0);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    for key in 0..100 {
        let key = format!("key-{key}");
        send(&hub, &crate::work::Task { millis: 100, ..task(&key, &key) }).await;
    }
    sleep(60 * SECOND).await;
    assert_eq!((handle.in_flight(), log.most_of_all()), (0, 0));
    handle.set_in_flight_max(3);
    sleep(SECOND).await;
    assert_eq!(log.most_of_all(), 3);
    handle.set_in_flight_max(0);
    sleep(SECOND).await;
    let left = hub.backlog(&"work".parse().unwrap());
    assert!((1..100).contains(&left) && handle.in_flight() == 0, "{left}");
    handle.set_in_flight_max(20);
    hub.idle().await;
    assert_eq!(log.most_of_all(), 20);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_before_the_bound_was_lowered_is_asked_for_no_more() {
    let (store, hub, log) = (Memory::new(), InProcess::new("bounds"), Log::default());
    let endpoint = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint.run_until(stopped));
    sleep(SECOND).await; // It waits for messages.
    handle.set_in_flight_max(0);
    sleep(SECOND).await;
    send(&hub, &task("key", "late")).await;
    sleep(60 * SECOND).await;
    assert_eq!(log.runs("worker", "late"), 0);
    handle.set_in_flight_max(1);
    hub.idle().await;
    assert_eq!(log.runs("worker", "late"), 1);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn how_many_bytes_are_held_is_bounded_and_can_be_changed_while_it_runs() {
    let (store, hub, log) = (Memory::new(), InProcess::new("bytes"), Log::default());
    let settings = Settings { bytes_in_flight_max: 40 << 10, ..settings() };
    let endpoint = endpoint(&store, hub.clone(), &log).settings(settings).start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    for number in 0..300 {
        let key = format!("key-{number}");
        let name = format!("{number}-{}", "x".repeat(200));
        send(&hub, &crate::work::Task { millis: 100, ..task(&format!("{key}{}", "y".repeat(54)), &name) }).await;
    }
    let running = tokio::spawn(endpoint.run_until(stopped));
    hub.idle().await;
    // Each has less than a kilobyte, and more than half of one.
    let most = log.most_of_all();
    assert!((40..80).contains(&most), "{most}");
    handle.set_bytes_in_flight_max(1);
    sleep(SECOND).await;
    let before = log.most_of_all();
    for number in 0..3 {
        send(&hub, &crate::work::Task { millis: 100, ..task("alone", &format!("alone-{number}")) }).await;
    }
    let begun = tokio::time::Instant::now();
    hub.idle().await;
    assert!(begun.elapsed() >= Duration::from_millis(300), "one by one, not in {:?}", begun.elapsed());
    assert_eq!(log.most_of_all(), before);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn how_many_messages_are_received_in_a_time_is_bounded_and_can_be_changed_while_it_runs() {
    let (store, hub, log) = (Memory::new(), InProcess::new("rates"), Log::default());
    let settings = Settings { rate_max: Some(Rate::per_second(10)), ..settings() };
    let endpoint = endpoint(&store, hub.clone(), &log).settings(settings).start().await.unwrap();
    let handle = endpoint.handle();
    let (stop, stopped) = oneshot::channel::<()>();
    for number in 0..100 {
        send(&hub, &task(&format!("key-{number}"), &format!("name-{number}"))).await;
    }
    let work = "work".parse().unwrap();
    let running = tokio::spawn(endpoint.run_until(stopped));
    sleep(5 * SECOND).await;
    let left = hub.backlog(&work);
    assert!((48..=52).contains(&left), "{left} of 100 are left after 5 s of 10 each");
    handle.set_rate_max(Some(Rate::per_second(0)));
    sleep(60 * SECOND).await;
    let paused = hub.backlog(&work);
    assert!(left - paused <= 1, "{left}, then {paused}");
    handle.set_rate_max(Some(Rate::new(60, 60 * SECOND)));
    sleep(10 * SECOND).await;
    let slow = paused - hub.backlog(&work);
    assert!((9..=11).contains(&slow), "{slow} in 10 s of one each");
    handle.set_rate_max(None);
    let begun = tokio::time::Instant::now();
    hub.idle().await;
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
