//! The command line of the figures of an outbox.

use std::{path::PathBuf, time::Duration};

/// Rounds and seconds below which no bar is judged.
const JUDGED: (usize, u64) = (9, 10);
/// More would be a mistyped number.
const ROUNDS_MAX: u64 = 1000;
const NUMBER_MAX: u64 = 100_000_000;

/// Every case, in the order in which they are taken.
const ALL: [&str; 4] = ["latency", "throughput", ENQUEUE, "idle"];
/// Of what a server pays.
const ENQUEUE: &str = "enqueue";
/// Other libraries, which are run when they are asked for.
pub(super) const PEERS: &str = "peers";
/// One process stores and another relays, by claims and from the server's log.
pub(super) const LOG: &str = "log";
/// A table with time partitions beside one without.
pub(super) const PARTITIONS: &str = "partitions";

pub(crate) const HELP: &str = "\
hapax-bench outbox [OPTION...]: an outbox with its relay to RabbitMQ, beside the same by hand
  --database NAME  postgres (default), mysql or sqlite: where the outbox is; on SQLite there is no server and no enqueue
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --only NAME,...  of latency (from the commit to the broker's confirmation, one at a time), throughput (a backlog with durable
                   status), enqueue (what the server pays for storing a message), idle (what a relay that has nothing to do asks of
                   the server, by the server's count of all that it is asked: nobody else may use it);
                   and of log, which is not taken by itself (one process stores and another relays: by claims, from the
                   server's log, without a table) and partitions (a table with time partitions beside one without), which are
                   PostgreSQL's. Where the server has no wal_level=logical, another one is run for log
  --rounds N       interleaved rounds (default 9)
  --seconds S      of each side in a round of latency and enqueue, and of each of nine windows of idle (default 10)
  --backlog N      messages of throughput (default 200000)
  --peers          only this: other libraries beside hapax's throughput on PostgreSQL, in the same rounds; what cannot be run is
                   told aloud. Where the server has no wal_level=logical, another one is run for it
  --peer-backlog N messages of each of them (default 10000)
  --peers-dir DIR  where their programs are (default target/peers/release, where cargo xtask bench builds them)
  --dir DIR        where SQLite's file is, and those of a server that is run (default: the system's directory for temporary files)
  --mysql URL      the server, instead of one that is run for this
  --postgres URL   (default: $HAPAX_TEST_POSTGRES, or else postgres://postgres@127.0.0.1/test)
  --rabbitmq URL   (default: $HAPAX_TEST_RABBITMQ, or else amqp://guest:guest@127.0.0.1:5672)";

/// As many as the slowest peer sends in about 20 s.
const PEER_BACKLOG: u32 = 10_000;

/// Where the outbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Database {
    Postgres,
    MySql,
    Sqlite,
}

impl Database {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MariaDB",
            Self::Sqlite => "SQLite",
        }
    }

    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "postgres" => Ok(Self::Postgres),
            "mysql" => Ok(Self::MySql),
            "sqlite" => Ok(Self::Sqlite),
            _ => Err(format!("unknown database `{name}`; there are: postgres, mysql, sqlite")),
        }
    }
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) backlog: u32,
    pub(crate) database: Database,
    pub(crate) peer_backlog: u32,
    #[serde(skip)]
    pub(crate) peers_dir: PathBuf,
    #[serde(skip)]
    pub(crate) dir: PathBuf,
    #[serde(skip)]
    pub(crate) mysql: Option<String>,
    #[serde(skip)]
    pub(crate) postgres: String,
    #[serde(skip)]
    pub(crate) rabbitmq: String,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        let backlogs = self.backlog >= Self::default().backlog && self.peer_backlog >= PEER_BACKLOG;
        self.rounds >= JUDGED.0 && self.seconds >= JUDGED.1 && backlogs
    }

    pub(super) const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl Default for Options {
    fn default() -> Self {
        let named = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
        Self {
            check: false,
            json: None,
            only: ALL.map(str::to_owned).to_vec(),
            rounds: JUDGED.0,
            seconds: JUDGED.1,
            backlog: 200_000,
            database: Database::Postgres,
            peer_backlog: PEER_BACKLOG,
            peers_dir: "target/peers/release".into(),
            dir: std::env::temp_dir(),
            mysql: None,
            postgres: named("HAPAX_TEST_POSTGRES", "postgres://postgres@127.0.0.1/test"),
            rabbitmq: named("HAPAX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672"),
        }
    }
}

