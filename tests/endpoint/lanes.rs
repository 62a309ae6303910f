//! One saga instance at a time, several at once, and not too many.

use std::time::Duration;

use hapax::{
    InProcess, Memory,
    endpoint::{Jittered, Settings, Tries},
};
use tokio::sync::oneshot;

use crate::work::{Log, Task, done, endpoint, send, settings, task};

#[tokio::test(start_paused = true)]
async fn one_saga_instance_is_never_handled_twice_at_the_same_time_and_others_go_in_parallel() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes"), Log::default());
    for key in ["a", "b", "c"] {
        for n in 0..5 {
            send(&hub, &Task { millis: 10, ..task(key, &format!("{key}{n}")) }).await;
        }
    }
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!((log.most_of_one_key(), log.most_of_all()), (1, 3));
    for key in ["a", "b", "c"] {
        let order: Vec<String> = (0..5).map(|n| format!("{key}{n}")).collect();
        assert_eq!(done(&store, "worker", key), order, "in the order in which they came");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_while_its_saga_is_at_work_waits_in_the_lane() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-late"), Log::default());
    send(&hub, &Task { millis: 100, ..task("a", "slow") }).await;
    let late = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        send(&hub, &task("a", "late")).await;
        hub.idle().await;
    };
    endpoint(&store, hub.clone(), &log).run_until(late).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["slow", "late"]);
    assert_eq!(log.most_of_one_key(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_in_flight_than_allowed() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-bound"), Log::default());
    for n in 0..20 {
        send(&hub, &Task { millis: 10, ..task(&format!("key{n}"), &format!("task{n}")) }).await;
    }
    let bounded = Settings { in_flight_max: 3, ..settings() };
    endpoint(&store, hub.clone(), &log).settings(bounded).run_until(hub.idle()).await.unwrap();
    assert_eq!(log.most_of_all(), 3, "as many as allowed, and no more");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_what_has_begun_end_and_gives_back_the_rest() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-stop"), Log::default());
    send(&hub, &Task { millis: 1000, ..task("a", "begun") }).await;
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        send(&hub, &task("a", "waiting")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    endpoint(&store, hub.clone(), &log).run_until(stop).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["begun"]);
    assert_eq!(hub.backlog(&"work".parse().unwrap()), 1);
    let begun = tokio::time::Instant::now();
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["begun", "waiting"]);
    assert!(begun.elapsed() < Duration::from_secs(1), "it was given back, its lease need not run out");
    assert_eq!(log.runs("worker", "begun"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_longer_than_its_timeout_and_the_message_comes_again() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-timeout"), Log::default());
    send(&hub, &Task { millis: 60_000, ..task("a", "endless") }).await;
    let hurried = Settings { stop_timeout: Duration::from_secs(1), ..settings() };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = endpoint(&store, hub.clone(), &log).settings(hurried).run_until(stopped);
    let begun = tokio::time::Instant::now();
    tokio::join!(async { running.await.unwrap() }, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.send(()).unwrap();
    });
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(done(&store, "worker", "a").is_empty());
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["endless"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_next_try_of_what_fails() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-back-off"), Log::default());
    send(&hub, &Task { fails: 1, ..task("a", "failing") }).await;
    let hour = Duration::from_secs(3600);
    let patient = Jittered { failure: Tries::new(5, hour, hour), ..Jittered::default() };
    let begun = tokio::time::Instant::now();
    let soon = tokio::time::sleep(Duration::from_secs(1));
    endpoint(&store, hub.clone(), &log)
        .settings(Settings { backoff: patient, ..settings() })
        .run_until(soon)
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(log.runs("worker", "failing"), 1);
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["failing"]);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_message_is_extended_while_its_handler_runs_and_while_it_waits() {
    const LEASE: Duration = Duration::from_secs(3);
    let (store, log) = (Memory::new(), Log::default());
    let hub = InProcess::with_faults("lanes-lease", LEASE, hapax::transports::in_process::Faults::default());
    send(&hub, &Task { millis: 20_000, ..task("a", "long") }).await;
    send(&hub, &Task { fails: 1, ..task("a", "behind") }).await;
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["long", "behind"]);
    assert_eq!(log.runs("worker", "long"), 1, "nobody else was given it");
}

#[tokio::test]
async fn an_endpoint_can_be_spawned() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-spawned"), Log::default());
    send(&hub, &task("a", "spawned")).await;
    let endpoint = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let idle = hub.clone();
    tokio::spawn(endpoint.run_until(async move { idle.idle().await })).await.unwrap().unwrap();
    assert_eq!(done(&store, "worker", "a"), ["spawned"]);
}
