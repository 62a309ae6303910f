//! Other libraries under the same workload, each as a program of its own from `bench/peers`: their dependencies are none of
//! ours.

use std::{
    fmt::Write as _,
    io::{BufWriter, Write},
    path::Path,
    process::Command,
};

use super::server::Database;
use crate::{
    AnyError,
    books::Books,
    figure::Figure,
    measure::Sample,
    program::Program,
    run::{Run, Shape},
    sql::{Beside, Cost, Options},
};

/// Deliveries for each second of a run: what is left over costs the peer nothing, and what is missing ends its window early.
const SUPPLIED_PER_SECOND: f64 = 10_000.0;

/// The case that peers are run beside.
const CASE: &str = "p1";
/// How many times the best of them hapax must be.
const TIMES_BEST: f64 = 15.0;

/// One peer.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Peer {
    /// Of its program.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How the workload is mapped to it.
    pub(super) mapping: &'static str,
    /// What it does not guarantee, or leaves to who uses it.
    pub(super) lacks: &'static str,
}

/// All, the one that the bar names first.
pub(super) const ALL: [Peer; 6] = [
    Peer {
        name: "graphile-worker",
        title: "graphile_worker + transaction by hand",
        mapping: "jobs are queued beforehand, untimed; 32 at a time, local queue of 500, completions gathered for 1 ms; each \
                  in a transaction of five statements: mark, lock, save, store what is to be sent",
        lacks: "dedup, state and outbox are ours, not its own; what is to be sent is stored and never sent; no order for an \
                entity but by the row's lock",
    },
    Peer {
        name: "apalis",
        title: "apalis-postgres + transaction by hand",
        mapping: "tasks are queued beforehand, untimed; 32 at a time, 500 fetched at once; the same transaction",
        lacks: "as graphile_worker; in addition its own key against repeats is checked only where a task is queued",
    },
    Peer {
        name: "backbone-outbox",
        title: "backbone-outbox",
        mapping: "deliveries come from within the process, 32 at a time; its inbox and outbox and our state in one \
                  transaction; its relay beside it, 100 a pass, 5 ms after an empty one; the window ends when all is sent",
        lacks: "no queue, no retries, no state; its relay takes no lock, so that two of them send twice; what was sent and \
                what was received is never removed",
    },
    Peer {
        name: "hexeract",
        title: "hexeract + transaction by hand",
        mapping: "deliveries come from within the process, 32 at a time; its outbox with our dedup and state in one \
                  transaction; four of its workers beside it, 100 a poll, 5 ms after an empty one; the window ends when all \
                  is sent",
        lacks: "no inbox: dedup and state are ours; no queue for what comes in; what was sent is never removed",
    },
    Peer {
        name: "outbox-postgres",
        title: "outbox-postgres + transaction by hand",
        mapping: "deliveries come from within the process, 32 at a time; its outbox with our dedup and state in one \
                  transaction; its manager beside it with its defaults, told by NOTIFY; the window ends when all is sent",
        lacks: "no inbox: dedup and state are ours; no queue for what comes in; a lease is not fenced, so that what outlasts \
                it is sent twice",
    },
    Peer {
        name: "restate",
        title: "Restate",
        mapping: "one node of two partitions, which it is fastest with here, its files in the folder for temporary ones, 64 \
                  calls at a time; a virtual object for each \
                  entity, the message's id as idempotency key; what is to be sent is a one-way call of a service, which is \
                  waited for; no PostgreSQL, and intake is included",
        lacks: "ids are known for a day from the end of their call; state is in its own files, not in the service's database",
    },
];

/// Names of all.
pub(super) const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ALL[at].name;
        at += 1;
    }
    names
};

/// Those that are run beside a case, in its rounds.
pub(crate) struct Peers(Vec<Measured>);

struct Measured {
    peer: Peer,
    /// What it did in each round, and how many times that hapax did.
    rounds: Vec<(Sample, f64)>,
    /// Why it is not measured.
    failed: Option<String>,
}

impl Beside for Peers {
    /// None beside most cases.
    fn of(case: &str, options: &Options) -> Self {
        let wanted = |peer: &&Peer| case == CASE && options.peers.iter().any(|name| name == peer.name);
        let beside = |peer: &Peer| Measured { peer: *peer, rounds: Vec::new(), failed: None };
        Self(ALL.iter().filter(wanted).map(beside).collect())
    }

    /// Runs each once; one that cannot be measured is told aloud and left out from then on.
    fn round(&mut self, options: &Options, shape: &Shape, ours: &Sample) {
        for Measured { peer, rounds, failed } in self.0.iter_mut().filter(|beside| beside.failed.is_none()) {
            match run(peer, options, shape) {
                Ok(Run { sample, .. }) => {
                    let times = ours.rate() / sample.rate();
                    eprintln!(
                        "    {}: {:.0}/s {:.1} us, hapax / it {times:.1}",
                        peer.title,
                        sample.rate(),
                        sample.cpu_us()
                    );
                    rounds.push((sample, times));
                }
                Err(error) => {
                    eprintln!("    {} is NOT MEASURED: {error}", peer.title);
                    *failed = Some(error.to_string());
                }
            }
        }
    }

