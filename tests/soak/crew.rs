//! The worker processes, and what is done to them.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{AnyError, counts::Counts, messages::Version, worker::Plan};

/// What a worker says once it handles messages.
pub(crate) const WORKING: &str = "working";
/// Of what it has logged: the last lines.
const LOG_LINES: usize = 200;
/// Of a lease: for so long a worker stands still, at least, and for one more at most. RabbitMQ needs half as much again as a lease to see that two
/// heartbeats of a second have not come, and sees nothing of one who stands still for less.
const STALL: f64 = 1.6;
/// A worker that does not end within this when it is asked to is stuck: far above what it grants itself, for a machine that is busy otherwise.
const STOP_LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// What a worker has told.
#[derive(Debug, Default)]
struct Said {
    works: AtomicBool,
    counts: Mutex<Counts>,
    /// Whatever else: the last of it is where its fuse has burnt, if it has.
    words: Mutex<String>,
    log: Mutex<VecDeque<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    version: Version,
    /// At which call of a port it is to die.
    fuse: Option<String>,
    said: Arc<Said>,
    readers: Vec<JoinHandle<()>>,
}

impl Worker {
    fn hire(plan: &Plan) -> Result<Self, AnyError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", &serde_json::to_string(plan)?]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (input, said) = (process.stdin.take(), Arc::new(Said::default()));
        let (output, errors) = (process.stdout.take(), process.stderr.take());
        let mut readers = Vec::new();
        if let Some(output) = output {
            let said = said.clone();
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    match serde_json::from_str(&line) {
                        Ok(counts) => *locked(&said.counts) = counts,
                        Err(_) => {
                            said.works.store(line == WORKING, Ordering::Relaxed);
                            *locked(&said.words) = line;
                        }
                    }
                }
            }));
        }
        if let Some(errors) = errors {
            let said = said.clone();
            readers.push(std::thread::spawn(move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    let mut log = locked(&said.log);
                    if log.len() == LOG_LINES {
                        log.pop_front();
                    }
                    log.push_back(line);
                }
            }));
        }
        Ok(Self { process, input, version: plan.version, fuse: plan.fuse.clone(), said, readers })
    }

    fn signal(&self, signal: Signal) {
        // One that is gone is seen elsewhere.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }

    /// All that it has said, once it is gone.
    fn heard(&mut self) -> &Said {
        for reader in self.readers.drain(..) {
            drop(reader.join());
        }
        &self.said
    }

    /// What it has met, once it is gone.
    fn counts(&mut self) -> Counts {
        *locked(&self.heard().counts)
    }

    /// How it has ended, once it is gone. By SIGKILL it ends well where its fuse has said so, and nowhere else: of a machine that is short of memory
    /// the kernel sends the same.
    fn how(&mut self, status: ExitStatus) -> Result<Ended, AnyError> {
        let due = self.fuse.as_deref().and_then(last_words);
        let said = self.heard();
        let burnt = due.is_some_and(|due| locked(&said.words).eq_ignore_ascii_case(&due));
        match status.signal() {
            Some(signal) if signal == Signal::KILL.as_raw() && burnt => Ok(Ended::Killed),
            _ if status.success() => Ok(Ended::Home),
            _ => Err(format!("a worker has ended with {status}: {}", log(said)).into()),
        }
    }

    fn killed(mut self) -> Counts {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.counts()
    }
}

/// What a fuse says where it burns at this point, `NAME-N-SIDE`, but for capitals.
fn last_words(point: &str) -> Option<String> {
    let mut parts = point.split('-');
    let (name, side) = (parts.next()?, parts.next_back()?);
    Some(format!("{side} {name}"))
}

/// What was done to workers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) kills: u64,
    pub(crate) stalls: u64,
    pub(crate) replaced: u64,
}

/// The worker processes.
#[derive(Debug)]
pub(crate) struct Crew {
    plan: Plan,
    workers: Vec<Worker>,
    /// Of those that are gone.
    gone: Counts,
    pub(crate) done: Done,
}

impl Crew {
    pub(crate) fn hire(plan: Plan, workers: usize) -> Result<Self, AnyError> {
        let workers = (0..workers).map(|_| Worker::hire(&plan)).collect::<Result<_, _>>()?;
        Ok(Self { plan, workers, gone: Counts::default(), done: Done::default() })
    }

