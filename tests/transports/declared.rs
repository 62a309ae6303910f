//! Every transport that can be had, as it is without options.

use std::{any::Any, env, fmt, sync::Arc, time::Duration};

use hapax::{
    InProcess, MySqlQueue, Nats, PartitionedLog, PostgresQueue, RabbitMq, RedisStreams, SqliteQueue, ports::Transport,
};
use hapax_tests::{MySqlTables, PostgresSchema, RedisServer, Scratch};
use sqlx::{Connection, MySqlConnection, PgConnection};

use crate::asked::{self, version};

/// A transport, opened, and what cannot be asked of it.
pub(crate) struct Opened {
    pub(crate) feature: &'static str,
    /// Of what messages keep their order: a remark. That they keep it, where this is not [`NO_ORDER`], is declared, and [seen](crate::seen).
    pub(crate) order: &'static str,
    /// What has happened when a send is confirmed: a remark. That it outlives the process, where this is not [`IN_MEMORY`], is declared; the
    /// tests of each broker cut its line before a confirmation, and kill it after one.
    pub(crate) confirmed: &'static str,
    /// The largest message is what the server has been told to take.
    pub(crate) of_the_server: bool,
    pub(crate) seen_on: String,
    pub(crate) usual: Arc<dyn Transport>,
    /// With order asked for, where that has to be.
    pub(crate) ordered: Option<Arc<dyn Transport>>,
    /// Where it is, which goes with it.
    _place: Option<Box<dyn Any>>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("feature", &self.feature).finish_non_exhaustive()
    }
}

/// Queues of tests go by themselves: the server may be somebody's.
const UNUSED: Duration = Duration::from_secs(60);
const PREFIX: &str = "hapax-test";
const COMMIT: &str = "the commit";
/// Of a transport that keeps none.
pub(crate) const NO_ORDER: &str = "none";
/// Of a transport whose messages go with the process.
pub(crate) const IN_MEMORY: &str = "being in memory";

/// Every transport by its name; nothing for one that is not there.
pub(crate) async fn all() -> Vec<(&'static str, Option<Opened>)> {
    vec![
        ("InProcess", Some(in_process())),
        ("PartitionedLog", Some(partitioned_log())),
        ("SqliteQueue", Some(sqlite().await)),
        ("PostgresQueue", of(postgres, "HAPAX_TEST_POSTGRES").await),
        ("MySqlQueue", of(mysql, "HAPAX_TEST_MYSQL").await),
        ("RabbitMq", of(rabbitmq, "HAPAX_TEST_RABBITMQ").await),
        ("Nats", of(nats, "HAPAX_TEST_NATS").await),
        ("RedisStreams", of(redis, "HAPAX_TEST_REDIS").await),
        #[cfg(feature = "kafka")]
        ("Kafka", of(kafka, "HAPAX_TEST_KAFKA").await),
        #[cfg(not(feature = "kafka"))]
        ("Kafka", None),
        #[cfg(feature = "sqs")]
        ("Sqs", of(sqs, "HAPAX_TEST_SQS").await),
        #[cfg(not(feature = "sqs"))]
        ("Sqs", None),
        #[cfg(feature = "servicebus")]
        ("ServiceBus", of(servicebus, "HAPAX_TEST_SERVICEBUS").await),
        #[cfg(not(feature = "servicebus"))]
        ("ServiceBus", None),
    ]
}

async fn of(open: impl AsyncFnOnce(String) -> Opened, variable: &str) -> Option<Opened> {
    match env::var(variable) {
        Ok(url) => Some(open(url).await),
        Err(_) => None,
    }
}

fn in_process() -> Opened {
    let usual = Arc::new(InProcess::new("table"));
    Opened {
        feature: "in-process",
        order: "as sent",
        confirmed: IN_MEMORY,
        of_the_server: false,
        seen_on: "itself".to_owned(),
        usual,
        ordered: None,
        _place: None,
    }
}

fn partitioned_log() -> Opened {
    let usual = Arc::new(PartitionedLog::new("table"));
    Opened { feature: "partitioned-log", order: "of each partition", usual, ..in_process() }
}

async fn sqlite() -> Opened {
    let scratch = Scratch::new("transports");
    let usual = Arc::new(SqliteQueue::open(scratch.file("usual.db")).await.unwrap());
    let ordered = SqliteQueue::options().ordered_keys(true).open(scratch.file("ordered.db")).await.unwrap();
    Opened {
        feature: "sqlite-queue",
        order: "by partition key",
        confirmed: COMMIT,
        seen_on: "its own file".to_owned(),
        usual,
        ordered: Some(Arc::new(ordered)),
        _place: Some(Box::new(scratch)),
        ..in_process()
    }
}