    /// Of those that were measured in every round, with how the workload is mapped and what is not guaranteed.
    fn figures(self, case: &str) -> Vec<Figure> {
        let (measured, failed): (Vec<_>, Vec<_>) = self.0.into_iter().partition(|beside| beside.failed.is_none());
        let mut figures = Vec::new();
        // The first is the one that the bar names: without it there is no best.
        if let Some(first) = measured.iter().chain(&failed).find(|beside| beside.peer.name == ALL[0].name) {
            let best =
                |round: usize| measured.iter().map(|beside| beside.rounds[round].1).fold(f64::INFINITY, f64::min);
            let rounds = if first.failed.is_none() { first.rounds.len() } else { 0 };
            let name = format!("{case}: hapax / the best of {} peers", measured.len());
            figures.push(Figure::of(name, "", (0..rounds).map(best).collect()).median_at_least(TIMES_BEST));
        }
        for Measured { peer, rounds, .. } in measured {
            let title = peer.title;
            let figure = |name: String, unit, of: &dyn Fn(&(Sample, f64)) -> f64| {
                Figure::of(format!("{case}: {name}"), unit, rounds.iter().map(of).collect())
            };
            let notes =
                [format!("the workload there: {}", peer.mapping), format!("not guaranteed there: {}", peer.lacks)];
            figures.push(figure(title.to_owned(), "/s", &|(sample, _)| sample.rate()).notes(notes));
            figures.push(figure(format!("CPU of both sides, each, of {title}"), "us", &|(sample, _)| sample.cpu_us()));
            figures.push(figure(format!("hapax / {title}"), "", &|(_, times)| *times));
        }
        for Measured { peer, failed, .. } in failed {
            let note = [format!("NOT MEASURED: {}", failed.unwrap_or_default())];
            figures.push(Figure::of(format!("{case}: {}", peer.title), "/s", Vec::new()).notes(note));
        }
        figures
    }
}

/// What a peer does in the time of `shape`, with books that add up.
fn run(peer: &Peer, options: &Options, shape: &Shape) -> Result<Run, AnyError> {
    let program = options.peers_dir.join(peer.name);
    if !program.exists() {
        let missing = "is not there: `cargo xtask bench postgres --peers` builds it and says why where it cannot";
        return Err(format!("{} {missing}", program.display()).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let database = runtime.block_on(Database::create(options.server(), peer.name))?;
    let done = start(&program, &database.url, shape).and_then(|program| {
        let before = runtime.block_on(database.cost())?;
        let reported: Reported = program.measured()?;
        let after = runtime.block_on(database.cost())?;
        // The whole run is counted, since the window opens within; so it is scaled to the deliveries of the window.
        let share =
            (reported.sample.deliveries as f64 * (1.0 - shape.repeats) / reported.books.distinct as f64).min(1.0);
        let Sampled { seconds, deliveries, cpu_seconds } = reported.sample;
        let mut sample = Sample { seconds, deliveries, cpu_seconds, ..Sample::default() };
        Cost::add_to(&mut sample, before, after, share);
        Ok((sample, reported.books))
    });
    let removed = runtime.block_on(database.remove());
    let (sample, books) = done?;
    removed?;
    let run = Run { sample, books: books.books() };
    match books.problem() {
        None => Ok(run),
        Some(problem) => Err(format!("its books do not add up: {problem}").into()),
    }
}

/// One that has all it needs to begin.
fn start(program: &Path, database: &str, shape: &Shape) -> Result<Program, AnyError> {
    let mut command = Command::new(program);
    command.args(["--database", database, "--seconds", &shape.time.as_secs_f64().to_string()]);
    let mut program = Program::start(&mut command)?;
    supply(&mut program, shape)?;
    program.ready()?;
    Ok(program)
}

fn supply(program: &mut Program, shape: &Shape) -> Result<(), AnyError> {
    let (mut workload, mut input) = (shape.workload(), BufWriter::new(&mut program.input));
    let seconds = (shape.time + shape.warm_up()).as_secs_f64();
    let mut line = String::new();
    for _ in 0..(SUPPLIED_PER_SECOND * seconds) as u64 {
        let message = workload.next();
        line.clear();
        write!(line, "{} ", uuid::Uuid::from_bytes(message.id).simple())?;
        input.write_all(line.as_bytes())?;
        input.write_all(&message.body)?;
        input.write_all(b"\n")?;
    }
    input.write_all(b"\n")?;
    Ok(input.flush()?)
}

/// What a program says in the end.
#[derive(Debug, serde::Deserialize)]
struct Reported {
    sample: Sampled,
    books: Found,
}

#[derive(Debug, serde::Deserialize)]
struct Sampled {
    seconds: f64,
    deliveries: u64,
    cpu_seconds: f64,
}

/// What it has found in its database.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
struct Found {
    distinct: u64,
    effects: u64,
    versions: Option<u64>,
    entries: Option<u64>,
    outgoing: u64,
}

impl Found {
    fn books(&self) -> Books {
        let Self { distinct, effects, entries, outgoing, .. } = *self;
        Books { distinct, effects, dedup_entries: entries, sent: outgoing, sent_each: 1, ..Books::default() }
    }

    fn problem(&self) -> Option<String> {
        let Self { distinct, versions, .. } = *self;
        let wrong = versions.filter(|versions| *versions != distinct);
        let wrong = wrong.map(|versions| format!("{distinct} distinct ids wrote states {versions} times"));
        self.books().problem().or(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Found = Found { distinct: 9, effects: 9, versions: Some(9), entries: Some(9), outgoing: 9 };

    #[test]
    fn the_help_names_every_peer() {
        assert!(NAMES.iter().all(|name| crate::postgres::KIND.own_help.contains(name)));
    }

    #[test]
    fn a_peer_whose_books_do_not_add_up_has_no_figure() {
        assert_eq!(GOOD.problem(), None);
        for wrong in [
            Found { effects: 10, ..GOOD },
            Found { versions: Some(10), ..GOOD },
            Found { entries: Some(8), ..GOOD },
            Found { outgoing: 8, ..GOOD },
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
        }
    }
}
