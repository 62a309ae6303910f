//! The worker processes, and what is done to them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use crate::{
    Options, Refusal,
    broker::{Broker, Kind, SESSION},
    place::Database,
    telemetry::{self, last_page},
    worker::WORKING,
    workers::LEASE,
};

/// How much longer a worker is stopped than what it holds stays its own.
const BEYOND: Duration = Duration::from_millis(300);
/// How often it is seen to whether all of them are there.
const LOOK: Duration = Duration::from_millis(250);
/// A day: an interval that was not asked for.
const NEVER: Duration = Duration::from_secs(24 * 3600);

type Hire = Box<dyn Fn(u64) -> Result<Worker, Refusal> + Send>;

struct Worker {
    process: Child,
    /// It handles messages. Who has not come so far is not killed: else on a busy machine nobody ever would.
    works: Arc<AtomicBool>,
    /// What it has told last of what it has measured, once it is gone.
    told: Option<JoinHandle<String>>,
}

/// The worker processes.
pub(crate) struct Crew {
    hire: Hire,
    workers: Vec<Worker>,
    random: fastrand::Rng,
    /// Where it is added up what they have measured, if anybody wants to know.
    measured: Option<telemetry::Workers>,
    /// Grows whenever something has been decided. Nobody is killed before that since the last kill: on a busy machine, or a slow service, a
    /// worker that holds many messages would have none of them done by the time it is killed, and neither would the next. Nor is anybody
    /// stopped before that since the last one went on: where it is missed late, all others might wait for it all the time.
    pub(crate) decided: Arc<AtomicU64>,
    /// As it was then.
    killed_at: Option<u64>,
    went_on_at: Option<u64>,
    /// How long a worker is stopped.
    pause: Duration,
    pub(crate) kills: u64,
    pub(crate) stalls: u64,
    /// What it is to be stopped for so long.
    pub(crate) stopped: &'static str,
}

