//! A host whose clock is stepped back and forth while workers handle messages, leases are out, and delayed messages and
//! timeouts wait: nothing is lost or handled twice, and all is handled soon after the last step.
//!
//! The workers are the shipped code; their clock is stepped from outside, see `process/shim.c`. This process's own clock is
//! never ahead of theirs, so that what it sends may be given at once.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")] // The clock comes by LD_PRELOAD.

#[path = "process/crew.rs"]
mod crew;
#[path = "process/load.rs"]
mod load;
#[path = "process/shim.rs"]
mod shim;
#[path = "process/stored.rs"]
mod stored;
#[path = "process/tally.rs"]
mod tally;

use std::{os::unix::process::ExitStatusExt, path::PathBuf, process::Command, time::Instant};

use crew::{Worker, program, until};
use hapax_tests::Scratch;
use load::{Load, number, open};
use shim::{StepClock, shim};

const HOUR_MS: i64 = 3_600_000;
/// How long the notes and timeouts of some steps wait.
const DELAY_MS: u64 = 200;
const SIGKILL: i32 = 9;

/// A host of its own, as far as its clock goes.
struct Host {
    scratch: Scratch,
    shim: PathBuf,
    clock: StepClock,
}

impl Host {
    fn new(name: &str, hours: i64) -> Self {
        let scratch = Scratch::new(name);
        let (shim, clock) = (shim(scratch.folder()), StepClock::new(scratch.folder()));
        clock.set(hours * HOUR_MS);
        Self { scratch, shim, clock }
    }

    /// A worker's program on this host.
    fn program(&self) -> Command {
        let mut program = program();
        program.env("LD_PRELOAD", &self.shim).env("HAPAX_TEST_CLOCK", self.clock.path());
        program
    }

    fn serving(&self) -> Worker {
        Worker::run(self.scratch.folder(), "today", &mut self.program())
    }

    /// A worker that takes a message and dies at `point`, while its lease is out.
    fn dies(&self, point: &str, lease_ms: i64) {
        let mut program = self.program();
        program.arg(self.scratch.folder()).args(["work", point]).env("HAPAX_TEST_LEASE_MS", lease_ms.to_string());
        let ended = program.output().unwrap();
        assert_eq!(ended.status.signal(), Some(SIGKILL), "{ended:?}");
    }
}

#[tokio::test]
async fn steps_of_an_hour_to_and_fro_lose_nothing_and_double_nothing() {
    const BATCH: usize = 20;
    let host = Host::new("clock", 2);
    let folder = host.scratch.folder();
    let mut load = Load::new(folder, false).await;
    let workers = [host.serving().started().await, host.serving().started().await];
    // The last step is to the latest time of all, so that nothing waits for hours.
    for hours in [3, 2, 1, 4, 2, 1, 5] {
        load.send(BATCH, 0).await;
        load.send(BATCH, DELAY_MS).await;
        load.shrinks_to(4 * BATCH as u64).await; // Some are done and some under way.
        host.clock.set(hours * HOUR_MS);
    }
    let last_step = Instant::now();
    load.is_done(folder).await;
    println!("all done {:?} after the last step", last_step.elapsed());
    load.books(folder).await.unwrap();
    // The control: the workers have lived through it.
    let marked = "SELECT max(time) - min(time) FROM hapax_dedup";
    let mut file = open(folder).await;
    assert!(number(&mut file, marked).await >= 3 * HOUR_MS, "the clock was not stepped");
    for worker in workers {
        assert!(worker.log().contains("the host's clock was set back"), "{}", worker.log());
        worker.stop();
    }
}

/// Leases of the dead end no later than ones that begin now, as the queue's documentation says.
#[tokio::test]
async fn a_lease_that_was_out_when_the_clock_was_set_back_ends_in_time() {
    let host = Host::new("clock-lease", 2);
    let folder = host.scratch.folder();
    let mut load = Load::new(folder, false).await;
    load.send(1, 0).await;
    host.dies("load-0-after", HOUR_MS);
    let worker = host.serving().started().await;
    load.shrinks_to(1).await; // The other copy and its notes are done.
    host.clock.set(HOUR_MS);
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    assert!(worker.log().contains("the host's clock was set back"), "{}", worker.log());
    worker.stop();
}

/// What was sent before the clock was set back and not given yet is not held up by that.
#[tokio::test]
async fn a_message_that_waited_when_the_clock_was_set_back_is_given_in_time() {
    let host = Host::new("clock-waiting", 2);
    let folder = host.scratch.folder();
    let mut load = Load::new(folder, false).await;
    load.send(1, 0).await;
    host.dies("dispatch-0-after", HOUR_MS); // Its notes wait, and were sent at the later time.
    host.clock.set(HOUR_MS);
    let worker = host.serving().started().await;
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    worker.stop();
}

/// Leases that the clock has jumped over are lost to their holders, and what they held is handled once all the same.
#[tokio::test]
async fn a_lease_that_the_clock_has_jumped_over_ends_at_once() {
    let host = Host::new("clock-forward", 0);
    let folder = host.scratch.folder();
    let mut load = Load::new(folder, false).await;
    load.send(1, 10 * 60 * 1000).await; // Due in ten minutes.
    host.dies("load-0-after", HOUR_MS / 2);
    let worker = host.serving().started().await;
    // The other copy is done; two notes and a timeout are due later, and one lease is out.
    until("the step is handled", async || load.backlog().await == 4).await;
    host.clock.set(HOUR_MS);
    load.is_done(folder).await;
    load.books(folder).await.unwrap();
    worker.stop();
}
