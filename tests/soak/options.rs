//! What is asked for.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum, builder::PossibleValuesParser};

use crate::points;

/// Runs two endpoints under faults of every kind, and judges them by what is stored and sent alone.
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo xtask soak", disable_help_subcommand = true)]
pub(crate) struct Options {
    /// How long faults last. What is left is handled after that, without.
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = minutes)]
    minutes: f64,
    #[arg(long, value_enum, default_value_t = Kind::Postgres)]
    pub(crate) store: Kind,
    #[arg(long, value_enum, default_value_t = Broker::RabbitMq)]
    pub(crate) transport: Broker,
    /// Processes, at least two.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// What the faults are drawn from. Default: any, and printed.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where the report goes. Default: target/soak/STORE-TRANSPORT, or target/points/STORE-TRANSPORT
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Instead: a worker that dies before and after its n-th call of each kind, for all n; then a clean one; then the books
    #[arg(long)]
    pub(crate) points: bool,
    /// Of `--points`: calls of each kind, at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) calls: u32,
    /// Of `--points`: these kinds of calls alone. Default: all
    #[arg(long, value_name = "CALL,..", value_delimiter = ',', value_parser = PossibleValuesParser::new(points::CALLS))]
    kinds: Vec<String>,
    /// So many times as often as usual, and as short: for a run of a minute.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pace: u8,
    /// The workers' store confirms marks and keeps none: the ledger must find out
    #[arg(long)]
    pub(crate) forgets: bool,
}

/// Longest run: a week, in minutes.
const MINUTES_MAX: f64 = 10_080.0;

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| *minutes > 0.0 && *minutes <= MINUTES_MAX);
    minutes.ok_or_else(|| format!("above 0, and at most {MINUTES_MAX}, is a number of minutes"))
}

impl Options {
    pub(crate) fn lasts(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    pub(crate) fn workers(&self) -> usize {
        usize::from(self.workers)
    }

    pub(crate) fn pace(&self) -> f64 {
        f64::from(self.pace)
    }

    /// Whether somebody is to die at calls of this kind.
    pub(crate) fn asks_for(&self, call: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == call)
    }

    pub(crate) fn report(&self) -> PathBuf {
        let kind = if self.points { "points" } else { "soak" };
        let usual = || PathBuf::from(format!("target/{kind}/{}-{}", self.store, self.transport));
        self.report.clone().unwrap_or_else(usual)
    }
}

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Sqlite,
    /// Dedup entries in a file of their own: nothing is written together with them.
    SqliteApart,
    /// Entities in SQLite, dedup entries in a directory as an object store.
    Object,
    Postgres,
    /// Its commits wait for a standby, which takes its place when it is killed.
    PostgresReplicated,
    #[value(name = "mysql")]
    MySql,
    #[value(name = "dynamodb")]
    DynamoDb,
    /// Its emulator tells its clients to come where they came: by the line.
    Cosmos,
}

/// Which transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Broker {
    /// Queues in a file of their own.
    File,
    #[value(name = "rabbitmq")]
    RabbitMq,
    Nats,
    Redis,
    /// A broker that has everything in its memory, and so is not killed.
    Kafka,
    /// An emulator that writes all it has to the disk at each request.
    Sqs,
}

fn named(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(self, f)
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(self, f)
    }
}
