//! The servers of a run, its own, each behind a line that fails.

use hapax_tests::{Line, MySqlServer, NatsServer, PostgresServer, RabbitMqServer, RedisServer, Scratch};

use crate::{
    AnyError,
    options::{Broker, Kind},
    place::{QueuePlace, StorePlace, built_without},
};

/// Where emulators are: set by `cargo xtask soak`.
const DYNAMODB: &str = "HAPAX_TEST_DYNAMODB";
const COSMOS: &str = "HAPAX_TEST_COSMOS";
const STANDBY: &str = "hapax_standby";
/// Behind the URL of workers alone. RabbitMQ has no leases: what one who stands still has goes to others when it is taken for gone, which takes two of
/// these, in seconds, and up to one more. The usual one is far longer than anybody stands still here.
const HEARTBEAT: &str = "/%2f?heartbeat=1";
#[cfg(feature = "kafka")]
const START_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
#[cfg(feature = "kafka")]
const AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

/// A server that may be killed.
#[derive(Debug)]
pub(crate) enum Server {
    Postgres(PostgresServer),
    Replicated(Box<Replicated>),
    MySql(MySqlServer),
    RabbitMq(RabbitMqServer),
    Nats(NatsServer),
    Redis(RedisServer),
    #[cfg(feature = "sqs")]
    Sqs(hapax_tests::SqsServer),
}

impl Server {
    fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::Replicated(pair) => pair.primary.url(),
            Self::MySql(server) => server.url(),
            Self::RabbitMq(server) => server.url(),
            Self::Nats(server) => server.url(),
            Self::Redis(server) => server.url(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.url(),
        }
    }

    /// SIGKILL, with all of its processes.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::Replicated(pair) => pair.primary.kill(),
            Self::MySql(server) => server.kill(),
            Self::RabbitMq(server) => server.kill(),
            Self::Nats(server) => server.kill(),
            Self::Redis(server) => server.kill(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.kill(),
        }
    }

    /// Starts it again, and waits until it answers. Where it was, if it is elsewhere now.
    pub(crate) async fn restart(&mut self) -> Option<String> {
        match self {
            Self::Postgres(server) => server.restart().await,
            Self::Replicated(pair) => return pair.fails_over().await,
            Self::MySql(server) => server.restart().await,
            Self::RabbitMq(server) => server.restart().await,
            Self::Nats(server) => server.restart().await,
            Self::Redis(server) => server.restart().await,
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.restart().await,
        }
        None
    }
}

/// PostgreSQL whose commits wait for a standby.
#[derive(Debug)]
pub(crate) struct Replicated {
    primary: PostgresServer,
    standby: PostgresServer,
}

impl Replicated {
    async fn start() -> Self {
        let primary = PostgresServer::start(&[]).await;
        let standby = PostgresServer::following(&primary, STANDBY).await;
        let pair = Self { primary, standby };
        pair.waits_for_standby().await;
        pair
    }

    /// The standby is the primary, and another follows it. Before that one does, commits wait.
    async fn fails_over(&mut self) -> Option<String> {
        self.standby.promote().await;
        let standby = PostgresServer::following(&self.standby, STANDBY).await;
        self.primary = std::mem::replace(&mut self.standby, standby);
        self.waits_for_standby().await;
        host_and_port(&self.primary.url()).ok()
    }

    async fn waits_for_standby(&self) {
        self.primary.set_for_all("synchronous_standby_names", STANDBY).await;
    }
}

/// One side of a run: its store, or its queues.
#[derive(Debug)]
pub(crate) struct Side<P> {
    /// As nothing stands before it.
    pub(crate) direct: P,
    /// As workers are told.
    pub(crate) lined: P,
    /// Where it is reached by a network at all.
    pub(crate) line: Option<Line>,
    /// In front of `direct`, where what it leads to is not always the same.
    pub(crate) leads: Option<Line>,
    /// Where it is a server's that keeps what it confirms.
    pub(crate) server: Option<Server>,
    /// One that does not, and so is left alone.
    pub(crate) _stays: Option<Box<dyn std::fmt::Debug + Send + Sync>>,
}

impl<P> Side<P> {
    async fn of(server: Server, seed: u64, place: impl Fn(String) -> P) -> Result<Self, AnyError> {
        let url = server.url();
        let line = Line::to(&host_and_port(&url)?, seed).await?;
        let lined = place(line.in_place_of(&url));
        Ok(Self { direct: place(url), lined, line: Some(line), leads: None, server: Some(server), _stays: None })
    }

    /// In a file.
    fn in_a_file(place: impl Fn() -> P) -> Self {
        Self { direct: place(), lined: place(), line: None, leads: None, server: None, _stays: None }
    }

    /// Its server is at `HOST:PORT` from now on.
    pub(crate) fn moves(&self, server: &str) {
        for line in [&self.line, &self.leads].into_iter().flatten() {
            line.leads_to(server);
        }
    }
}

fn host_and_port(url: &str) -> Result<String, AnyError> {
    let rest = url.split_once("//").map_or(url, |(_, rest)| rest);
    let place = rest.split(['/', '?']).next().unwrap_or(rest);
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    Ok(place.to_owned())
}

