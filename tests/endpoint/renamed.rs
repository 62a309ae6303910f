//! Timeouts of a saga that has another name than it had: what they were to remind of is lost, and an operator hears of it.

use std::time::Duration;

use hapax::{
    InProcess, Memory,
    envelope::{Destination, Envelope, Outgoing},
    ports::Dispatcher,
};
use hapax_tests::LogLines;
use tokio::{sync::oneshot, time::sleep};

use crate::{
    office::letter,
    work::{Log, endpoint, letters, task},
};

/// Goal: of many timeouts that are dropped so one is warned of at once, with the saga and the remedy, and the others are counted. Method: timeouts
/// of workers that nobody has begun, ten at once and one after a minute.
#[tokio::test(start_paused = true)]
async fn of_timeouts_of_a_saga_that_was_renamed_one_a_minute_is_warned_of() {
    let (store, hub, logged, log) = (Memory::new(), InProcess::new("renamed"), LogLines::here(), Log::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let work = endpoint(&store, hub.clone(), &log).start().await.unwrap();
    let running = tokio::spawn(work.run_until(stopped));
    for number in 0..10 {
        send_timeout(&hub, &format!("ring-{number}")).await;
    }
    sleep(Duration::from_secs(90)).await;
    send_timeout(&hub, "ring-10").await;
    sleep(Duration::from_secs(1)).await;
    let warned = logged.with("a timeout is dropped");
    let told: Vec<bool> = warned.iter().map(|line| line.contains("untold=0")).collect();
    assert_eq!(told, [true, false], "{warned:?}");
    assert!(warned[0].contains("saga=worker") && warned[0].contains("give it the former one again"), "{warned:?}");
    assert!(warned[1].contains("untold=9"), "{warned:?}");
    assert_eq!((log.runs("worker", "ring-0"), letters(&store).await), (0, Vec::new()));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

async fn send_timeout(hub: &InProcess, name: &str) {
    let envelope = Envelope { timeout: true, ..(*letter(&task(name, name)).envelope).clone() };
    let destination = Destination::Endpoint("work".parse().unwrap());
    hub.dispatch(&[Outgoing { destination, envelope: envelope.into() }]).await.remove(0).unwrap();
}
