//! The command line of the figures of a service.

use std::path::PathBuf;

use crate::figures::{names, number};

/// Rounds below which no bar is judged.
const JUDGED_ROUNDS: usize = 5;
/// More would be a mistyped number.
const ROUNDS_MAX: u64 = 1000;
const NUMBER_MAX: u64 = 1_000_000_000;
/// Fewer could not be spread, or counted in hundredths.
const NUMBER_MIN: u64 = 1000;

/// Every figure, in the order in which they are taken.
const ALL: [&str; 6] = ["recovery", "wake", "startup", "sweep", "evicting", "memory"];

pub(crate) const HELP: &str = "\
hapax-bench service [OPTION...]: how long a service takes to come back, to wake up, to start, to sweep; what eviction costs
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --only NAME,...  of recovery, wake, startup, sweep, evicting, memory
  --rounds N       rounds of each figure but memory (default 5)
  --entries N      dedup entries of startup (default 10000000)
  --entities N     entities of sweep (default 1000000)
  --messages N     messages of memory (default 10000000; a tenth of them through the durable queue)
  --quick          a hundredth of all these, 2 rounds; with less than the defaults nothing is judged
  --dir DIR        where the files are made and removed (default: the system's directory for temporary files)";

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) entries: u64,
    pub(crate) entities: u32,
    pub(crate) messages: u64,
    pub(crate) dir: PathBuf,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        let full = Self::default();
        self.rounds >= full.rounds
            && self.entries >= full.entries
            && self.entities >= full.entities
            && self.messages >= full.messages
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check: false,
            json: None,
            only: ALL.map(str::to_owned).to_vec(),
            rounds: JUDGED_ROUNDS,
            entries: 10_000_000,
            entities: 1_000_000,
            messages: 10_000_000,
            dir: std::env::temp_dir(),
        }
    }
}

/// Reads the arguments behind `service`; `None`: help is asked for.
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
            "--entries" => options.entries = number(&arg, &value()?, NUMBER_MIN, NUMBER_MAX)?,
            "--entities" => options.entities = number(&arg, &value()?, NUMBER_MIN, NUMBER_MAX)? as u32,
            "--messages" => options.messages = number(&arg, &value()?, NUMBER_MIN, NUMBER_MAX)?,
            "--quick" => {
                let Options { entries, entities, messages, .. } = Options::default();
                options.rounds = 2;
                (options.entries, options.entities, options.messages) = (entries / 100, entities / 100, messages / 100);
            }
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see service --help")),
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
        assert!(ALL.iter().all(|name| HELP.contains(name)));
    }

    #[test]
    fn what_is_smaller_than_the_defaults_is_not_judged() {
        let judged = |line: &str| parse_line(line).unwrap().unwrap().judged();
        assert!(judged("") && judged("--only wake") && judged("--rounds 9"));
        for line in ["--quick", "--rounds 4", "--entries 9999999", "--entities 999999", "--messages 9999999"] {
            assert!(!judged(line), "{line}");
        }
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options = parse_line("--only wake,sweep --rounds 3 --entities 7000 --check").unwrap().unwrap();
        assert_eq!((options.only.len(), options.rounds, options.entities, options.check), (2, 3, 7000, true));
        assert!(parse_line("--only nap").unwrap_err().contains("unknown figure `nap`"));
        assert!(parse_line("--rounds 0").unwrap_err().contains("from 1"));
        assert!(parse_line("--entities 99").unwrap_err().contains("from 1000"));
        assert!(parse_line("--rounds").unwrap_err().contains("needs a value"));
        assert!(parse_line("--fast").unwrap_err().contains("--help"));
        assert_eq!(parse_line("--help").unwrap(), None);
    }
}
