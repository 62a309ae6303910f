//! The command line of the figures of a transport.

use std::path::PathBuf;

use crate::figures::{names, number};

/// Rounds and seconds below which no bar is judged: `performance.md`, section 6.
const JUDGED: (usize, u64) = (9, 10);
/// Enough to see that everything runs.
const QUICK: (usize, u64) = (3, 1);
/// More would be a mistyped number.
const ROUNDS_MAX: u64 = 1000;
const SECONDS_MAX: u64 = 3600;
const MESSAGES_MAX: u64 = 100_000_000;
const ENTITIES_MAX: u64 = 10_000_000;
const IN_FLIGHT_MAX: u64 = 65_535;
/// What an endpoint has in flight unless told otherwise, and what the adapters ask for ahead.
const IN_FLIGHT: usize = 1024;
/// Messages that go to a partition of Kafka in one batch: the client library's own bound, and the adapter's.
const BATCH: u64 = 10_000;
/// The client library takes no more.
const BATCH_MAX: u64 = 1_000_000;
/// Where the store of the last figure is, unless told otherwise. Without one it is left out, and told aloud.
const POSTGRES: &str = "HAPAX_TEST_POSTGRES";

/// Every figure, in the order in which they are taken.
const ALL: [&str; 3] = [SPEED, IDLE, STORE];
pub(super) const SPEED: &str = "speed";
pub(super) const IDLE: &str = "idle";
pub(super) const STORE: &str = "store";

pub(crate) const HELP: &str = "\
hapax-bench transport NAME [OPTION...]: messages through a broker, hapax beside a loop over the bare client library on the same queues
  NAME is kafka, nats, rabbitmq, redis or sqs; what is received is handled, sends one message, and is settled once that is confirmed
  --server URL     the broker (default: $HAPAX_TEST_KAFKA, _NATS, _RABBITMQ, _REDIS or _SQS, or else where each usually is; for sqs,
                   and for kafka without --server, cargo xtask bench starts what stands in for it, on which no bar is judged)
  --check          exit with 1 when a bar is missed; what does not add up always fails
  --json FILE      write machine and figures to FILE
  --only NAME,...  of speed, idle, store
                   speed  messages a second of a backlog, with the store in memory / the loop by hand
                   idle   time from before a message is sent until it is settled, one at a time / the loop by hand
                   store  messages a second with PostgreSQL as the store / the slower of store and broker alone
  --messages N     instead of these: so many messages once, by hapax alone, and by their ids that none was lost and each had its
                   effect once; every twentieth is sent twice
  --rounds N       paired rounds (default 9)
  --seconds S      of each run, about (default 10); with less than the defaults nothing is judged
  --entities N     entities, uniform (default 1000)
  --in-flight N    messages that are taken and not settled, at most (default 1024)
  --batch N        messages that go to a partition of Kafka in one batch, of both sides (default 10000; with Tansu 1, which
                   counts wrongly where a larger one ends); with any other number nothing is judged
  --postgres URL   the store's server (default: $HAPAX_TEST_POSTGRES; without either there is no figure `store`)
  --quick          3 rounds of 1 s";

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Broker {
    Kafka,
    Nats,
    RabbitMq,
    Redis,
    Sqs,
}

impl Broker {
    fn of(name: &str) -> Option<Self> {
        match name {
            "kafka" => Some(Self::Kafka),
            "nats" => Some(Self::Nats),
            "rabbitmq" => Some(Self::RabbitMq),
            "redis" => Some(Self::Redis),
            "sqs" => Some(Self::Sqs),
            _ => None,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka, or what speaks its protocol",
            Self::Nats => "NATS",
            Self::RabbitMq => "RabbitMQ",
            Self::Redis => "Redis",
            Self::Sqs => "an emulator of SQS",
        }
    }

    /// Where it is unless told otherwise: by a variable, or where it usually is.
    fn server(self) -> Result<String, String> {
        let (variable, usual) = match self {
            Self::Kafka => ("HAPAX_TEST_KAFKA", Some("kafka://127.0.0.1:9092")),
            Self::Nats => ("HAPAX_TEST_NATS", Some("nats://127.0.0.1:4222")),
            Self::RabbitMq => ("HAPAX_TEST_RABBITMQ", Some("amqp://guest:guest@127.0.0.1:5672")),
            Self::Redis => ("HAPAX_TEST_REDIS", Some("redis://127.0.0.1:6379")),
            Self::Sqs => ("HAPAX_TEST_SQS", None),
        };
        let server = std::env::var(variable).ok().or_else(|| usual.map(str::to_owned));
        server.ok_or_else(|| {
            format!("--server is missing, and {variable} is not set: cargo xtask bench starts an emulator")
        })
    }
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Options {
    pub(crate) broker: Broker,
    /// Not shown: it may hold a password.
    #[serde(skip)]
    pub(crate) server: String,
    #[serde(skip)]
    pub(crate) postgres: Option<String>,
    pub(crate) check: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    /// Of a run that is no round.
    pub(crate) messages: Option<u64>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) entities: u32,
    pub(crate) in_flight: usize,
    /// Of Kafka alone.
    pub(crate) batch: u32,
}