/// Reads the arguments behind `outbox`; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let (mut only, mut peers) = (None, false);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--only" => only = Some(names(&value()?)?),
            "--database" => options.database = Database::parse(&value()?)?,
            "--peers" => peers = true,
            "--peer-backlog" => options.peer_backlog = number(&arg, &value()?, NUMBER_MAX)? as u32,
            "--peers-dir" => options.peers_dir = value()?.into(),
            "--dir" => options.dir = value()?.into(),
            "--mysql" => options.mysql = Some(value()?),
            "--rounds" => options.rounds = number(&arg, &value()?, ROUNDS_MAX)? as usize,
            "--seconds" => options.seconds = number(&arg, &value()?, ROUNDS_MAX)?,
            "--backlog" => options.backlog = number(&arg, &value()?, NUMBER_MAX)? as u32,
            "--postgres" => options.postgres = value()?,
            "--rabbitmq" => options.rabbitmq = value()?,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see outbox --help")),
        }
    }
    options.only = cases(options.database, only, peers)?;
    Ok(Some(options))
}

fn cases(database: Database, only: Option<Vec<String>>, peers: bool) -> Result<Vec<String>, String> {
    let asked = only.is_some();
    if peers {
        return match database {
            Database::Postgres if !asked => Ok(vec![PEERS.to_owned()]),
            Database::Postgres => Err("--peers is a case by itself: leave out --only".into()),
            other => Err(format!("--peers are for PostgreSQL: leave out --database, not {}", other.title())),
        };
    }
    let mut cases = only.unwrap_or_else(|| ALL.map(str::to_owned).to_vec());
    if database == Database::Sqlite {
        if asked && cases.iter().any(|case| case == ENQUEUE) {
            return Err("enqueue is what a server pays, and SQLite has none: leave it out of --only".into());
        }
        eprintln!("enqueue is LEFT OUT: it is what a server pays, and SQLite has none");
        cases.retain(|case| case != ENQUEUE);
    }
    Ok(cases)
}

fn number(option: &str, text: &str, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from 1 to {max}, not `{text}`"))
}

fn names(list: &str) -> Result<Vec<String>, String> {
    let known = |name: &str| {
        let known = ALL.contains(&name) || [LOG, PARTITIONS].contains(&name);
        let wrong = || format!("unknown case `{name}`; there are: {}, {LOG}, {PARTITIONS}", ALL.join(", "));
        known.then(|| name.to_owned()).ok_or_else(wrong)
    };
    list.split(',').map(known).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn less_than_the_defaults_is_not_judged() {
        let judged = |line| parse_line(line).unwrap().unwrap().judged();
        assert!(judged("") && judged("--only idle,latency --rounds 11"));
        assert!(!judged("--rounds 3") && !judged("--seconds 2") && !judged("--backlog 10"));
    }

    #[test]
    fn sqlite_has_no_server_that_pays_and_peers_are_asked_for() {
        let cases = |line| parse_line(line).unwrap().unwrap().only;
        assert_eq!(cases("--database mysql"), ALL);
        assert_eq!(cases("--database sqlite"), ["latency", "throughput", "idle"]);
        assert_eq!(cases("--peers"), [PEERS]);
        assert!(parse_line("--database sqlite --only enqueue").unwrap_err().contains("--only"));
        assert!(parse_line("--database mysql --peers").unwrap_err().contains("--database"));
        assert!(parse_line("--peers --only idle").unwrap_err().contains("--only"));
        assert!(parse_line("--database oracle").unwrap_err().contains("sqlite"));
        assert!(!parse_line("--peers --peer-backlog 10").unwrap().unwrap().judged());
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        assert!(parse_line("--only speed").unwrap_err().contains("latency"));
        assert!(parse_line("--rounds 0").unwrap_err().contains("--rounds"));
        assert!(parse_line("--speed").unwrap_err().contains("--help"));
        assert!(parse_line("--help").unwrap().is_none());
    }
}
