//! The command line.

use std::{path::PathBuf, time::Duration};

use crate::cases::Case;

/// Rounds and length of a window below which no bar is judged: `performance.md`, section 6.
pub(crate) const JUDGED_ROUNDS: usize = 9;
/// See [`JUDGED_ROUNDS`].
pub(crate) const JUDGED_TIME: Duration = Duration::from_secs(10);
/// See [`JUDGED_ROUNDS`].
pub(crate) const JUDGED_ENTRIES: u64 = 10_000_000;
/// Enough to see that everything runs.
const QUICK_ROUNDS: usize = 3;
const QUICK_TIME: Duration = Duration::from_secs(2);
/// More would be a mistyped number.
const ROUNDS_MAX: usize = 1000;
const SECONDS_MAX: u64 = 3600;
const ENTRIES_MAX: u64 = 1_000_000_000;

/// What is to be measured, and how.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    /// Fail when a must is missed or a figure is void.
    pub(crate) check: bool,
    /// Where everything is written to, as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Which cases.
    pub(crate) cases: Vec<Case>,
    /// Rounds of each case.
    pub(crate) rounds: usize,
    /// Length of the measured window of each run.
    pub(crate) time: Duration,
    /// Dedup entries where there are many.
    pub(crate) entries: u64,
    /// The disk: where the database files are.
    pub(crate) dir: PathBuf,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        self.rounds >= JUDGED_ROUNDS && self.time >= JUDGED_TIME && self.entries >= JUDGED_ENTRIES
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check: false,
            json: None,
            cases: Case::ALL.to_vec(),
            rounds: JUDGED_ROUNDS,
            time: JUDGED_TIME,
            entries: JUDGED_ENTRIES,
            dir: std::env::temp_dir(),
        }
    }
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Run(Options),
    Help,
}

/// What the first argument may be.
const BACKENDS: &str = "sqlite, endpoint, service, outbox, postgres, mysql, dynamodb, cosmos";

pub(crate) const HELP: &str = "\
hapax-bench sqlite [OPTION...]: hapax against hand-written loops on the same driver, interleaved
  --check          exit with 1 when a must is missed or a figure is void
  --json FILE      write machine, settings and every round to FILE
  --only CASE,...  of s1a, s1b, s2, queue, wide, c3-ordered, c3-random, c4, c5, hot
  --rounds N       paired rounds of each case (default 9)
  --seconds S      length of each run (default 10)
  --entries N      dedup entries of c3-ordered and c3-random (default 10000000; with fewer nothing is judged)
  --quick          3 rounds of 2 s: nothing is judged
  --dir DIR        where the database files are made and removed (default: the system's directory for temporary files)
hapax-bench endpoint [OPTION...]: what an endpoint itself costs: CPU, latency, memory (see endpoint --help)
hapax-bench service [OPTION...]: recovery, wake-up, start-up, sweep, eviction, memory (see service --help)
hapax-bench postgres [OPTION...]: the store on a PostgreSQL server (see postgres --help)
hapax-bench mysql [OPTION...]: the store on a MariaDB server (see mysql --help)";

/// Reads the arguments behind the program's name.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut args = args.into_iter();
    match args.next().as_deref() {
        Some("sqlite") => {}
        Some("--help" | "-h" | "help") => return Ok(Command::Help),
        Some(other) => return Err(format!("unknown backend `{other}`; there are: {BACKENDS}")),
        None => return Err(format!("no backend is named; there are: {BACKENDS} (see --help)")),
    }
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let mut value = |what: &str| args.next().ok_or_else(|| format!("{arg} needs {what}"));
        match arg.as_str() {
            "--check" => options.check = true,
            "--quick" => (options.rounds, options.time) = (QUICK_ROUNDS, QUICK_TIME),
            "--json" => options.json = Some(value("a file")?.into()),
            "--dir" => options.dir = value("a directory")?.into(),
            "--only" => options.cases = cases(&value("cases")?)?,
            "--rounds" => options.rounds = number(&arg, &value("a number")?, ROUNDS_MAX as u64)? as usize,
            "--seconds" => options.time = Duration::from_secs(number(&arg, &value("a number")?, SECONDS_MAX)?),
            "--entries" => options.entries = number(&arg, &value("a number")?, ENTRIES_MAX)?,
            "--help" | "-h" => return Ok(Command::Help),
            _ => return Err(format!("unknown option `{arg}`; see --help")),
        }
    }
    if !options.dir.is_dir() {
        return Err(format!("--dir {} is not a directory", options.dir.display()));
    }
    Ok(Command::Run(options))
}

fn cases(list: &str) -> Result<Vec<Case>, String> {
    let known = || Case::ALL.map(Case::name).join(", ");
    let case = |name: &str| Case::ALL.into_iter().find(|case| case.name() == name);
    list.split(',')
        .map(|name| case(name).ok_or_else(|| format!("unknown case `{name}`; there are: {}", known())))
        .collect()
}

fn number(option: &str, text: &str, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from 1 to {max}, not `{text}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Options, String> {
        match parse(line.split_whitespace().map(str::to_owned))? {
            Command::Run(options) => Ok(options),
            Command::Help => Err("help".into()),
        }
    }

    #[test]
    fn without_options_everything_runs_long_enough_to_be_judged() {
        let options = parse_line("sqlite").unwrap();
        assert!(options.judged());
        assert_eq!(options.cases, Case::ALL);
    }

    #[test]
    fn a_quick_run_is_not_judged() {
        assert!(!parse_line("sqlite --quick").unwrap().judged());
        assert!(!parse_line("sqlite --rounds 8").unwrap().judged());
        assert!(!parse_line("sqlite --seconds 9").unwrap().judged());
        assert!(!parse_line("sqlite --entries 9999999").unwrap().judged());
    }

    #[test]
    fn what_is_not_known_is_refused_in_one_line() {
        for line in [
            "",
            "oracle",
            "sqlite --fast",
            "sqlite --only s1a,s9",
            "sqlite --rounds 0",
            "sqlite --seconds x",
            "sqlite --entries 0",
            "sqlite --json",
            "sqlite --dir /no/such/place",
        ] {
            let problem = parse_line(line).unwrap_err();
            assert!(!problem.is_empty() && !problem.contains('\n'), "{line}: {problem}");
        }
    }

    #[test]
    fn cases_are_chosen_by_name() {
        assert_eq!(parse_line("sqlite --only s2,c5").unwrap().cases, [Case::S2, Case::C5]);
    }

    #[test]
    fn the_help_names_every_case() {
        let line = HELP.lines().find_map(|line| line.trim().strip_prefix("--only")).unwrap();
        let (_, names) = line.split_once(" of ").unwrap();
        assert!(names.split(", ").eq(Case::ALL.map(Case::name)), "{names}");
    }
}
