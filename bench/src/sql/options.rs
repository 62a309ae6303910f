//! The command line of the figures on a database server.

use std::{path::PathBuf, time::Duration};

use super::Kind;

/// Below these no bar is judged (`performance.md`, section 6).
const JUDGED_ROUNDS: usize = 9;
const JUDGED_TIME: Duration = Duration::from_secs(10);
const JUDGED_ENTRIES: u64 = 10_000_000;
const JUDGED_BACKLOG: u64 = 1_000_000;
const ROUNDS_MAX: usize = 1000;
const SECONDS_MAX: f64 = 3600.0;

/// Every case, in the order in which they are run.
pub(super) const ALL: [&str; 10] = ["p1", "p2", "p3", "p4", "c1", "c2", "c3", "c4", "q1", "two"];

/// What `kind` takes.
pub(crate) fn help(kind: &Kind) -> String {
    let Kind { command, title, server_help, own_help, .. } = kind;
    format!(
        "\
hapax-bench {command} [OPTION...]: the store on a {title} server beside hand-written loops on the same server
{server_help}
  --check          exit with 1 when a bar is missed; books that do not add up always fail
  --json FILE      write machine, settings and figures to FILE
  --only NAME,...  of p1 (saturated), p2 (unbatched, 32 in flight), p3 (one at a time), p4 (one entity), c1 (200,000
                   entities), c2 (many outgoing messages wait), c3 (many dedup entries), c4 (half are repeats), q1 (the
                   queue alone), two (two processes on the same entities)
{own_help}
  --plots          instead of the cases: speed, latency and cost by messages in flight and by entities, as a page with
                   tables and plots in docs/bench
  --plots-dir DIR  there instead
  --rounds N       paired rounds (default 9)
  --seconds S      of each run (default 10)
  --entries N      dedup entries of c3 (default 10000000)
  --backlog N      outgoing messages that wait in c2 (default 1000000)
  --quick          one round of a second; with less than the defaults nothing is judged"
    )
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Options {
    /// None: one is run. Not shown: it may hold a password.
    #[serde(skip)]
    pub(crate) server: Option<String>,
    /// Where a server that is run has its files.
    #[serde(skip)]
    pub(crate) dir: PathBuf,
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
    fn new(server: Option<String>) -> Self {
        Self {
            server,
            dir: std::env::temp_dir(),
            check: false,
            json: None,
            only: ALL.map(str::to_owned).to_vec(),
            rounds: JUDGED_ROUNDS,
            time: JUDGED_TIME,
            entries: JUDGED_ENTRIES,
            backlog: JUDGED_BACKLOG,
            peers: Vec::new(),
            peers_dir: "target/peers/release".into(),
            plots: false,
            plots_dir: "docs/bench".into(),
        }
    }

    /// Its URL.
    pub(crate) fn server(&self) -> &str {
        self.server.as_deref().unwrap_or_default()
    }

    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        let is_long = self.rounds >= JUDGED_ROUNDS && self.time >= JUDGED_TIME;
        is_long && self.entries >= JUDGED_ENTRIES && self.backlog >= JUDGED_BACKLOG
    }
}

/// Reads the arguments behind the command of `kind`; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(kind: &Kind, args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::new((kind.server)());
    let has_peers = !kind.peers.is_empty();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => options.server = Some(value()?),
            "--dir" if options.server.is_none() => options.dir = value()?.into(),
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only = names("case", &ALL, &value()?)?,
            "--peers" if has_peers => options.peers = kind.peers.iter().map(|&name| name.to_owned()).collect(),
            "--peer" if has_peers => options.peers = names("peer", kind.peers, &value()?)?,
            "--peers-dir" if has_peers => options.peers_dir = value()?.into(),
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
            _ => return Err(format!("unknown option `{arg}`; see {} --help", kind.command)),
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

    const KIND: Kind = Kind {
        command: "kind",
        title: "Kind",
        role: "kind-worker",
        batches: "tens",
        batched: "tens, by hand",
        server_help: "  --server URL     the server",
        own_help: "  --peers          others",
        server: || Some("kind://here".to_owned()),
        peers: &["one", "other"],
    };

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(&KIND, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_smaller_than_the_defaults_is_not_judged() {
        let judged = |line: &str| parse_line(line).unwrap().unwrap().judged();
        assert!(judged("") && judged("--only p1,c3") && judged("--rounds 11"));
        for line in ["--quick", "--rounds 8", "--seconds 9.9", "--entries 1000", "--backlog 1000"] {
            assert!(!judged(line), "{line}");
        }
        assert!(ALL.iter().all(|name| help(&KIND).contains(name)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for line in ["--only p9", "--peer p9", "--rounds 0", "--seconds 0", "--seconds", "--fast", "--dir ."] {
            let problem = parse_line(line).unwrap_err();
            assert!(problem.contains(line.split(' ').next().unwrap()) || problem.contains("p9"), "{problem}");
        }
        assert_eq!(parse_line("--help").unwrap(), None);
    }

    #[test]
    fn what_a_kind_of_server_does_not_have_is_refused() {
        let bare = Kind { peers: &[], server: || None, ..KIND };
        let parse_line = |line: &str| parse(&bare, line.split_whitespace().map(str::to_owned));
        for line in ["--peers", "--peer one", "--peers-dir there"] {
            assert!(parse_line(line).unwrap_err().starts_with("unknown option"), "{line}");
        }
        assert_eq!(parse_line("--dir there").unwrap().unwrap().dir, PathBuf::from("there"));
        assert!(parse_line("--server there --dir there").is_err(), "the files of another's server are not ours");
    }
}
