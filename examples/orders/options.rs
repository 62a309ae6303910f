//! The command line.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, error::ErrorKind};

use crate::{
    Refusal,
    breaks::Rule,
    broker,
    input::ORDERS_MAX,
    place,
    refusal::{EXIT_REFUSED, one_line},
};

/// Takes thousands of orders through three sagas on SQLite while messages are duplicated and reordered and passes crash,
/// then checks the books from the database file alone.
///
/// A line of input is an order or an arrival of goods:
///   {"order":"A-1","customer":"Zoë","card":"good","lines":[{"article":"mug","quantity":2,"price_cents":890}]}
///   {"stock":"mug","quantity":40}
/// The card says how the card company behaves: good, refused, slow, silent or lost. An order may also have a
/// "card_number"; a malformed one, or one of an unknown issuer (which begins with 9), makes it a dead letter, which is
/// mended or discarded.
///
/// Exit codes: 0 every order was charged exactly once, 1 the books do not balance, 2 the run was refused,
/// 130 it was interrupted (129 by SIGHUP, 143 by SIGTERM).
#[derive(Debug, Clone, Parser)]
#[command(name = "orders", verbatim_doc_comment)]
pub struct Options {
    /// Orders, one JSON object a line; `-` is standard input [default: 3000 orders that come with the example]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Take this many orders; of those that come with the example there are as many as you like
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(ORDERS_MAX)))]
    pub orders: Option<u32>,

    /// Share of messages that are queued twice; as many are held back, so that later ones overtake them [default: 0.2]
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = probability)]
    pub duplicates: Option<f64>,

    /// Share of passes that may be dropped at a random await; half as many acks get lost [default: 0.1]
    #[arg(long, value_name = "0..1", allow_negative_numbers = true, value_parser = probability)]
    pub crashes: Option<f64>,

    /// Draws the faults [default: random, printed]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Database to create: `sqlite:PATH` or a path [default: a temporary file]; or `postgres://USER@HOST:PORT/DATABASE`,
    /// where the run has a schema of its own, which goes with it; or `mysql://USER@HOST:PORT/DATABASE` (MariaDB), where its
    /// tables have a prefix of its own and go with it; or `postgres:` or `mysql:`, a server of the run's own, which is
    /// killed (and so are workers, unless you say how often: every 500 ms, and one is stopped every 3 s); or an emulator of a
    /// service, `dynamodb://HOST:PORT` or `cosmos://HOST:PORT`, if the program was built with that feature; or, with the feature
    /// `real`, that service itself: `dynamodb://REGION` with HAPAX_AWS=1, `cosmos://ACCOUNT` with HAPAX_AZURE=1
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,

    /// With --store postgres://..: hapax reaches that database through the connection pooler (pgbouncer) at this URL
    #[arg(long, value_name = "URL")]
    pub pooler: Option<String>,

    /// Take a PostgreSQL or MariaDB server on another machine without being shown who it is
    #[arg(long)]
    pub danger_unverified_tls: bool,

    /// Send the messages over the RabbitMQ server at this URL (`amqp://USER:PASSWORD@HOST:PORT/VHOST`), over NATS JetStream
    /// (`nats://USER:PASSWORD@HOST:PORT`), Redis Streams (`redis://USER:PASSWORD@HOST:PORT/DATABASE`) or, if the program was built
    /// with that feature, SQS (`sqs://HOST:PORT`, an emulator; `sqs://REGION` with HAPAX_AWS=1) or Kafka (`kafka://HOST:PORT`; messages
    /// that are not due yet stay in the database), instead of through the database, in queues of the run's own, which go with it; in worker
    /// processes. `amqp:`, `nats:`, `redis:`, `sqs:` or `kafka:` alone is a broker of the run's own, which is killed, as workers are then
    /// (over Kafka every 8 s, and one is stopped every 48 s)
    #[arg(long, value_name = "URL", conflicts_with = "breaks")]
    pub transport: Option<String>,

    /// Keep the dedup entries in this folder, s3://HOST:PORT or azure-blob://HOST:PORT (emulators), s3://REGION or
    /// azure-blob://ACCOUNT (the services themselves, asked for as with --store), and not beside the entities; in worker
    /// processes
    #[arg(long, value_name = "PLACE", conflicts_with = "breaks")]
    pub dedup: Option<PathBuf>,

    /// Keep the temporary database, schema or tables, and say where it is
    #[arg(long)]
    pub keep: bool,

    /// Write what was measured to this file at the end, as OpenTelemetry has it and Prometheus reads it; `-` is standard output,
    /// behind the report. Of workers it is the sum of all; who is killed takes along what it has not told: a tenth of a second's
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// Work in this many processes, on one database: store and queue [default on a server: 4]
    #[arg(long, value_name = "N", conflicts_with = "breaks", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(WORKERS_MAX)))]
    pub workers: Option<u32>,

    /// Kill a random worker (SIGKILL) every so often, `100ms` or `2s`; another takes its place. Not before something has been
    /// decided since the last one was killed
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub kill_every: Option<Duration>,

    /// Stop a random worker (SIGSTOP) beyond its lease every so often, then let it go on as a zombie: for 1.3 s, over NATS 1.8 s, SQS 2.3 s and
    /// Kafka 9.3 s; over RabbitMQ, where what it holds stays its own, 1.3 s too. Not before something has been decided since the last one
    /// went on
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub stall_every: Option<Duration>,

    /// With --store postgres: or mysql:, kill the server (SIGKILL) so long after it has started, each time, and start it again
    /// [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub kill_server: Option<Duration>,

    /// The same for the broker, with --transport amqp:, nats:, redis:, sqs: or kafka: [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub kill_broker: Option<Duration>,

    /// Be one of those processes.
    #[arg(long, value_name = "FILE", hide = true)]
    pub worker_of: Option<PathBuf>,

    /// In this schema of its database.
    #[arg(long, value_name = "NAME", hide = true, requires = "worker_of")]
    pub schema: Option<String>,

    /// With the card company's ledger in this file.
    #[arg(long, value_name = "FILE", hide = true, requires = "worker_of")]
    pub ledger: Option<PathBuf>,

    /// With queues of this prefix on its broker.
    #[arg(long, value_name = "PREFIX", hide = true, requires = "worker_of")]
    pub queues: Option<String>,

    /// Break one rule of the protocol, lie in wait for the unlucky moment, and show how the books find out:
    /// check-before-load, blind-save, ack-early, mark-before-dispatch or forgetful-dedup (300 orders,
    /// three workers, and the faults that the rule needs)
    #[arg(long = "break", value_name = "NAME")]
    pub breaks: Option<Rule>,

    /// With --break: lay the same ambush, but keep the rule; the books balance
    #[arg(long, requires = "breaks")]
    pub mend: bool,
}

