//! What a letter tells of the attempts at its message, where several processes were given it: the broker's count of all of them, and what
//! those have failed with that the process has seen which gives the message up.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hapax::{
    Context, Endpoint, Handler, HandlerError, InProcess, Memory, Message,
    deliver::{Recoverability, Tries},
    endpoint::{EndpointBuilder, EndpointHandle, Settings},
    ports::DeadLetter,
    testing::Drops,
    transports::in_process::Faults,
};
use serde::{Deserialize, Serialize};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::work::{letters, settings};

const LEASE: Duration = Duration::from_secs(5);
/// Longer than a message rests between two deliveries.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cannot be done.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    number: u32,
}

impl Message for Job {
    const TYPE: &'static str = "attempts.job";
}

/// Fails, and says in which process. At one of its runs, counted over all processes, it does not end: it is to die there.
#[derive(Debug, Clone)]
struct Failing {
    process: &'static str,
    runs: Arc<AtomicU32>,
    dies_at: u32,
}

impl Failing {
    fn in_process(&self, process: &'static str) -> Self {
        Self { process, ..self.clone() }
    }

    /// Until there were so many.
    async fn runs(&self, runs: u32) {
        let counted = async {
            while self.runs.load(Ordering::Relaxed) < runs {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, counted).await.unwrap_or_else(|_| panic!("there is no run {runs}"));
        sleep(Duration::from_millis(100)).await; // It is settled, too.
    }
}

impl Handler<Job> for Failing {
    const NAME: &'static str = "failing";

    async fn handle(&self, _: Job, _: &mut Context) -> Result<(), HandlerError> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if run == self.dies_at {
            pending::<()>().await;
        }
        sleep(Duration::from_millis(10)).await; // Where it can be dropped.
        Err(HandlerError::transient(format!("not in {}", self.process)))
    }
}

fn process(store: &Memory, hub: &InProcess, failing: Failing) -> EndpointBuilder {
    let settings = Settings {
        recoverability: Recoverability {
            in_place: Tries::new(0, Duration::ZERO, Duration::ZERO),
            poison_above: 1000,
            ..Recoverability::default()
        },
        ..settings()
    };
    Endpoint::builder("work").store(store.clone()).transport(hub.clone()).settings(settings).handler(failing)
}

/// One that is given messages when it is its turn. When it is dropped, its process has died.
struct Instance {
    handle: EndpointHandle,
    running: AbortHandle,
}

impl Instance {
    async fn start(store: &Memory, hub: &InProcess, failing: Failing) -> Self {
        let endpoint = process(store, hub, failing).start().await.unwrap();
        let handle = endpoint.handle();
        handle.set_in_flight_max(0);
        let running = tokio::spawn(endpoint.run_until(pending::<()>())).abort_handle();
        Self { handle, running }
    }

    /// It alone is given the message, for run number `run`.
    async fn turn(&self, failing: &Failing, run: u32) {
        self.handle.set_in_flight_max(1);
        failing.runs(run).await;
        self.handle.set_in_flight_max(0);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The letter of a message that two processes have in turn, of which the second dies at the fourth; the fifth time `last` has it.
async fn letter_of(last: &'static str) -> DeadLetter {
    let (store, hub) = (Memory::new(), InProcess::with_faults("attempts", LEASE, Faults::default()));
    let failing = Failing { process: "", runs: Arc::default(), dies_at: 4 };
    hub.sender().send("work", &Job { number: 0 }).await.unwrap();
    let one = Instance::start(&store, &hub, failing.in_process("one")).await;
    let two = Instance::start(&store, &hub, failing.in_process("two")).await;
    one.turn(&failing, 1).await;
    two.turn(&failing, 2).await;
    one.turn(&failing, 3).await;
    two.turn(&failing, 4).await;
    drop(two);
    let three = Instance::start(&store, &hub, failing.in_process("three")).await;
    if last == "one" {
        one.turn(&failing, 5).await
    } else {
        three.turn(&failing, 5).await
    }
    assert_eq!(hub.backlog(&"work".parse().unwrap()), 0);
    let mut letters = letters(&store).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    letters.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_letter_counts_the_attempts_of_all_processes_and_tells_of_those_that_its_own_has_seen() {
    let DeadLetter { attempts, reason, .. } = letter_of("one").await;
    assert_eq!((attempts, &*reason), (5, "not in one\nbefore:\n  attempt 1: not in one\n  attempt 3: not in one"));
}

#[tokio::test(start_paused = true)]
async fn a_letter_of_a_process_that_has_just_started_counts_what_it_has_not_seen() {
    let DeadLetter { attempts, reason, .. } = letter_of("three").await;
    assert_eq!((attempts, &*reason), (5, "not in three"));
}

/// With copies, which are counted each, lost acks, and passes that are dropped, so that their deliveries count and fail with nothing.
#[tokio::test(start_paused = true)]
async fn on_a_bad_day_each_message_has_one_letter_that_tells_of_no_other_process() {
    const JOBS: u32 = 20;
    let (mut dropped, mut told) = (0, 0);
    for seed in 0..20 {
        let faults = Faults { seed, duplicates: 0.3, reorder: 0.3, delay_max: 2 * LEASE, lost_acks: 0.2 };
        let (store, hub) = (Memory::new(), InProcess::with_faults("attempts", LEASE, faults));
        let failing = Failing { process: "", runs: Arc::default(), dies_at: u32::MAX };
        for number in 0..JOBS {
            let id = format!("job-{number}");
            hub.sender().send_as(id.parse().unwrap(), "work", &Job { number }).await.unwrap();
        }
        let drops = Drops::new(seed, 0.5);
        let run = |name| process(&store, &hub, failing.in_process(name)).drops(drops.clone()).run_until(hub.idle());
        let (one, two) = tokio::join!(run("one"), run("two"));
        one.and(two).unwrap();
        let letters = letters(&store).await;
        assert_eq!(letters.len(), JOBS as usize, "seed {seed}");
        for DeadLetter { envelope, attempts, reason, .. } in &letters {
            let context = format!("seed {seed}, {}: given {attempts} times, {reason}", envelope.message_id);
            let (last, before) = reason.split_once("\nbefore:").unwrap_or((reason.as_str(), ""));
            assert!(*attempts >= 5 && ["not in one", "not in two"].contains(&last), "{context}");
            assert!(before.lines().skip(1).all(|line| line.ends_with(last)), "{context}");
            told += before.lines().skip(1).count();
        }
        dropped += drops.dropped();
    }
    assert!(dropped > 0 && told > 0, "{dropped} dropped, {told} told");
}
