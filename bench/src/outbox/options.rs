//! The command line of the figures of an outbox.

use std::{path::PathBuf, time::Duration};

/// Rounds and seconds below which no bar is judged.
const JUDGED: (usize, u64) = (9, 10);
/// More would be a mistyped number.
const ROUNDS_MAX: u64 = 1000;
const NUMBER_MAX: u64 = 100_000_000;

/// Every case, in the order in which they are taken.
const ALL: [&str; 4] = ["latency", "throughput", "enqueue", "idle"];

pub(crate) const HELP: &str = "\
hapax-bench outbox [OPTION...]: an outbox on PostgreSQL with its relay to RabbitMQ, beside the same by hand
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --only NAME,...  of latency (from the commit to the broker's confirmation, one at a time), throughput (a backlog with durable
                   status), enqueue (what the server pays for storing a message), idle (calls of a relay that has nothing to do)
  --rounds N       interleaved rounds (default 9)
  --seconds S      of each side in a round of latency and enqueue, and of idle (default 10)
  --backlog N      messages of throughput (default 200000)
  --postgres URL   (default: $HAPAX_TEST_POSTGRES, or else postgres://postgres@127.0.0.1/test)
  --rabbitmq URL   (default: $HAPAX_TEST_RABBITMQ, or else amqp://guest:guest@127.0.0.1:5672)";

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) backlog: u32,
    #[serde(skip)]
    pub(crate) postgres: String,
    #[serde(skip)]
    pub(crate) rabbitmq: String,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) fn judged(&self) -> bool {
        self.rounds >= JUDGED.0 && self.seconds >= JUDGED.1 && self.backlog >= Self::default().backlog
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
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only = names(&value()?)?,
            "--rounds" => options.rounds = number(&arg, &value()?, ROUNDS_MAX)? as usize,
            "--seconds" => options.seconds = number(&arg, &value()?, ROUNDS_MAX)?,
            "--backlog" => options.backlog = number(&arg, &value()?, NUMBER_MAX)? as u32,
            "--postgres" => options.postgres = value()?,
            "--rabbitmq" => options.rabbitmq = value()?,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see outbox --help")),
        }
    }
    Ok(Some(options))
}

fn number(option: &str, text: &str, max: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from 1 to {max}, not `{text}`"))
}

fn names(list: &str) -> Result<Vec<String>, String> {
    let known = |name: &str| {
        let known = ALL.contains(&name);
        if known { Ok(name.to_owned()) } else { Err(format!("unknown case `{name}`; there are: {}", ALL.join(", "))) }
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
    fn what_is_not_known_is_refused_by_name() {
        assert!(parse_line("--only speed").unwrap_err().contains("latency"));
        assert!(parse_line("--rounds 0").unwrap_err().contains("--rounds"));
        assert!(parse_line("--speed").unwrap_err().contains("--help"));
        assert!(parse_line("--help").unwrap().is_none());
    }
}