/// Share of messages that are queued twice, unless told otherwise.
const DUPLICATES: f64 = 0.2;
/// Share of passes that may be dropped, unless told otherwise.
const CRASHES: f64 = 0.1;

/// Worker processes on a server, unless told otherwise.
const WORKERS: u32 = 4;
/// What happens to servers of the run's own, and to the workers on them, unless told otherwise.
const KILL_SERVER: Duration = Duration::from_secs(5);
const KILL_EVERY: Duration = Duration::from_millis(500);
const STALL_EVERY: Duration = Duration::from_secs(3);
/// Over Kafka a worker that is away is missed at the end of its session, and all others wait for that.
const OVER_KAFKA: u32 = 16;

/// Most worker processes: beyond it they only wait for one another's commits.
const WORKERS_MAX: u32 = 64;

/// A time such as `100ms` or `2s`, of at least a millisecond.
fn period(text: &str) -> Result<Duration, String> {
    let wrong = || "not a time; give one such as 100ms or 2s".to_owned();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let period = match &text[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(wrong()),
    };
    if period.is_zero() { Err("a time of nothing; give one such as 100ms or 2s".into()) } else { Ok(period) }
}

fn probability(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number; give one from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&number) {
        return Ok(number);
    }
    Err("a share is a number from 0 to 1".into())
}

impl Options {
    /// Share of messages that are queued twice.
    #[must_use]
    pub fn duplicates(&self) -> f64 {
        self.duplicates.unwrap_or_else(|| self.breaks.map_or(DUPLICATES, Rule::duplicates))
    }

    /// Share of passes that may be dropped.
    #[must_use]
    pub fn crashes(&self) -> f64 {
        self.crashes.unwrap_or_else(|| self.breaks.map_or(CRASHES, Rule::crashes))
    }

