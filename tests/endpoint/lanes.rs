//! One saga instance at a time, several at once, and not too many.

use std::time::Duration;

use hapax::{
    InProcess, Memory,
    deliver::{Recoverability, Tries},
    endpoint::Settings,
    ports::DeadLetter,
};
use tokio::sync::oneshot;

use crate::{
    reluctant::{Reluctant, Settling},
    work::{Log, Task, done, endpoint, letters, send, settings, task},
};

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
    let hurried = Settings { stop_limit: Duration::from_secs(1), ..settings() };
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
    let recoverability = Recoverability { in_place: Tries::new(5, hour, hour), ..Recoverability::default() };
    let begun = tokio::time::Instant::now();
    let soon = tokio::time::sleep(Duration::from_secs(1));
    endpoint(&store, hub.clone(), &log)
        .settings(Settings { recoverability, ..settings() })
        .run_until(soon)
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(log.runs("worker", "failing"), 1);
    endpoint(&store, hub.clone(), &log).run_until(hub.idle()).await.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["failing"]);
}

/// Method: another process waits for what comes back to the queue; it is given the message as soon as its lease has run out.
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_message_is_extended_while_its_handler_runs_and_while_it_waits() {
    const LEASE: Duration = Duration::from_secs(3);
    let (store, log) = (Memory::new(), Log::default());
    let hub = InProcess::with_faults("lanes-lease", LEASE, hapax::transports::in_process::Faults::default());
    send(&hub, &Task { millis: 20_000, ..task("a", "long") }).await;
    send(&hub, &Task { millis: 20_000, ..task("a", "behind") }).await;
    let process = || endpoint(&store, hub.clone(), &log).run_until(hub.idle());
    let (one, other) = tokio::join!(process(), process());
    one.unwrap();
    other.unwrap();
    assert_eq!(done(&store, "worker", "a"), ["long", "behind"]);
    assert_eq!(log.runs("worker", "long"), 1, "nobody else was given it while it was handled");
    assert_eq!(log.runs("worker", "behind"), 1, "nor what waited behind it");
}

/// A handler for a day.
const NEVER_ENDS: u64 = 24 * 3600 * 1000;

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_ends_holds_up_its_key_alone_and_fails_at_the_deadline() {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-stuck"), Log::default());
    send(&hub, &Task { millis: NEVER_ENDS, ..task("stuck", "never") }).await;
    for n in 0..10 {
        send(&hub, &task("stuck", &format!("behind-{n}"))).await;
    }
    let few = Settings { in_flight_max: 4, ..settings() };
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(endpoint(&store, hub.clone(), &log).settings(few).run_until(stopped));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..10 {
        send(&hub, &task(&format!("good-{n}"), &format!("good-{n}"))).await;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    for n in 0..10 {
        let key = format!("good-{n}");
        assert_eq!(done(&store, "worker", &key), [key.as_str()]);
    }
    assert!(done(&store, "worker", "stuck").is_empty(), "they wait for the one before them");
    tokio::time::timeout(Duration::from_secs(3600), hub.idle()).await.expect("it is given up");
    assert_eq!(done(&store, "worker", "stuck").len(), 10);
    let letters = letters(&store).await;
    assert_eq!(letters.len(), 1);
    let DeadLetter { envelope, reason, attempts, .. } = &letters[0];
    assert_eq!((envelope.message_id.to_string().as_str(), *attempts), ("never", 5));
    assert!(reason.contains("the handler took longer than its deadline, 60s"), "{reason}");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_key_does_not_take_all_that_may_be_in_flight() {
    for processes in [1, 2] {
        quick_beside_slow(processes).await;
    }
}

/// With two processes what one gives back goes to the other, and both have the slow key at work now and then.
async fn quick_beside_slow(processes: usize) {
    const SLOW: usize = 100;
    let (store, hub, log) = (Memory::new(), InProcess::new(format!("lanes-slow-{processes}")), Log::default());
    for n in 0..SLOW {
        send(&hub, &Task { millis: 2000, ..task("slow", &format!("slow-{n}")) }).await;
    }
    for n in 0..20 {
        send(&hub, &task(&format!("quick-{n}"), &format!("quick-{n}"))).await;
    }
    let (mut stops, mut running) = (Vec::new(), Vec::new());
    for _ in 0..processes {
        let few = Settings { in_flight_max: 8, ..settings() };
        let (stop, stopped) = oneshot::channel::<()>();
        running.push(tokio::spawn(endpoint(&store, hub.clone(), &log).settings(few).run_until(stopped)));
        stops.push(stop);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    for n in 0..20 {
        let key = format!("quick-{n}");
        assert_eq!(done(&store, "worker", &key), [key.as_str()], "{processes} processes");
    }
    hub.idle().await;
    assert_eq!(done(&store, "worker", "slow").len(), SLOW, "{processes} processes");
    // What was given back was not counted: nothing came to its end by it.
    assert!(letters(&store).await.is_empty());
    for stop in stops {
        stop.send(()).unwrap();
    }
    for running in running {
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_keeps_its_order_however_many_wait() {
    const MANY: usize = 3000;
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-busy"), Log::default());
    for n in 0..MANY {
        send(&hub, &task("busy", &format!("task-{n}"))).await;
    }
    let few = Settings { in_flight_max: 100, ..settings() };
    endpoint(&store, hub.clone(), &log).settings(few).run_until(hub.idle()).await.unwrap();
    let order: Vec<String> = (0..MANY).map(|n| format!("task-{n}")).collect();
    assert_eq!(done(&store, "worker", "busy"), order);
}

/// A stop after a second, with `waiting` messages behind one that runs; answers how long it took.
async fn stop_with(settle: Settling, waiting: usize, stop_limit: Duration) -> (InProcess, Duration) {
    let (store, hub, log) = (Memory::new(), InProcess::new("lanes-reluctant"), Log::default());
    send(&hub, &Task { millis: 1500, ..task("a", "begun") }).await;
    let hurried = Settings { stop_limit, ..settings() };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for n in 0..waiting {
            send(&hub, &task("a", &format!("task-{n}"))).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let running = endpoint(&store, Reluctant::new(&hub, settle), &log).settings(hurried).run_until(stop);
    let begun = tokio::time::Instant::now();
    tokio::time::timeout(Duration::from_secs(600), running).await.expect("it stops").unwrap();
    (hub, begun.elapsed() - Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_broker_that_does_not_answer() {
    let (_, took) = stop_with(Settling::Never, 20, Duration::from_secs(1)).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_several_back_at_a_time_beside_what_ends() {
    const WAITING: usize = 300;
    let slowly = Settling::After(Duration::from_millis(100));
    let (hub, took) = stop_with(slowly, WAITING, Duration::from_secs(10)).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(hub.backlog(&"work".parse().unwrap()), WAITING);
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
