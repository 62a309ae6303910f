//! Servers of the run's own, for what it keeps and for its messages, that may be killed.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

#[cfg(feature = "sqs")]
use hapax_servers::SqsServer;
use hapax_servers::{KfakeServer, MySqlServer, NatsServer, PostgresServer, RabbitMqServer, RedisServer};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use tokio::time::{Instant, sleep};

use super::{AWAY_MAX, server::is_mysql};
use crate::{
    Refusal,
    broker::{Broker, Kind},
};

/// Between two questions whether a server answers by now.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Connections of a database server: room for many workers, and for those of killed ones that it has not missed yet.
const SETTINGS: [&str; 1] = ["max_connections=500"];
/// What queues are called by which it is seen whether a broker answers.
const ASKED: &str = "orders-asked";
/// On a MariaDB server.
const DATABASE: &str = "orders";

/// A server of the run's own, which may be killed. It ends with this.
#[derive(Debug)]
pub(crate) struct PrivateServer {
    server: Server,
    folder: PathBuf,
    pub(crate) kills: u64,
}

/// All keep what they have confirmed in their folder.
#[derive(Debug)]
enum Server {
    Postgres(PostgresServer),
    MySql(MySqlServer),
    RabbitMq(RabbitMqServer),
    Nats(NatsServer),
    Redis(RedisServer),
    Kafka(KfakeServer),
    #[cfg(feature = "sqs")]
    Sqs(SqsServer),
}

impl Server {
    fn run(&mut self) -> Result<(), String> {
        match self {
            Self::Postgres(server) => server.run(),
            Self::MySql(server) => server.run(),
            Self::RabbitMq(server) => server.run(),
            Self::Nats(server) => server.run(),
            Self::Redis(server) => server.run(),
            Self::Kafka(server) => server.run(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.run(),
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MySql(server) => server.kill(),
            Self::RabbitMq(server) => server.kill(),
            Self::Nats(server) => server.kill(),
            Self::Redis(server) => server.kill(),
            Self::Kafka(server) => server.kill(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.kill(),
        }
    }

    fn log(&self) -> String {
        match self {
            Self::Postgres(server) => server.log(),
            Self::MySql(server) => server.log(),
            Self::RabbitMq(server) => server.log(),
            Self::Nats(server) => server.log(),
            Self::Redis(server) => server.log(),
            Self::Kafka(server) => server.log(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.log(),
        }
    }

    /// Its URL, of a database that is always there.
    fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.url(),
            Self::MySql(server) => server.url("mysql"),
            Self::RabbitMq(server) => server.url(),
            Self::Nats(server) => server.url(),
            Self::Redis(server) => server.url(),
            Self::Kafka(server) => server.url(),
            #[cfg(feature = "sqs")]
            Self::Sqs(server) => server.url().replace("http://", "sqs://"),
        }
    }

    /// Whether it answers.
    async fn ask(&self) -> Result<(), String> {
        let url = self.url();
        match self {
            Self::Postgres(_) => async { PgConnection::connect(&url).await?.close().await }.await.map_err(in_words),
            Self::MySql(_) => async { MySqlConnection::connect(&url).await?.close().await }.await.map_err(in_words),
            // Always by the same name: what a transport declares when it is opened stays on the server.
            _ => Broker::named(&url, ASKED).ask().await.map_err(in_words),
        }
    }

    /// The option that names one that runs.
    const fn option(&self) -> &'static str {
        match self {
            Self::Postgres(_) | Self::MySql(_) => "--store",
            _ => "--transport",
        }
    }
}

fn in_words(error: impl fmt::Display) -> String {
    error.to_string()
}

impl PrivateServer {
    /// One with nothing in it, in `folder`, of the kind that `store` asks for. It does not run yet.
    pub(super) fn of_store(folder: &Path, store: &str) -> Result<Self, Refusal> {
        let server = if is_mysql(store) {
            MySqlServer::create(folder, &SETTINGS).map(Server::MySql)
        } else {
            PostgresServer::create(folder, &SETTINGS).map(Server::Postgres)
        };
        Self::new(server, folder, "--store")
    }

