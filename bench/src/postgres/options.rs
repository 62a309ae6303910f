//! The command line of the figures on PostgreSQL.

use std::{path::PathBuf, time::Duration};

use super::peers;

/// Below these no bar is judged (`performance.md`, section 6).
const JUDGED_ROUNDS: usize = 9;
const JUDGED_TIME: Duration = Duration::from_secs(10);
const ROUNDS_MAX: usize = 1000;
const SECONDS_MAX: f64 = 3600.0;
/// Where the server is, unless told otherwise.
const SERVER: &str = "HAPAX_TEST_POSTGRES";

/// Every case, in the order in which they are run.
pub(super) const ALL: [&str; 10] = ["p1", "p2", "p3", "p4", "c1", "c2", "c3", "c4", "q1", "two"];

pub(crate) const HELP: &str = "\
hapax-bench postgres [OPTION...]: the store on a PostgreSQL server beside hand-written loops on the same server
  --server URL     the server (default: $HAPAX_TEST_POSTGRES, or else postgres://postgres@127.0.0.1/test); schemas of its
                   own are made in it and removed
  --check          exit with 1 when a bar is missed; books that do not add up always fail
  --json FILE      write machine, settings and figures to FILE
  --only NAME,...  of p1 (saturated), p2 (unbatched, 32 in flight), p3 (one at a time), p4 (one entity), c1 (200,000
                   entities), c2 (many outgoing messages wait), c3 (many dedup entries), c4 (half are repeats), q1 (the
                   queue alone), two (two processes on the same entities)
  --peers          other libraries in the rounds of p1, and their ratios; programs that cannot be run are told aloud
  --peer NAME,...  only these of them: graphile-worker, apalis, backbone-outbox, hexeract, outbox-postgres, restate
  --peers-dir DIR  where their programs are (default target/peers/release, where cargo xtask bench builds them)
  --plots          instead of the cases: speed, latency and cost by messages in flight and by entities, as a page with
                   tables and plots in docs/bench
  --plots-dir DIR  there instead
  --rounds N       paired rounds (default 9)
  --seconds S      of each run (default 10)
  --entries N      dedup entries of c3 (default 10000000)
  --backlog N      outgoing messages that wait in c2 (default 1000000)
  --quick          one round of a second; with less than the defaults nothing is judged";

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Options {
    /// Not shown: it may hold a password.
    #[serde(skip)]
    pub(crate) server: String,
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) entries: u64,
    pub(crate) backlog: u64,
    /// Names of the peers that are run as well.
    pub(crate) peers: Vec<String>,
    pub(crate) peers_dir: PathBuf,
    /// Whether the page is written instead of the cases being run.
    pub(crate) plots: bool,
    pub(crate) plots_dir: PathBuf,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        let usual = Self::default();
        let is_long = self.rounds >= JUDGED_ROUNDS && self.time >= JUDGED_TIME;
        is_long && self.entries >= usual.entries && self.backlog >= usual.backlog
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server: std::env::var(SERVER).unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".into()),
            check: false,
            json: None,
            only: ALL.map(str::to_owned).to_vec(),
            rounds: JUDGED_ROUNDS,
            time: JUDGED_TIME,
            entries: 10_000_000,
            backlog: 1_000_000,
            peers: Vec::new(),
            peers_dir: "target/peers/release".into(),
            plots: false,
            plots_dir: "docs/bench".into(),
        }
    }
}

/// Reads the arguments behind `postgres`; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => options.server = value()?,
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only = names("case", &ALL, &value()?)?,
            "--peers" => options.peers = peers::ALL.map(|peer| peer.name.to_owned()).to_vec(),
            "--peer" => options.peers = names("peer", &peers::ALL.map(|peer| peer.name), &value()?)?,
            "--peers-dir" => options.peers_dir = value()?.into(),
            "--plots" => options.plots = true,
            "--plots-dir" => options.plots_dir = value()?.into(),
            "--rounds" => options.rounds = number(&arg, &value()?, 1, ROUNDS_MAX)?,
            "--entries" => options.entries = number(&arg, &value()?, 1000, 1_000_000_000)? as u64,
            "--backlog" => options.backlog = number(&arg, &value()?, 1000, 100_000_000)? as u64,
            "--seconds" => {
                let text = value()?;
                let seconds = text.parse().ok().filter(|seconds| (0.1..=SECONDS_MAX).contains(seconds));
                let seconds =
                    seconds.ok_or_else(|| format!("{arg} takes seconds from 0.1 to {SECONDS_MAX}, not `{text}`"))?;
                options.time = Duration::from_secs_f64(seconds);
            }
            "--quick" => {
                (options.rounds, options.time) = (1, Duration::from_secs(1));
                (options.entries, options.backlog) = (100_000, 10_000);
            }
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see postgres --help")),
        }
    }
    Ok(Some(options))
}

fn number(option: &str, text: &str, min: usize, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from {min} to {max}, not `{text}`"))
}

fn names(kind: &str, known: &[&str], list: &str) -> Result<Vec<String>, String> {
    let name = |name: &str| match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("unknown {kind} `{name}`; there are: {}", known.join(", "))),
    };
    list.split(',').map(name).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_smaller_than_the_defaults_is_not_judged() {
        let judged = |line: &str| parse_line(line).unwrap().unwrap().judged();
        assert!(judged("") && judged("--only p1,c3") && judged("--rounds 11"));
        for line in ["--quick", "--rounds 8", "--seconds 9.9", "--entries 1000", "--backlog 1000"] {
            assert!(!judged(line), "{line}");
        }
        assert!(ALL.iter().all(|name| HELP.contains(name)));
        assert!(peers::ALL.iter().all(|peer| HELP.contains(peer.name)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for line in ["--only p9", "--peer p9", "--rounds 0", "--seconds 0", "--seconds", "--fast"] {
            let problem = parse_line(line).unwrap_err();
            assert!(problem.contains(line.split(' ').next().unwrap()) || problem.contains("p9"), "{problem}");
        }
        assert_eq!(parse_line("--help").unwrap(), None);
    }
}