    /// SIGKILL, for one that works; another takes its place.
    pub(crate) fn kill(&mut self, random: &mut fastrand::Rng) -> Result<bool, AnyError> {
        let Some(at) = self.one_that_works(random) else { return Ok(false) };
        let version = self.workers[at].version;
        let new = Worker::hire(&Plan { version, ..self.plan.clone() })?;
        let worker = std::mem::replace(&mut self.workers[at], new);
        self.gone += worker.killed();
        self.done.kills += 1;
        Ok(true)
    }

    /// SIGSTOP beyond its lease, then SIGCONT.
    pub(crate) async fn stall(&mut self, random: &mut fastrand::Rng) -> bool {
        let Some(at) = self.one_that_works(random) else { return false };
        self.workers[at].signal(Signal::STOP);
        tokio::time::sleep(self.plan.times.lease.mul_f64(STALL + random.f64())).await;
        self.workers[at].signal(Signal::CONT);
        self.done.stalls += 1;
        true
    }

    /// One goes home, and another of the other version comes: a step of a rolling restart.
    pub(crate) async fn replace(&mut self, random: &mut fastrand::Rng) -> Result<bool, AnyError> {
        let Some(at) = self.one_that_works(random) else { return Ok(false) };
        let version = if self.workers[at].version == Version::Today { Version::Next } else { Version::Today };
        let new = Worker::hire(&Plan { version, ..self.plan.clone() })?;
        let worker = std::mem::replace(&mut self.workers[at], new);
        self.gone += gone_home(worker).await?.1;
        self.done.replaced += 1;
        Ok(true)
    }

    /// All go home. What they have met, and what became of those that have not come there.
    pub(crate) async fn ends(mut self) -> (Counts, Vec<String>) {
        let mut astray = Vec::new();
        for worker in std::mem::take(&mut self.workers) {
            match gone_home(worker).await {
                Ok((_, counts)) => self.gone += counts,
                Err(why) => astray.push(why.to_string()),
            }
        }
        (self.gone, astray)
    }

    /// All are killed. What they have met.
    pub(crate) fn killed(mut self) -> Counts {
        for worker in std::mem::take(&mut self.workers) {
            self.gone += worker.killed();
        }
        self.gone
    }

    /// How the first one has ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<Ended>, AnyError> {
        let Some(worker) = self.workers.first_mut() else { return Ok(None) };
        match worker.process.try_wait()? {
            None => Ok(None),
            Some(status) => worker.how(status).map(Some),
        }
    }

    /// The first one goes home, or is killed on its way.
    pub(crate) async fn goes_home(mut self) -> Result<Ended, AnyError> {
        match self.workers.pop() {
            Some(worker) => Ok(gone_home(worker).await?.0),
            None => Ok(Ended::Home),
        }
    }

    /// One that has ended by itself is a fault.
    pub(crate) fn look(&mut self) -> Result<(), AnyError> {
        for worker in &mut self.workers {
            if let Some(status) = worker.process.try_wait()? {
                return Err(format!("a worker has ended by itself, {status}: {}", log(&worker.said)).into());
            }
        }
        Ok(())
    }

    /// The last lines of each.
    pub(crate) fn logs(&self) -> String {
        let logs = self.workers.iter().enumerate();
        logs.map(|(at, worker)| format!("worker {at}:\n{}\n", log(&worker.said))).collect()
    }

    fn one_that_works(&self, random: &mut fastrand::Rng) -> Option<usize> {
        let works = |at: &usize| self.workers[*at].said.works.load(Ordering::Relaxed);
        random.choice((0..self.workers.len()).filter(works).collect::<Vec<_>>())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in self.workers.drain(..) {
            worker.killed();
        }
    }
}

fn log(said: &Said) -> String {
    locked(&said.log).iter().map(|line| format!("{line}\n")).collect()
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, when it was asked to.
    Home,
    /// By SIGKILL, where its fuse has burnt.
    Killed,
}

fn does_not_stop(worker: Worker) -> AnyError {
    let why = format!("a worker does not stop: {}", log(&worker.said));
    worker.killed();
    why.into()
}

/// How it ended, and what it has met.
async fn gone_home(mut worker: Worker) -> Result<(Ended, Counts), AnyError> {
    drop(worker.input.take());
    let begun = tokio::time::Instant::now();
    let status = loop {
        match worker.process.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() > STOP_LIMIT => return Err(does_not_stop(worker)),
            None => tokio::time::sleep(LOOK).await,
        }
    };
    Ok((worker.how(status)?, worker.counts()))
}
