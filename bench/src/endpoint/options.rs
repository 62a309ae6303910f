//! The command line of the figures of an endpoint.

use std::{path::PathBuf, time::Duration};

use crate::figures::{names, number};

/// Below these no bar is judged: `performance.md`, section 6, and for messages that are not due the bar's own number.
const JUDGED_ROUNDS: usize = 9;
const JUDGED_SECONDS: u64 = 10;
const JUDGED_KEYS: u64 = 1_000_000;
const JUDGED_PENDING: u64 = 1_000_000;
/// Enough to see that everything runs.
const QUICK_ROUNDS: usize = 3;
const QUICK_SECONDS: u64 = 1;
const QUICK_KEYS: u64 = 100_000;
const QUICK_PENDING: u64 = 100_000;
/// More would be a mistyped number.
const ROUNDS_MAX: u64 = 1000;
const SECONDS_MAX: u64 = 3600;
const NUMBER_MAX: u64 = 100_000_000;
/// Fewer could not be told from what an allocator does.
const NUMBER_MIN: u64 = 10_000;

/// Every figure, in the order in which they are taken.
const ALL: [&str; 6] = ["overhead", "latency", "keys", "pending", "pending-queue", "pending-schedule"];

pub(crate) const HELP: &str = "\
hapax-bench endpoint [OPTION...]: what an endpoint itself costs; nothing but queues in the process and stores in memory, except where said
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --only NAME,...  of overhead, latency, keys, pending, pending-queue, pending-schedule
                   overhead          CPU of a message above a loop by hand that decodes and encodes the same
                   latency           time of a message on an endpoint that has nothing else to do
                   keys              memory that keys leave behind which are not used any more
                   pending           CPU of a message beside very many that are not due, in the process's queues
                   pending-queue     the same in a durable queue in the store's SQLite file
                   pending-schedule  the same in a schedule there, where each message puts one more
  --rounds N       paired rounds of each figure (default 9)
  --seconds S      length of each run (default 10)
  --keys N         keys that come after a tenth as many (default 1000000)
  --pending N      messages that are not due (default 1000000)
  --quick          3 rounds of 1 s, 100000 keys and messages; with less than the defaults nothing is judged
  --dir DIR        where files are made and removed (default: the system's directory for temporary files)";

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) keys: u64,
    pub(crate) pending: u64,
    pub(crate) dir: PathBuf,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) const fn judged(&self) -> bool {
        self.rounds >= JUDGED_ROUNDS
            && self.seconds >= JUDGED_SECONDS
            && self.keys >= JUDGED_KEYS
            && self.pending >= JUDGED_PENDING
    }

    /// Length of each run.
    pub(crate) const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check: false,
            json: None,
            only: ALL.map(str::to_owned).to_vec(),
            rounds: JUDGED_ROUNDS,
            seconds: JUDGED_SECONDS,
            keys: JUDGED_KEYS,
            pending: JUDGED_PENDING,
            dir: std::env::temp_dir(),
        }
    }
}

/// Reads the arguments behind `endpoint`; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--dir" => options.dir = value()?.into(),
            "--only" => options.only = names(&value()?, &ALL)?,
            "--rounds" => options.rounds = number(&arg, &value()?, 1, ROUNDS_MAX)? as usize,
            "--seconds" => options.seconds = number(&arg, &value()?, 1, SECONDS_MAX)?,
            "--keys" => options.keys = number(&arg, &value()?, NUMBER_MIN, NUMBER_MAX)?,
            "--pending" => options.pending = number(&arg, &value()?, NUMBER_MIN, NUMBER_MAX)?,
            "--quick" => {
                (options.rounds, options.seconds) = (QUICK_ROUNDS, QUICK_SECONDS);
                (options.keys, options.pending) = (QUICK_KEYS, QUICK_PENDING);
            }
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see endpoint --help")),
        }
    }
    if options.dir.is_dir() {
        Ok(Some(options))
    } else {
        Err(format!("--dir {} is not a directory", options.dir.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_options_everything_is_measured_at_full_size() {
        let options = parse_line("").unwrap().unwrap();
        assert_eq!(options, Options::default());
        assert!(options.judged());
        assert!(ALL.iter().all(|name| HELP.contains(&format!("\n                   {name} "))));
    }

    #[test]
    fn what_is_smaller_than_the_defaults_is_not_judged() {
        let judged = |line: &str| parse_line(line).unwrap().unwrap().judged();
        assert!(judged("--only keys") && judged("--rounds 11"));
        for line in ["--quick", "--rounds 8", "--seconds 9", "--keys 999999", "--pending 999999"] {
            assert!(!judged(line), "{line}");
        }
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options =
            parse_line("--only latency,pending --rounds 3 --seconds 2 --keys 20000 --check").unwrap().unwrap();
        assert_eq!((options.only.len(), options.rounds, options.keys, options.check), (2, 3, 20_000, true));
        assert_eq!(options.time(), Duration::from_secs(2));
        assert!(parse_line("--only nap").unwrap_err().contains("unknown figure `nap`"));
        assert!(parse_line("--keys 99").unwrap_err().contains("from 10000"));
        assert!(parse_line("--rounds 0").unwrap_err().contains("from 1"));
        assert!(parse_line("--seconds").unwrap_err().contains("needs a value"));
        assert!(parse_line("--fast").unwrap_err().contains("endpoint --help"));
        assert_eq!(parse_line("--help").unwrap(), None);
    }
}