async fn postgres(url: String) -> Opened {
    let (schema, other) = (PostgresSchema::new(), PostgresSchema::new());
    let usual = schema.open_queue(PostgresQueue::options()).await;
    let ordered = other.open_queue(PostgresQueue::options().ordered_keys(true)).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let full: String = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await.unwrap();
    Opened {
        feature: "postgres-queue",
        order: "by partition key, senders and receivers alike",
        confirmed: COMMIT,
        seen_on: version("PostgreSQL", &full, 1),
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        _place: Some(Box::new((schema, other))),
        ..in_process()
    }
}

async fn mysql(url: String) -> Opened {
    let (tables, other) = (MySqlTables::new(), MySqlTables::new());
    let usual = tables.open_queue(MySqlQueue::options()).await;
    let ordered = other.open_queue(MySqlQueue::options().ordered_keys(true)).await;
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let full: String = sqlx::query_scalar("select version()").fetch_one(&mut connection).await.unwrap();
    let name = if full.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    Opened {
        feature: "mysql-queue",
        order: "by partition key, senders and receivers alike",
        confirmed: COMMIT,
        of_the_server: true,
        seen_on: version(name, &full, 2),
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        _place: Some(Box::new((tables, other))),
    }
}

async fn rabbitmq(url: String) -> Opened {
    let options = || RabbitMq::options().prefix(PREFIX).remove_unused(UNUSED);
    let usual = options().open(&url).await.unwrap();
    let ordered = options().ordered_keys(true).open(&url).await.unwrap();
    let full = asked::rabbitmq(&url).await;
    Opened {
        feature: "rabbitmq",
        order: "of each endpoint, one process at a time",
        confirmed: "a publisher confirm, of a quorum queue",
        seen_on: version("RabbitMQ", &full, 2),
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        ..in_process()
    }
}

async fn nats(url: String) -> Opened {
    // Less often, the server is refused: it may lose what it confirms.
    let options = || Nats::options().prefix(PREFIX).sync_interval(Duration::from_millis(200));
    let usual = options().open(&url).await.unwrap();
    let ordered = options().ordered_keys(true).open(&url).await.unwrap();
    let client = async_nats::connect(&url).await.unwrap();
    let full = client.server_info().version;
    Opened {
        feature: "nats",
        order: "by key: 16 slots, one message of each at a time",
        confirmed: "the stream's acknowledgement",
        of_the_server: true,
        seen_on: version("NATS", &full, 2),
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        ..in_process()
    }
}

/// On a server that keeps what it confirms: whether that of the tests does is its owner's affair.
async fn redis(_: String) -> Opened {
    let server = RedisServer::start().await;
    let usual = RedisStreams::open(server.url()).await.unwrap();
    let ordered = RedisStreams::options().ordered_keys(true).open(server.url()).await.unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
    let full = info.lines().find(|line| line.starts_with("redis_version:")).unwrap();
    Opened {
        feature: "redis",
        order: "of each endpoint, one process at a time",
        confirmed: "the answer to `XADD`, on disk",
        seen_on: version("Redis", full, 2),
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        _place: Some(Box::new(server)),
        ..in_process()
    }
}

/// With one message in a batch: Tansu counts wrongly where a larger one ends.
#[cfg(feature = "kafka")]
async fn kafka(url: String) -> Opened {
    let options = || hapax::Kafka::options().prefix(PREFIX).session(Duration::from_secs(2)).batch(1);
    let usual = options().open(&url).await.unwrap();
    let ordered = options().ordered_keys(true).open(&url).await.unwrap();
    Opened {
        feature: "kafka",
        order: "by key, in its partition",
        confirmed: "`acks=all`, from an idempotent producer",
        seen_on: asked::kafka(&url).await,
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        ..in_process()
    }
}

/// As on any server of AMQP 1.0. What it declares of the service's own, nothing has held it to.
#[cfg(feature = "servicebus")]
async fn servicebus(url: String) -> Opened {
    let seen_on = version("RabbitMQ", &asked::rabbitmq(&url).await, 2);
    Opened {
        feature: "preview-servicebus",
        order: NO_ORDER,
        confirmed: "a disposition",
        seen_on: format!(
            "{seen_on}, as any server of AMQP 1.0; [nothing of the service itself](docs/servicebus.md#what-is-unproven)"
        ),
        usual: Arc::new(crate::servicebus::Queues::open(url).await),
        ordered: None,
        ..in_process()
    }
}

#[cfg(feature = "sqs")]
async fn sqs(url: String) -> Opened {
    use hapax_tests::real;
    let queues = hapax_tests::SqsQueues::new();
    let usual = queues.open(queues.options()).await;
    let ordered = queues.open(queues.options().ordered_keys(true)).await;
    Opened {
        feature: "sqs",
        order: "by partition key: FIFO queues",
        confirmed: "the result of its entry",
        seen_on: if real::is_asked(real::AWS) { "the service itself".to_owned() } else { asked::sqs(&url).await },
        usual: Arc::new(usual),
        ordered: Some(Arc::new(ordered)),
        _place: Some(Box::new(queues)),
        ..in_process()
    }
}
