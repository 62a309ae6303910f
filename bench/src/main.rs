//! Benchmarks: hapax against hand-written limits, interleaved in one run.
//!
//! A figure of one side alone says little on a machine that is shared. So each round runs the raw disk, the hand-written
//! loop and hapax one after the other, and what is judged is the median over the rounds of the ratio within a round. After
//! every run the books must add up: every id had its effect once.

mod anchor;
mod backlog;
mod books;
mod candidate;
mod cases;
#[cfg(test)]
mod control;
mod endpoint;
mod figure;
mod figures;
mod measure;
mod mysql;
mod options;
mod outbox;
mod plot;
mod postgres;
mod program;
mod report;
mod run;
mod service;
#[cfg_attr(not(any(feature = "dynamodb", feature = "cosmos")), allow(dead_code, reason = "none is compiled in"))]
mod services;
mod sql;
mod template;
#[cfg_attr(
    not(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "sqs")),
    allow(dead_code, reason = "none is compiled in")
)]
mod transport;
mod workload;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicU32, Ordering},
};

use cases::{Case, Round};
use measure::Machine;
use options::{Command, Options};
use report::{Finding, Report};
use run::Shape;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// What could not be run, or did not reach its bar.
const FAILED: u8 = 1;
/// What was asked for makes no sense.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("service") => return service_figures(args),
        Some("outbox") => return outbox_figures(args),
        Some("endpoint") => return endpoint_figures(args),
        Some("transport") => return transport_figures(args),
        Some(command) if let Some(service) = services::Service::of(command) => return services_figures(service, args),
        Some(command) if command == postgres::KIND.command => {
            return server_figures(&postgres::KIND, args, sql::bench::<postgres::Schema>);
        }
        Some(command) if command == mysql::KIND.command => return server_figures(&mysql::KIND, args, mysql::bench),
        Some(role) if role == mysql::KIND.role => {
            return ended(sql::work::<mysql::Database>(args).map(|()| true));
        }
        Some(role) if role == postgres::KIND.role => {
            return ended(sql::work::<postgres::Schema>(args).map(|()| true));
        }
        Some(endpoint::ROLE) => return ended(endpoint::work(args).map(|()| true)),
        Some(service::ROLE) => return ended(service::work(args).map(|()| true)),
        _ => {}
    }
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Help) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            return ExitCode::from(MISUSED);
        }
    };
    ended(bench(&options).map(|good| good || !options.check))
}

fn outbox_figures(args: impl Iterator<Item = String>) -> ExitCode {
    match outbox::parse(args) {
        Ok(Some(options)) => ended(outbox::bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", outbox::HELP);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn endpoint_figures(args: impl Iterator<Item = String>) -> ExitCode {
    match endpoint::parse(args) {
        Ok(Some(options)) => ended(endpoint::bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", endpoint::HELP);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn transport_figures(args: impl Iterator<Item = String>) -> ExitCode {
    match transport::parse(args) {
        Ok(Some(options)) => ended(transport::bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", transport::HELP);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn services_figures(service: services::Service, args: impl Iterator<Item = String>) -> ExitCode {
    match services::parse(service, args) {
        Ok(Some(options)) => ended(services::bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", services::HELP);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn service_figures(args: impl Iterator<Item = String>) -> ExitCode {
    match service::parse(args) {
        Ok(Some(options)) => ended(service::bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", service::HELP);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn server_figures(
    kind: &sql::Kind,
    args: impl Iterator<Item = String>,
    bench: fn(&sql::Options) -> Result<bool, AnyError>,
) -> ExitCode {
    match sql::options::parse(kind, args) {
        Ok(Some(options)) => ended(bench(&options).map(|good| good || !options.check)),
        Ok(None) => {
            println!("{}", sql::options::help(kind));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("hapax-bench: {problem}");
            ExitCode::from(MISUSED)
        }
    }
}

fn ended(done: Result<bool, AnyError>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("hapax-bench: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether no must is missed and no figure is void.
fn bench(options: &Options) -> Result<bool, AnyError> {
    let machine = Machine::of_this_run();
    let dir = Scratch::within(&options.dir)?;
    let mut findings = Vec::new();
    for &case in &options.cases {
        let dir = dir.below(case.name())?;
        let rounds = rounds(case, options, &dir.0)?;
        findings.extend(Finding::of(case, rounds, case.shape(options), options.judged()));
    }
    let report = Report::new(machine, options.clone(), findings);
    print!("{}", report.text());
    if let Some(file) = &options.json {
        let json = serde_json::to_vec_pretty(&report)?;
        std::fs::write(file, json).map_err(|e| format!("--json {}: {e}", file.display()))?;
    }
    Ok(report.is_good())
}

fn rounds(case: Case, options: &Options, dir: &Path) -> Result<Vec<Round>, AnyError> {
    let count = options.rounds;
    let mut rounds = Vec::with_capacity(count);
    for number in 1..=count {
        // Another seed each round; the same for both sides of it.
        let shape = Shape { seed: number as u64, ..case.shape(options) };
        let round = case.round(dir, &shape)?;
        let (name, ratio) = (case.name(), round.ratio());
        let usual = round.to_usual().map(|own| format!(", {own:.2} of its usual")).unwrap_or_default();
        let (anchor, hapax) = (&round.anchor.run.sample, &round.hapax.run.sample);
        eprintln!(
            "{name} {number}/{count}: loop {:.0}/s {:.2} us, hapax {:.0}/s {:.2} us, ratio {ratio:.2}{usual}",
            anchor.rate(),
            anchor.cpu_us(),
            hapax.rate(),
            hapax.cpu_us(),
        );
        rounds.push(round);
    }
    Ok(rounds)
}

/// A directory that is removed with all that is in it. No two have one name: who closes an SQLite file last removes its log by the
/// name, be it another file's by then.
struct Scratch(PathBuf);

impl Scratch {
    fn within(dir: &Path) -> Result<Self, AnyError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self::create(dir.join(format!("hapax-bench-{}-{number}", std::process::id())))
    }

    /// One in this one, which is removed earlier.
    fn below(&self, name: &str) -> Result<Self, AnyError> {
        Self::create(self.0.join(name))
    }

    fn create(path: PathBuf) -> Result<Self, AnyError> {
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