    /// The same for the messages of a run: a broker.
    pub(super) fn of_transport(folder: &Path, kind: Kind) -> Result<Self, Refusal> {
        let server = match kind {
            Kind::RabbitMq => RabbitMqServer::create(folder).map(Server::RabbitMq),
            Kind::Nats => NatsServer::create(folder).map(Server::Nats),
            Kind::Redis => RedisServer::create(folder).map(Server::Redis),
            #[cfg(feature = "sqs")]
            Kind::Sqs => SqsServer::create(folder).map(Server::Sqs),
            #[cfg(not(feature = "sqs"))]
            Kind::Sqs => Err("this program was built without SQS; build it with --features sqs".to_owned()),
            Kind::Kafka => KfakeServer::create(folder).map(Server::Kafka),
        };
        Self::new(server, folder, "--transport")
    }

    fn new(server: Result<Server, String>, folder: &Path, option: &str) -> Result<Self, Refusal> {
        let server = server.map_err(|why| no_server(&why, option))?;
        Ok(Self { server, folder: folder.to_owned(), kills: 0 })
    }

    /// Its URL, once it has a database, if it is to have one.
    pub(super) async fn furnish(&self) -> Result<String, Refusal> {
        let Server::MySql(server) = &self.server else { return Ok(self.server.url()) };
        let made = async {
            let mut connection = MySqlConnection::connect(&self.server.url()).await?;
            let sql = format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4");
            connection.execute(AssertSqlSafe(sql)).await?;
            connection.close().await
        };
        made.await.map_err(|e: sqlx::Error| self.refusal(&format!("it makes no database: {e}")))?;
        Ok(server.url(DATABASE))
    }

    /// How to look at what a kept one holds.
    pub(super) fn how_to_start(&self) -> String {
        let data = self.folder.join("data");
        match self.server {
            Server::MySql(_) => format!("start it with `mariadbd --no-defaults --datadir={}`", data.display()),
            _ => format!("start it with `postgres -D {}`", data.display()),
        }
    }

    /// Kills it every `period`, SIGKILL to all of its processes, and starts it again; ends with what went wrong.
    pub(crate) async fn harass(&mut self, period: Duration) -> Refusal {
        loop {
            sleep(period).await;
            self.server.kill();
            self.kills += 1;
            if let Err(refusal) = self.restart().await {
                return refusal;
            }
        }
    }

    /// Runs it, if it does not run, and waits until it answers.
    pub(crate) async fn restart(&mut self) -> Result<(), Refusal> {
        let begun = Instant::now();
        loop {
            self.server.run().map_err(|why| self.refusal(&why))?;
            match self.server.ask().await {
                Ok(()) => return Ok(()),
                Err(e) if begun.elapsed() > AWAY_MAX => {
                    let log = self.server.log();
                    let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                    return Err(self.refusal(&format!("it does not answer: {e}; the last it said: {last}")));
                }
                Err(_) => sleep(ASK_EVERY).await,
            }
        }
    }

    fn refusal(&self, why: &str) -> Refusal {
        no_server(why, self.server.option())
    }
}

fn no_server(why: &str, option: &str) -> Refusal {
    Refusal::new(format!("no server of the run's own: {why}; or name one that runs, with {option}"))
}

/// What a run has of its own, and kills.
#[derive(Debug, Default)]
pub(crate) struct Own<'p> {
    pub(crate) database: Option<&'p mut PrivateServer>,
    pub(crate) broker: Option<&'p mut PrivateServer>,
}

impl Own<'_> {
    /// Kills each as often as is asked for; ends with what went wrong.
    pub(crate) async fn harass(&mut self, database: Option<Duration>, broker: Option<Duration>) -> Refusal {
        tokio::select! {
            trouble = harass(self.database.as_deref_mut(), database) => trouble,
            trouble = harass(self.broker.as_deref_mut(), broker) => trouble,
        }
    }

    /// Runs what may just have been killed.
    pub(crate) async fn restart(&mut self) -> Result<(), Refusal> {
        for server in [&mut self.database, &mut self.broker].into_iter().flatten() {
            server.restart().await?;
        }
        Ok(())
    }
}

async fn harass(server: Option<&mut PrivateServer>, period: Option<Duration>) -> Refusal {
    match (server, period) {
        (Some(server), Some(period)) => server.harass(period).await,
        _ => std::future::pending().await,
    }
}
