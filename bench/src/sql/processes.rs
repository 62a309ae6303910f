//! Two processes on the same entities: nobody keeps their messages apart.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{Address, Cost, Load, Place, backlog::swept, candidate::audit};
use crate::{
    AnyError,
    books::Books,
    candidate::{endpoint::fed, preload},
    measure::Sample,
    run::{Run, Shape},
    workload::{Ids, REPEATS},
};

const PROCESSES: u64 = 2;
/// Of the workloads: no two processes, and no other round, have the same.
const SEED_STEP: u64 = 1_000_003;

/// What they did together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Together {
    pub(super) sample: Sample,
    /// Passes that were made again, for a share of the deliveries of the whole run.
    pub(super) disturbed: f64,
    /// Deadlocks of the whole run that the server has seen.
    pub(super) deadlocks: u64,
}

/// Two processes with the in-flight of `load` each, and one set of books for both.
pub(super) async fn together<P: Place>(place: &P, load: &Load) -> Result<Together, AnyError> {
    let store = P::open_usual(place.address(), true).await?;
    preload(&store, load.shape.entities).await?;
    P::close(store).await;
    let deadlocks = place.deadlocks().await?;
    let start = |number| Worker::start::<P>(place.address(), &load.shape, load.shape.seed + number * SEED_STEP);
    let mut workers = (1..=PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.expect("ready")?;
    }
    let before = place.cost().await?;
    workers.iter_mut().try_for_each(Worker::go)?;
    // Both are measured over the same time, but for the blink between the two lines.
    let mut runs = Vec::new();
    for worker in &mut workers {
        runs.push(worker.report()?);
    }
    let after = place.cost().await?;
    let all = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
    let (distinct, sent, disturbed) =
        (all(&|run| run.books.distinct), all(&|run| run.books.sent), all(&|run| run.books.disturbed));
    let books = Books { distinct, sent, sent_each: 1, disturbed, ..Books::default() };
    swept(place).await?;
    let books = audit(place, load, books).await?;
    if let Some(problem) = books.problem() {
        return Err(format!("the books of both processes do not add up: {problem}").into());
    }
    let deliveries = all(&|run| run.sample.deliveries);
    let whole = distinct as f64 / (1.0 - load.shape.repeats);
    let share = (deliveries as f64 / whole).min(1.0);
    let mut sample = Sample {
        seconds: runs.iter().map(|run| run.sample.seconds).fold(0.0, f64::max),
        deliveries,
        cpu_seconds: runs.iter().map(|run| run.sample.cpu_seconds).sum::<f64>(),
        commits: runs.iter().map(|run| run.sample.commits).sum(),
        ..Sample::default()
    };
    Cost::add_to(&mut sample, before, after, share);
    let deadlocks = place.deadlocks().await? - deadlocks;
    Ok(Together { sample, disturbed: disturbed as f64 / whole, deadlocks })
}

/// One of the processes, which ends with the guard.
struct Worker {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start<P: Place>(at: &Address, shape: &Shape, seed: u64) -> Result<Self, AnyError> {
        let shape = [u64::from(shape.entities), shape.in_flight as u64, u64::try_from(shape.time.as_millis())?, seed];
        let mut command = Command::new(std::env::current_exe()?);
        // Not an argument: others could see a password.
        command.env(URL, &at.url).args([P::KIND.role, &at.name]).args(shape.map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("a process without output")?;
        Ok(Self { child, out: BufReader::new(out) })
    }

    fn go(&mut self) -> Result<(), AnyError> {
        let input = self.child.stdin.as_mut().ok_or("a process without input")?;
        Ok(input.write_all(b"go\n")?)
    }

    fn expect(&mut self, word: &str) -> Result<(), AnyError> {
        let line = self.line()?;
        if line == word { Ok(()) } else { Err(format!("a process said `{line}` instead of `{word}`").into()) }
    }

    fn report(&mut self) -> Result<Run, AnyError> {
        let line = self.line()?;
        Ok(serde_json::from_str(&line).map_err(|e| format!("a process said `{line}` instead of its report: {e}"))?)
    }

    fn line(&mut self) -> Result<String, AnyError> {
        let mut line = String::new();
        if self.out.read_line(&mut line)? == 0 {
            return Err("a process ended before it was done; what it said is above".into());
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Variable of a process with the server's URL.
const URL: &str = "HAPAX_BENCH_SERVER";

/// What one of the processes does.
///
/// # Errors
/// When it cannot.
pub(crate) fn work<P: Place>(args: impl Iterator<Item = String>) -> Result<(), AnyError> {
    let args: Vec<String> = args.collect();
    let [name, entities, in_flight, millis, seed] = &args[..] else {
        return Err(format!("a worker is started by hapax-bench {}", P::KIND.command).into());
    };
    let at = Address { url: std::env::var(URL)?, name: name.clone() };
    let shape = Shape {
        entities: entities.parse()?,
        repeats: REPEATS,
        ids: Ids::Random,
        outgoing: true,
        in_flight: in_flight.parse()?,
        batch: 1,
        entries: 0,
        queued: 0,
        pending: 0,
        time: Duration::from_millis(millis.parse()?),
        deliveries_max: u64::MAX,
        seed: seed.parse()?,
        timed: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = P::open_usual(&at, false).await?;
        println!("ready");
        std::io::stdout().flush()?;
        if std::io::stdin().lines().next().transpose()?.as_deref() != Some("go") {
            return Err("`go` was not said".into());
        }
        let counted = store.clone();
        let run = fed(store.clone(), Box::new(move || Some(P::commits(&counted))), &shape, false).await?;
        P::close(store).await;
        println!("{}", serde_json::to_string(&run)?);
        Ok(())
    })
}