    /// Worker processes, if there are any.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.workers.unwrap_or(WORKERS)
    }

    pub(crate) fn kill_every(&self) -> Option<Duration> {
        self.kill_every.or_else(|| self.has_own_servers().then_some(KILL_EVERY * self.patience()))
    }

    pub(crate) fn stall_every(&self) -> Option<Duration> {
        self.stall_every.or_else(|| self.has_own_servers().then_some(STALL_EVERY * self.patience()))
    }

    /// How many times as seldom as elsewhere workers are killed and stopped.
    fn patience(&self) -> u32 {
        let kind = self.transport.as_deref().and_then(broker::Kind::of);
        if kind == Some(broker::Kind::Kafka) { OVER_KAFKA } else { 1 }
    }

    pub(crate) fn kill_server(&self) -> Option<Duration> {
        self.kill_server.or_else(|| self.has_own_database().then_some(KILL_SERVER))
    }

    pub(crate) fn kill_broker(&self) -> Option<Duration> {
        self.kill_broker.or_else(|| self.has_own_broker().then_some(KILL_SERVER))
    }

    fn has_own_database(&self) -> bool {
        self.store.as_deref().is_some_and(place::is_private)
    }

    fn has_own_broker(&self) -> bool {
        self.transport.as_deref().is_some_and(broker::is_private)
    }

    fn has_own_servers(&self) -> bool {
        self.has_own_database() || self.has_own_broker()
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |why: &str| Err(Refusal::new(why));
        let is_blank = |value: Option<&str>| value.is_some_and(|value| value.trim().is_empty());
        if is_blank(self.store.as_deref()) {
            return refuse("--store is blank; give a path, sqlite:PATH or the URL of a server, or leave it out");
        }
        if is_blank(self.pooler.as_deref()) {
            return refuse(
                "--pooler is blank; give its URL, postgres://USER:PASSWORD@HOST:PORT/DATABASE, or leave it out",
            );
        }
        if is_blank(self.metrics.as_deref().and_then(Path::to_str)) {
            return refuse("--metrics is blank; give a file, or - for standard output, or leave it out");
        }
        if self.transport.as_deref().is_some_and(|url| broker::Kind::of(url).is_none()) {
            return refuse(
                "--transport takes a RabbitMQ, NATS or Redis server, SQS, or Kafka; write amqp://USER:PASSWORD@HOST:PORT/VHOST, nats://USER:PASSWORD@HOST:PORT, redis://USER:PASSWORD@HOST:PORT/DATABASE, sqs://HOST:PORT or kafka://HOST:PORT",
            );
        }
        if is_blank(self.input.as_deref().and_then(Path::to_str)) {
            return refuse("--input is blank; give a file of orders, or - for standard input, or leave it out");
        }
        if self.store.as_deref().is_some_and(place::is_slip) {
            return refuse(
                "--store: a server's URL has // behind the scheme; write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE",
            );
        }
        let on_server = self.store.as_deref().is_some_and(|store| place::is_server(store) || place::is_service(store));
        if on_server && self.breaks.is_some() {
            return refuse("--break works in one process on a file; leave out --store, or name a file with it");
        }
        let in_workers = on_server || self.transport.is_some() || self.dedup.is_some() || self.workers.is_some();
        self.check_broker()?;
        if self.pooler.is_some() && !self.store.as_deref().is_some_and(place::is_postgres) {
            return refuse(
                "--pooler stands before a PostgreSQL server; give that one's own URL too, with --store postgres://..",
            );
        }
        if self.kill_server.is_some() && !self.has_own_database() {
            return refuse(
                "--kill-server kills a server of the run's own and no other; give --store postgres: too, or mysql:",
            );
        }
        if !in_workers && (self.kill_every.is_some() || self.stall_every.is_some()) {
            return refuse("--kill-every and --stall-every are for worker processes; give --workers N too");
        }
        Ok(())
    }

    fn check_broker(&self) -> Result<(), Refusal> {
        let own = self.transport.as_deref().filter(|url| broker::is_private(url));
        if own.is_some_and(|url| !["amqp", "nats", "redis", "sqs", "kafka"].contains(&url.trim_end_matches(['/', ':'])))
        {
            return Err(Refusal::new(
                "--transport: a broker of the run's own has no certificates; write amqp:, nats: or redis:, or the whole URL of one that runs",
            ));
        }
        if self.kill_broker.is_some() && own.is_none() {
            return Err(Refusal::new(
                "--kill-broker kills a broker of the run's own and no other; give --transport amqp: too, or nats:, redis:, sqs: or kafka:",
            ));
        }
        Ok(())
    }

    /// The options of this process.
    ///
    /// # Errors
    /// The exit code, when there is nothing more to do: help was asked for and given, or an option is wrong and was
    /// explained in one line.
    pub fn from_command_line() -> Result<Self, ExitCode> {
        Self::try_parse().map_err(|e| {
            if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                let _ = write!(io::stdout(), "{e}");
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(io::stderr(), "orders: {}", explain(&e));
            ExitCode::from(EXIT_REFUSED)
        })
    }
}

/// The first paragraph of what the parser says, which is the one that matters, in one line.
fn explain(error: &clap::Error) -> String {
    let said = error.to_string();
    let first: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = one_line(&first.join(" "));
    format!("{}; see --help", first.strip_prefix("error: ").unwrap_or(&first))
}

#[cfg(test)]
mod tests;