pub(crate) async fn store(kind: Kind, scratch: &Scratch, seed: u64) -> Result<Side<StorePlace>, AnyError> {
    let name = format!("soak_{:08x}", seed & 0xffff_ffff);
    match kind {
        Kind::Sqlite => Ok(Side::in_a_file(|| StorePlace::Sqlite { file: scratch.file("store.db") })),
        Kind::SqliteApart => {
            let [file, marks] = ["store.db", "marks.db"].map(|name| scratch.file(name));
            Ok(Side::in_a_file(|| StorePlace::SqliteApart { file: file.clone(), marks: marks.clone() }))
        }
        Kind::Object => {
            let (file, folder) = (scratch.file("store.db"), scratch.file("marks"));
            Ok(Side::in_a_file(|| StorePlace::Object { file: file.clone(), folder: folder.clone() }))
        }
        Kind::Postgres => {
            let server = Server::Postgres(PostgresServer::start(&[]).await);
            Side::of(server, seed, |url| StorePlace::Postgres { url, schema: name.clone() }).await
        }
        Kind::PostgresReplicated => {
            let server = Server::Replicated(Box::new(Replicated::start().await));
            let (url, place) = (server.url(), |url| StorePlace::Postgres { url, schema: name.clone() });
            let leads = Line::to(&host_and_port(&url)?, seed).await?;
            let direct = place(leads.in_place_of(&url));
            Ok(Side { direct, leads: Some(leads), ..Side::of(server, seed, place).await? })
        }
        Kind::MySql => {
            let server = Server::MySql(MySqlServer::start(&[]).await);
            Side::of(server, seed, |url| StorePlace::MySql { url, prefix: format!("{name}_") }).await
        }
        Kind::DynamoDb => {
            stays(emulator(DYNAMODB)?, seed, |url| StorePlace::DynamoDb { url, table: name.clone() }).await
        }
        Kind::Cosmos => stays(emulator(COSMOS)?, seed, |url| StorePlace::Cosmos { url, database: name.clone() }).await,
    }
}

/// An emulator that has everything in its memory, so that it is not killed.
async fn stays(url: String, seed: u64, place: impl Fn(String) -> StorePlace) -> Result<Side<StorePlace>, AnyError> {
    let line = Line::to(&host_and_port(&url)?, seed).await?;
    let lined = place(line.in_place_of(&url));
    Ok(Side { direct: place(url), lined, line: Some(line), leads: None, server: None, _stays: None })
}

fn emulator(variable: &str) -> Result<String, String> {
    std::env::var(variable)
        .map_err(|_| format!("no emulator to run on: use `cargo xtask soak`, or set {variable}=http://HOST:PORT"))
}

pub(crate) async fn queues(broker: Broker, scratch: &Scratch, seed: u64) -> Result<Side<QueuePlace>, AnyError> {
    let prefix = format!("soak-{:08x}", seed & 0xffff_ffff);
    let server = match broker {
        Broker::File => return Ok(Side::in_a_file(|| QueuePlace::Sqlite { file: scratch.file("queue.db") })),
        Broker::RabbitMq => Server::RabbitMq(RabbitMqServer::start().await),
        Broker::Nats => Server::Nats(NatsServer::start().await),
        Broker::Redis => Server::Redis(RedisServer::start().await),
        #[cfg(feature = "sqs")]
        Broker::Sqs => Server::Sqs(hapax_tests::SqsServer::start().await),
        #[cfg(feature = "kafka")]
        Broker::Kafka => return kafka(&prefix, seed.wrapping_add(1)).await,
        #[allow(unreachable_patterns)] // With all features.
        Broker::Kafka | Broker::Sqs => {
            return Err(built_without(broker).into());
        }
    };
    let place = |url: String| {
        let prefix = prefix.clone();
        match broker {
            Broker::RabbitMq | Broker::File => QueuePlace::RabbitMq { url, prefix },
            Broker::Nats => QueuePlace::Nats { url, prefix },
            Broker::Redis => QueuePlace::Redis { url, prefix },
            Broker::Kafka => QueuePlace::Kafka { url, prefix },
            Broker::Sqs => QueuePlace::Sqs { url, prefix },
        }
    };
    let mut side = Side::of(server, seed.wrapping_add(1), place).await?;
    if let QueuePlace::RabbitMq { url, .. } = &mut side.lined {
        url.push_str(HEARTBEAT);
    }
    Ok(side)
}

/// A broker that tells everybody to come by the line: nobody reaches it directly.
#[cfg(feature = "kafka")]
async fn kafka(prefix: &str, seed: u64) -> Result<Side<QueuePlace>, AnyError> {
    let line = Line::to("127.0.0.1:0", seed).await?;
    let server = hapax_tests::KafkaServer::behind(line.port());
    line.leads_to(&format!("127.0.0.1:{}", server.port()));
    let place = || QueuePlace::Kafka { url: format!("kafka://{}", line.place()), prefix: prefix.to_owned() };
    let (direct, lined) = (place(), place());
    // Until it answers, and for as long as the run lasts.
    let opened = tokio::time::timeout(START_LIMIT, async {
        while direct.open(START_LIMIT).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
    });
    opened.await.map_err(|_| format!("Kafka does not answer: {}", server.log()))?;
    Ok(Side { direct, lined, line: Some(line), leads: None, server: None, _stays: Some(Box::new(server)) })
}