impl Options {
    /// Whether a bar may be judged by this. An emulator takes more time than all that is measured.
    pub(crate) fn judged(&self) -> bool {
        let usual = self.in_flight == IN_FLIGHT && u64::from(self.batch) == BATCH;
        self.broker != Broker::Sqs && self.rounds >= JUDGED.0 && self.seconds >= JUDGED.1 && usual
    }

    pub(super) fn takes(&self, figure: &str) -> bool {
        self.only.iter().any(|name| name == figure)
    }
}

/// Reads the arguments behind `transport`; `None`: help is asked for.
///
/// # Errors
/// One line that names the argument and the remedy.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_default();
    if matches!(name.as_str(), "--help" | "-h") {
        return Ok(None);
    }
    let broker = Broker::of(&name).ok_or_else(|| {
        format!("`{name}` is no transport that is measured; there are: kafka, nats, rabbitmq, redis, sqs")
    })?;
    let mut options = Options {
        broker,
        server: String::new(),
        postgres: std::env::var(POSTGRES).ok(),
        check: false,
        json: None,
        only: ALL.map(str::to_owned).to_vec(),
        messages: None,
        rounds: JUDGED.0,
        seconds: JUDGED.1,
        entities: 1000,
        in_flight: IN_FLIGHT,
        batch: BATCH as u32,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--server" => options.server = value()?,
            "--postgres" => options.postgres = Some(value()?),
            "--check" => options.check = true,
            "--json" => options.json = Some(value()?.into()),
            "--only" => options.only = names(&value()?, &ALL)?,
            "--messages" => options.messages = Some(number(&arg, &value()?, 1, MESSAGES_MAX)?),
            "--rounds" => options.rounds = number(&arg, &value()?, 1, ROUNDS_MAX)? as usize,
            "--seconds" => options.seconds = number(&arg, &value()?, 1, SECONDS_MAX)?,
            "--entities" => options.entities = number(&arg, &value()?, 1, ENTITIES_MAX)? as u32,
            "--in-flight" => options.in_flight = number(&arg, &value()?, 1, IN_FLIGHT_MAX)? as usize,
            "--batch" => options.batch = number(&arg, &value()?, 1, BATCH_MAX)? as u32,
            "--quick" => (options.rounds, options.seconds) = QUICK,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option `{arg}`; see transport --help")),
        }
    }
    if options.server.is_empty() {
        options.server = broker.server()?;
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_options_everything_is_measured_and_judged_but_on_an_emulator() {
        let options = parse_line("redis").unwrap().unwrap();
        assert!(options.judged() && ALL.iter().all(|name| options.takes(name)));
        assert!(ALL.iter().all(|name| HELP.contains(&format!("\n                   {name} "))));
        assert!(!parse_line("sqs --server http://127.0.0.1:1").unwrap().unwrap().judged());
        for line in
            ["redis --quick", "nats --rounds 8", "rabbitmq --seconds 9", "nats --in-flight 10", "kafka --batch 1"]
        {
            assert!(!parse_line(line).unwrap().unwrap().judged(), "{line}");
        }
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let line = "nats --server nats://127.0.0.1:1 --only idle --messages 20 --rounds 3 --check --entities 5";
        let options = parse_line(line).unwrap().unwrap();
        assert_eq!((options.broker, options.server.as_str()), (Broker::Nats, "nats://127.0.0.1:1"));
        assert_eq!((options.messages, options.rounds, options.check, options.entities), (Some(20), 3, true, 5));
        assert!(options.takes(IDLE) && !options.takes(SPEED));
        assert!(parse_line("").unwrap_err().contains("there are: kafka, nats"));
        assert!(parse_line("pulsar").unwrap_err().contains("`pulsar` is no transport"));
        assert_eq!(parse_line("kafka --batch 7").unwrap().unwrap().batch, 7);
        assert!(parse_line("kafka --batch 0").unwrap_err().contains("from 1"));
        assert!(parse_line("nats --only nap").unwrap_err().contains("unknown figure `nap`"));
        assert!(parse_line("nats --messages 0").unwrap_err().contains("from 1"));
        assert!(parse_line("nats --fast").unwrap_err().contains("transport --help"));
        assert_eq!(parse_line("--help").unwrap(), None);
        assert_eq!(parse_line("nats --help").unwrap(), None);
    }
}
