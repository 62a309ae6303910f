//! One of two processes of an endpoint stops, as at each deployment. What it held is handled once: by itself within its limit, or by the other one.

use std::time::Duration;

use hapax::{InProcess, Memory, endpoint::Settings, transports::in_process::Faults};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use crate::{
    reluctant::{Reluctant, Settling},
    work::{Listener, Log, Task, done, endpoint, letters, send, settings, task},
};

const KEYS: usize = 20;
const EACH: usize = 10;
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// What is given back is given again at once: were this waited for, it would show.
const HOUR: Duration = Duration::from_secs(3600);

/// Two processes, and what they are given.
struct Pair {
    store: Memory,
    hub: InProcess,
    log: Log,
}

impl Pair {
    fn new(lease: Duration) -> Self {
        let hub = InProcess::with_faults("stopped-beside", lease, Faults::default());
        Self { store: Memory::new(), hub, log: Log::default() }
    }

    /// One process settles so, and stops after this time, within its limit; the other goes on until all is done. Answers how long that took, from
    /// the stop on.
    async fn run(&self, settling: Settling, after: Duration) -> Duration {
        let start = |settling| {
            let settings = Settings { stop_limit: STOP_LIMIT, in_flight_max: 150, ..settings() };
            let broker = Reluctant::new(&self.hub, settling);
            endpoint(&self.store, broker, &self.log).handler(Listener).settings(settings).start()
        };
        let one = start(settling).await.unwrap();
        let other = start(Settling::After(Duration::ZERO)).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let one = tokio::spawn(one.run_until(sleep(after)));
        let other = tokio::spawn(other.run_until(stopped));
        sleep(after).await;
        let begun = Instant::now();
        let limit = STOP_LIMIT + Duration::from_secs(1);
        timeout(limit, one).await.expect("it stops within its limit").unwrap().unwrap();
        self.hub.idle().await;
        let took = begun.elapsed();
        stop.send(()).unwrap();
        other.await.unwrap().unwrap();
        took
    }

    async fn send_all(&self, millis: u64) {
        for number in 0..EACH {
            for key in 0..KEYS {
                let task = Task { millis, tells: true, ..task(&format!("key-{key}"), &format!("{key}-{number}")) };
                send(&self.hub, &task).await;
            }
        }
    }

    async fn check(&self) {
        for key in 0..KEYS {
            let mut names = done(&self.store, "worker", &format!("key-{key}"));
            names.sort();
            let all: Vec<_> = (0..EACH).map(|number| format!("{key}-{number}")).collect();
            assert_eq!(names, all);
            for name in all {
                assert_eq!(self.log.runs("listener", &name), 1, "{name} is told once");
            }
        }
        assert!(letters(&self.store).await.is_empty());
        assert!(self.store.entities().iter().all(|(_, entity)| entity.outbox.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_process_holds_when_it_stops_is_handled_once_by_it_or_by_the_other_at_once() {
    for settling in [Duration::ZERO, Duration::from_millis(50)] {
        for after in [5, 50, 300, 1000, 3000] {
            let pair = Pair::new(HOUR);
            pair.send_all(100).await;
            let took = pair.run(Settling::After(settling), Duration::from_millis(after)).await;
            assert!(took < Duration::from_secs(60), "{took:?} after a stop at {after} ms");
            pair.check().await;
        }
    }
}

/// Its handler goes on when the limit is over: the message comes again when its lease has run out, and only what the other one does is kept.
#[tokio::test(start_paused = true)]
async fn what_a_process_cannot_end_within_its_limit_the_other_handles_once() {
    let pair = Pair::new(Duration::from_secs(30));
    send(&pair.hub, &Task { millis: 40_000, ..task("slow", "slow") }).await;
    pair.send_all(100).await;
    let took = pair.run(Settling::After(Duration::ZERO), Duration::from_secs(1)).await;
    assert!(took > STOP_LIMIT, "{took:?}: it was waited for, and then for the other");
    pair.check().await;
    assert_eq!(done(&pair.store, "worker", "slow"), ["slow"]);
    assert_eq!(pair.log.runs("worker", "slow"), 2, "the one that did not end, and the other's");
}

/// All that it has handled is not acknowledged, and what it gives back is not taken: the other is given all of it, and recognises what is over.
#[tokio::test(start_paused = true)]
async fn what_a_process_could_not_settle_before_it_stopped_has_no_effect_once_more() {
    let pair = Pair::new(Duration::from_secs(30));
    pair.send_all(100).await;
    pair.run(Settling::Never, Duration::from_secs(2)).await;
    pair.check().await;
}