impl Crew {
    pub(crate) fn hire(
        database: &Database,
        options: &Options,
        measured: Option<telemetry::Workers>,
        seed: u64,
    ) -> Result<Self, Refusal> {
        let cannot = |e: std::io::Error| Refusal::new(format!("a worker cannot be started: {e}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let (pause, stopped) = pause(database);
        let (database, duplicates, tells) = (database.clone(), options.duplicates().to_string(), measured.is_some());
        let hire = move |seed: u64| {
            let mut command = Command::new(&program);
            command.args(database.arguments()).args(["--seed", &seed.to_string(), "--duplicates", &duplicates]);
            if tells {
                command.args(["--metrics", "-"]);
            }
            let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(cannot)?;
            let works = Arc::new(AtomicBool::new(false));
            let told = process.stdout.take().map(|says| {
                let (works, mut says) = (works.clone(), BufReader::new(says));
                // Ends when it is gone.
                std::thread::spawn(move || {
                    // What it tells before is of nothing yet.
                    let mut line = String::new();
                    while line != WORKING {
                        line.clear();
                        if !matches!(says.read_line(&mut line), Ok(1..)) {
                            break;
                        }
                    }
                    works.store(line == WORKING, Ordering::Relaxed);
                    last_page(says)
                })
            });
            Ok(Worker { process, works, told })
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let workers = (0..options.workers()).map(|_| hire(random.u64(..))).collect::<Result<_, _>>()?;
        Ok(Self {
            hire: Box::new(hire),
            workers,
            random,
            measured,
            decided: Arc::default(),
            killed_at: None,
            went_on_at: None,
            pause,
            kills: 0,
            stalls: 0,
            stopped,
        })
    }

    /// Others, who are left alone, for those who have gone home.
    pub(crate) fn hire_again(&mut self) -> Result<(), Refusal> {
        for worker in &mut self.workers {
            *worker = (self.hire)(self.random.u64(..))?;
        }
        Ok(())
    }

    /// Kills and stops workers for ever; ends with what went wrong.
    pub(crate) async fn harass(&mut self, options: &Options) -> Refusal {
        let (mut kill, mut stall) = (every(options.kill_every()), every(options.stall_every()));
        let mut look = every(Some(LOOK));
        let mut stalled: Option<(usize, Instant)> = None;
        loop {
            let until = stalled.map_or_else(|| Instant::now() + NEVER, |(_, until)| until);
            let done = tokio::select! {
                _ = look.tick() => self.look().await,
                _ = kill.tick() => self.kill(stalled.map(|(at, _)| at)),
                _ = stall.tick(), if stalled.is_none() => {
                    self.stop().map(|at| stalled = at.map(|at| (at, Instant::now() + self.pause)))
                }
                () = sleep_until(until), if stalled.is_some() => {
                    self.went_on_at = Some(self.decided.load(Ordering::Relaxed));
                    let at = stalled.take().map_or(0, |(at, _)| at);
                    signal(&self.workers[at], Signal::CONT)
                }
            };
            if let Err(refusal) = done {
                return refusal;
            }
        }
    }

    /// Who has ended by itself has met something that no other one could do better.
    async fn look(&mut self) -> Result<(), Refusal> {
        for Worker { process, .. } in &mut self.workers {
            let failed = |e| Refusal::new(format!("a worker cannot be looked at: {e}"));
            if let Some(ended) = process.try_wait().map_err(failed)? {
                // An interruption from the keyboard reaches the workers too, and is to be told as that.
                tokio::time::sleep(LOOK).await;
                return Err(Refusal::new(format!("a worker ended by itself with {ended}; its own message is above")));
            }
        }
        Ok(())
    }

    /// SIGSTOP to one of the workers that handle messages, if it is time for it: which.
    fn stop(&mut self) -> Result<Option<usize>, Refusal> {
        if self.went_on_at == Some(self.decided.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        let works = |at: &usize| self.workers[*at].works.load(Ordering::Relaxed);
        let working: Vec<usize> = (0..self.workers.len()).filter(works).collect();
        let Some(at) = self.random.choice(working) else { return Ok(None) };
        signal(&self.workers[at], Signal::STOP)?;
        self.stalls += 1;
        Ok(Some(at))
    }

    /// SIGKILL to one of the workers, any but the one that is stopped: that one is to go on as a zombie. Another takes its
    /// place at once.
    fn kill(&mut self, spared: Option<usize>) -> Result<(), Refusal> {
        let at = self.random.usize(..self.workers.len());
        if spared == Some(at) {
            return Ok(());
        }
        let failed = |e: std::io::Error| Refusal::new(format!("a worker cannot be killed: {e}"));
        let Worker { process, works, .. } = &mut self.workers[at];
        let decided = self.decided.load(Ordering::Relaxed);
        if !works.load(Ordering::Relaxed) || self.killed_at.replace(decided) == Some(decided) {
            return Ok(());
        }
        process.kill().map_err(failed)?;
        process.wait().map_err(failed)?;
        self.workers[at].add_to(self.measured.as_ref(), false);
        self.workers[at] = (self.hire)(self.random.u64(..))?;
        self.kills += 1;
        Ok(())
    }

    /// Lets all go on, closes their standard inputs and waits for them.
    pub(crate) fn send_home(&mut self) -> Result<(), Refusal> {
        for worker in &mut self.workers {
            drop(worker.process.stdin.take());
            signal(worker, Signal::CONT)?;
        }
        for worker in &mut self.workers {
            let status = worker.process.wait().map_err(|e| Refusal::new(format!("a worker has vanished: {e}")))?;
            if !status.success() {
                return Err(Refusal::new(format!("a worker ended with {status}; its own message is above")));
            }
            worker.add_to(self.measured.as_ref(), true);
        }
        Ok(())
    }
}

impl Worker {
    /// Once it is gone.
    fn add_to(&mut self, measured: Option<&telemetry::Workers>, to_the_end: bool) {
        let told = self.told.take().and_then(|told| told.join().ok());
        if let (Some(measured), Some(page)) = (measured, told) {
            measured.add(&page, to_the_end);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Ended ones are no error; a stopped one would not see that its input has ended.
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

/// How long a worker is stopped, and what that is: so long that others have what it held when it goes on, where they ever do.
fn pause(database: &Database) -> (Duration, &'static str) {
    const LEASES: &str = "beyond their leases, then let go on";
    let (held, stopped) = match database.broker.as_ref().map(Broker::kind) {
        None | Some(Kind::Redis) => (LEASE, LEASES),
        // There it is hidden from others for longer than its lease lasts in the worker.
        Some(Kind::Nats) => (LEASE + Duration::from_millis(500), LEASES),
        Some(Kind::Sqs) => (LEASE + Duration::from_secs(1), LEASES),
        // Partitions are dealt anew after the session, and Tansu waits for who joins for half of one more.
        Some(Kind::Kafka) => (SESSION * 3 / 2, "beyond their sessions, then let go on"),
        // It is the worker's for as long as its connection is.
        Some(Kind::RabbitMq) => (LEASE, "then let go on; what they held stayed theirs"),
    };
    (held + BEYOND, stopped)
}

fn every(period: Option<Duration>) -> Interval {
    let period = period.unwrap_or(NEVER);
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

fn signal(worker: &Worker, signal: Signal) -> Result<(), Refusal> {
    let failed = |e: &dyn std::fmt::Display| Refusal::new(format!("a worker cannot be signalled: {e}"));
    let pid = i32::try_from(worker.process.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| failed(&"it has no process id"))?;
    kill_process(pid, signal).map_err(|e| failed(&e))
}
