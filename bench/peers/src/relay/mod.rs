//! Peers that send what is stored: a backlog in their own table, to RabbitMQ, each message with its status on the disk.
//!
//! A program is started by `hapax-bench` with `--database URL --rabbitmq URL --queue NAME --backlog N`. It stores the backlog,
//! says `ready`, begins when it is told `go`, and says in one line of JSON how long it took until its table has nothing more
//! to send, and how many messages are marked as sent there.

use std::{
    io::Write,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use serde::{Deserialize, Serialize};
use sqlx_8::{PgPool, postgres::PgPoolOptions};

use crate::{AnyError, driver_8::count};

/// Relays beside each other, where a peer's locks allow it: each of them sends one message after the other.
pub const RELAYS: usize = 8;
/// Messages of one transaction in which the backlog is stored.
pub const STORED: u64 = 1000;
/// Rows of one look at the table.
pub const POLLED: u32 = 256;

/// What is sent: as in `hapax-bench`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sold {
    order: u64,
    note: String,
}

impl Sold {
    /// As large as every other.
    #[must_use]
    pub fn new(order: u64) -> Self {
        const NOTE_BYTES: usize = 200;
        Self { order, note: "x".repeat(NOTE_BYTES) }
    }
}

/// What a program is asked to send.
#[derive(Debug)]
pub struct Backlog {
    database: String,
    rabbitmq: String,
    queue: String,
    /// Messages.
    pub count: u64,
}

/// What it has done.
#[derive(Debug, Serialize)]
pub struct Drained {
    seconds: f64,
    sent: i64,
}

impl Backlog {
    fn read() -> Result<Self, AnyError> {
        let mut args = std::env::args().skip(1);
        let mut named = std::collections::HashMap::new();
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            named.insert(arg, value);
        }
        let mut value = |name: &str| {
            named.remove(name).ok_or_else(|| format!("{name} is missing: the program is started by hapax-bench"))
        };
        let [database, rabbitmq, queue] = [value("--database")?, value("--rabbitmq")?, value("--queue")?];
        Ok(Self { database, rabbitmq, queue, count: value("--backlog")?.parse()? })
    }

    /// Connections for all relays and for what looks on.
    ///
    /// # Errors
    /// Of the driver.
    pub async fn pool(&self) -> Result<PgPool, AnyError> {
        const OWN: u32 = 4;
        Ok(PgPoolOptions::new().max_connections(2 * RELAYS as u32 + OWN).connect(&self.database).await?)
    }

    /// Says that all is stored, and waits for the start.
    ///
    /// # Errors
    /// Nobody is there any more.
    pub fn wait_for_start(&self) -> Result<Instant, AnyError> {
        println!("ready");
        std::io::stdout().flush()?;
        match std::io::stdin().lines().next() {
            Some(line) if line.as_deref().is_ok_and(|line| line == "go") => Ok(Instant::now()),
            _ => Err("`go` was not said".into()),
        }
    }

    /// Waits until the broker has all, and then until `unsent` counts nothing in the table.
    ///
    /// # Errors
    /// Of the driver.
    pub async fn drained(
        &self,
        begun: Instant,
        broker: &Broker,
        pool: &PgPool,
        [unsent, sent]: [&'static str; 2],
    ) -> Result<Drained, AnyError> {
        const LOOK_AGAIN: Duration = Duration::from_millis(2);
        while broker.sent.load(Ordering::Relaxed) < self.count {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        while count(pool, unsent).await? > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Drained { seconds, sent: count(pool, sent).await? })
    }
}

/// Publishes as hapax's transport does: persistent, mandatory, and confirmed.
#[derive(Debug, Clone)]
pub struct Broker {
    _connection: Arc<Connection>,
    channel: Channel,
    queue: String,
    sent: Arc<AtomicU64>,
}

impl Broker {
    /// One channel for all relays.
    ///
    /// # Errors
    /// Of the driver.
    pub async fn open(backlog: &Backlog) -> Result<Self, AnyError> {
        let connection = Connection::connect(&backlog.rabbitmq, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let queue = backlog.queue.clone();
        Ok(Self { _connection: Arc::new(connection), channel, queue, sent: Arc::default() })
    }

    /// Publishes, and waits for the confirmation.
    ///
    /// # Errors
    /// Of the driver, or it was not confirmed.
    pub async fn publish(&self, id: String, body: &impl Serialize) -> Result<(), AnyError> {
        let body = serde_json::to_vec(body)?;
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.into());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = self.channel.basic_publish("".into(), self.queue.as_str().into(), options, &body, properties);
        match published.await?.await? {
            Confirmation::Ack(None) => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => Err(format!("not confirmed: {other:?}").into()),
        }
    }
}

/// The program of a peer.
pub fn main<D: Future<Output = Result<Drained, AnyError>>>(peer: impl FnOnce(Backlog) -> D) -> ExitCode {
    let run = || -> Result<String, AnyError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(serde_json::to_string(&runtime.block_on(peer(Backlog::read()?))?)?)
    };
    match run() {
        Ok(drained) => {
            println!("{drained}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
