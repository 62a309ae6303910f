//! The command line of the figures of services.

use std::path::PathBuf;

/// Rounds and seconds below which no bar is judged.
const JUDGED: (usize, u64) = (9, 10);
/// More would be a mistyped number.
const NUMBER_MAX: u64 = 1_000_000;

pub(crate) const HELP: &str = "\
hapax-bench dynamodb|cosmos --server URL [OPTION...]: hapax on an emulator beside a loop over the bare client library
  --server URL     http://HOST:PORT of the emulator (cargo xtask bench starts one)
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --rounds N       rounds (default 9)
  --seconds N      length of each window (default 10); with less than the defaults nothing is judged
  --entities N     entities (default 200)
  --in-flight N    messages in flight where many are (default 32)";

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Service {
    DynamoDb,
    Cosmos,
}

impl Service {
    /// The one that is called so on the command line.
    pub(crate) fn of(command: &str) -> Option<Self> {
        [Self::DynamoDb, Self::Cosmos].into_iter().find(|service| service.command() == command)
    }

    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::Cosmos => "cosmos",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::Cosmos => "Cosmos DB",
        }
    }
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) service: Service,
    #[serde(skip)]
    pub(crate) server: String,
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) entities: u32,
    pub(crate) in_flight: usize,
}

impl Options {
    /// Whether a bar may be judged by this.
    pub(crate) const fn judged(&self) -> bool {
        self.rounds >= JUDGED.0 && self.seconds >= JUDGED.1
    }
}

/// Reads the arguments behind the service's name; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(service: Service, args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        service,
        server: String::new(),
        check: false,
        json: None,
        rounds: JUDGED.0,
        seconds: JUDGED.1,
        entities: 200,
        in_flight: 32,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => options.server = value()?,
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--rounds" => options.rounds = number(&arg, &value()?)? as usize,
            "--seconds" => options.seconds = number(&arg, &value()?)?,
            "--entities" => options.entities = number(&arg, &value()?)? as u32,
            "--in-flight" => options.in_flight = number(&arg, &value()?)? as usize,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see {} --help", service.command())),
        }
    }
    if options.server.is_empty() {
        return Err(format!("--server is missing: cargo xtask bench {} starts an emulator", service.command()));
    }
    Ok(Some(options))
}

fn number(option: &str, text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| format!("{option} takes a whole number from 1 to {NUMBER_MAX}, not `{text}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(Service::Cosmos, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options = parse_line("--server http://127.0.0.1:1 --rounds 3 --check").unwrap().unwrap();
        assert_eq!((options.rounds, options.check, options.judged()), (3, true, false));
        assert!(parse_line("--server http://127.0.0.1:1").unwrap().unwrap().judged());
        assert!(parse_line("").unwrap_err().contains("bench cosmos starts an emulator"));
        assert!(parse_line("--rounds 0").unwrap_err().contains("from 1"));
        assert!(parse_line("--speed").unwrap_err().contains("cosmos --help"));
        assert_eq!(parse_line("--help").unwrap(), None);
        assert_eq!(
            ["dynamodb", "cosmos", "sqlite"].map(Service::of),
            [Some(Service::DynamoDb), Some(Service::Cosmos), None]
        );
    }
}
