//! Where store and queues are, as a worker is told.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use hapax::{
    MySql, Nats, Postgres, RabbitMq, RedisStreams, Sqlite, SqliteQueue,
    endpoint::EndpointBuilder,
    ids::EndpointName,
    ports::{DeadLetters, DedupStore, EntityStore, Schedule, StoreError, Transport, TransportError},
};
use serde::{Deserialize, Serialize};

use crate::{
    forgetful::Forgetful,
    fuse::{Fuse, Fused},
};

/// What a worker has ahead.
const PREFETCH: u16 = 64;
/// How long a server's answer is waited for.
const PATIENCE: Duration = Duration::from_secs(4);

/// A store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum StorePlace {
    Sqlite { file: PathBuf },
    SqliteApart { file: PathBuf, marks: PathBuf },
    Object { file: PathBuf, folder: PathBuf },
    Postgres { url: String, schema: String },
    MySql { url: String, prefix: String },
    DynamoDb { url: String, table: String },
    Cosmos { url: String, database: String },
}

/// Queues.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum QueuePlace {
    /// In a file.
    Sqlite {
        file: PathBuf,
    },
    RabbitMq {
        url: String,
        prefix: String,
    },
    Nats {
        url: String,
        prefix: String,
    },
    Redis {
        url: String,
        prefix: String,
    },
    Kafka {
        url: String,
        prefix: String,
    },
    Sqs {
        url: String,
        prefix: String,
    },
}

type Lends = dyn Fn(EndpointBuilder) -> EndpointBuilder + Send + Sync;

/// A store that is open.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) entities: Arc<dyn EntityStore>,
    pub(crate) dedup: Arc<dyn DedupStore>,
    pub(crate) letters: Arc<dyn DeadLetters>,
    pub(crate) has_schedule: bool,
    /// Gives it to an endpoint.
    pub(crate) lends: Arc<Lends>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entities.fmt(f)
    }
}

/// What is put before a store, for endpoints.
#[derive(Debug, Clone)]
pub(crate) enum Front {
    /// Nothing.
    Plain,
    /// It confirms marks and keeps none: what the books must find out.
    Forgets,
    /// The process dies at one of its calls.
    Fused(Fuse),
}

impl Store {
    fn of<S: EntityStore + DedupStore + DeadLetters + Clone + 'static>(
        store: S,
        front: Front,
        more: impl Fn(EndpointBuilder, S) -> EndpointBuilder + Send + Sync + 'static,
    ) -> Self {
        let port = Arc::new(store.clone());
        let lent = port.clone();
        let lends = Arc::new(move |builder: EndpointBuilder| {
            let builder = match &front {
                Front::Plain => builder.store(store.clone()),
                Front::Forgets => builder.store(Forgetful(store.clone())),
                Front::Fused(fuse) => builder.store(Fused { port: lent.clone(), fuse: fuse.clone() }),
            };
            more(builder, store.clone())
        });
        Self { entities: port.clone(), dedup: port.clone(), letters: port, has_schedule: false, lends }
    }

    fn with_schedule<S: EntityStore + DedupStore + DeadLetters + Schedule + Clone + 'static>(
        store: S,
        front: Front,
    ) -> Self {
        let fuse = match &front {
            Front::Fused(fuse) => Some(fuse.clone()),
            Front::Plain | Front::Forgets => None,
        };
        let store = Self::of(store, front, move |builder, store| match &fuse {
            Some(fuse) => builder.schedule(Fused { port: Arc::new(store), fuse: fuse.clone() }),
            None => builder.schedule(store),
        });
        Self { has_schedule: true, ..store }
    }

    /// One whose dedup entries are elsewhere.
    fn apart<E, D>(entities: E, marks: D, front: Front) -> Self
    where
        E: EntityStore + DedupStore + DeadLetters + Schedule + Clone + 'static,
        D: DedupStore + Clone + 'static,
    {
        let (port, dedup) = (Arc::new(entities.clone()), Arc::new(marks.clone()));
        let (lent, remembers) = (port.clone(), dedup.clone());
        let lends = Arc::new(move |builder: EndpointBuilder| {
            let kept = |builder: EndpointBuilder| {
                builder.entities(entities.clone()).dead_letters(entities.clone()).schedule(entities.clone())
            };
            match &front {
                Front::Plain => kept(builder).dedup(marks.clone()),
                Front::Forgets => kept(builder).dedup(Forgetful(marks.clone())),
                Front::Fused(fuse) => {
                    let fused = || Fused { port: lent.clone(), fuse: fuse.clone() };
                    let marks = Fused { port: remembers.clone(), fuse: fuse.clone() };
                    builder.entities(fused()).dead_letters(fused()).schedule(fused()).dedup(marks)
                }
            }
        });
        Self { entities: port.clone(), dedup, letters: port, has_schedule: true, lends }
    }
}

impl StorePlace {
    /// Opens it; makes its tables.
    pub(crate) async fn open(&self, front: Front) -> Result<Store, StoreError> {
        match self {
            Self::Sqlite { file } => {
                let options = Sqlite::options(file).create_if_missing(true).migrate(true);
                Ok(Store::with_schedule(options.open().await?, front))
            }
            Self::SqliteApart { file, marks } => {
                let options = [file, marks].map(|file| Sqlite::options(file).create_if_missing(true).migrate(true));
                let [entities, marks] = options;
                Ok(Store::apart(entities.open().await?, marks.open().await?, front))
            }
            #[cfg(feature = "object")]
            Self::Object { file, folder } => {
                let options = Sqlite::options(file).create_if_missing(true).migrate(true);
                let marks = hapax::ObjectDedup::directory(folder).create_if_missing(true).open().await?;
                Ok(Store::apart(options.open().await?, marks, front))
            }
            #[cfg(not(feature = "object"))]
            Self::Object { .. } => Err(is_absent("object")),
            Self::Postgres { url, schema } => {
                let options = Postgres::options(url).schema(schema).migrate(true).writers(1);
                Ok(Store::with_schedule(options.open().await?, front))
            }
            Self::MySql { url, prefix } => {
                let options = MySql::options(url).table_prefix(prefix).migrate(true).writers(1);
                Ok(Store::with_schedule(options.open().await?, front))
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb { url, table } => {
                let client = hapax::DynamoDb::local_client(url);
                let store = hapax::DynamoDb::options(client, table).create_if_missing(true).open().await?;
                Ok(Store::of(store, front, |builder, _| builder))
            }
            #[cfg(not(feature = "dynamodb"))]
            Self::DynamoDb { .. } => Err(is_absent("dynamodb")),
            #[cfg(feature = "cosmos")]
            Self::Cosmos { url, database } => {
                let layout = hapax::stores::cosmos::Layout::Together;
                let database = hapax_tests::CosmosDatabase::named(url, database, layout);
                Ok(Store::of(database.try_options().await?.open().await?, front, |builder, _| builder))
            }
            #[cfg(not(feature = "cosmos"))]
            Self::Cosmos { .. } => Err(is_absent("cosmos")),
        }
    }
}

#[cfg(not(all(feature = "dynamodb", feature = "cosmos", feature = "object")))]
fn is_absent(feature: &str) -> StoreError {
    StoreError::new(hapax::ports::ErrorKind::Misconfigured, "opening a store", built_without(feature))
}

/// Queues that are open.
#[derive(Debug, Clone)]
pub(crate) enum Queues {
    Sqlite(SqliteQueue),
    RabbitMq(RabbitMq),
    Nats(Nats),
    Redis(RedisStreams),
    #[cfg(feature = "kafka")]
    Kafka(hapax::Kafka),
    #[cfg(feature = "sqs")]
    Sqs(hapax::Sqs),
}

impl Queues {
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        match self {
            Self::Sqlite(queue) => Arc::new(queue.clone()),
            Self::RabbitMq(queue) => Arc::new(queue.clone()),
            Self::Nats(queue) => Arc::new(queue.clone()),
            Self::Redis(queue) => Arc::new(queue.clone()),
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => Arc::new(queue.clone()),
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => Arc::new(queue.clone()),
        }
    }

    /// Messages that wait, or are with somebody.
    pub(crate) async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, String> {
        match self {
            Self::Sqlite(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
            Self::RabbitMq(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
            Self::Nats(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
            Self::Redis(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
            #[cfg(feature = "kafka")]
            Self::Kafka(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
            #[cfg(feature = "sqs")]
            Self::Sqs(queue) => queue.backlog(endpoint).await.map_err(|e| e.to_string()),
        }
    }
}

impl QueuePlace {
    /// Opens them. `lease`: as long as one that died keeps what it was given.
    pub(crate) async fn open(&self, lease: Duration) -> Result<Queues, TransportError> {
        const NAME: &str = "hapax-soak";
        match self {
            Self::Sqlite { file } => {
                Ok(Queues::Sqlite(SqliteQueue::options().lease(lease).open(file).await.map_err(away)?))
            }
            Self::RabbitMq { url, prefix } => {
                let options = RabbitMq::options().prefix(prefix).prefetch(PREFETCH).connection_name(NAME);
                options.open(url).await.map(Queues::RabbitMq)
            }
            Self::Nats { url, prefix } => {
                let options = Nats::options().prefix(prefix).prefetch(PREFETCH).lease(lease).connection_name(NAME);
                options.patience(PATIENCE).open(url).await.map(Queues::Nats)
            }
            Self::Redis { url, prefix } => {
                let options = RedisStreams::options().prefix(prefix).lease(lease).connection_name(NAME);
                options.open(url).await.map(Queues::Redis)
            }
            #[cfg(feature = "kafka")]
            Self::Kafka { url, prefix } => {
                // One at a time: Tansu counts wrongly where a batch of several messages ends.
                let options = hapax::Kafka::options().prefix(prefix).prefetch(PREFETCH).session(lease).batch(1);
                options.patience(PATIENCE).connection_name(NAME).open(url).await.map(Queues::Kafka)
            }
            #[cfg(feature = "sqs")]
            Self::Sqs { url, prefix } => {
                let options = hapax::Sqs::options().prefix(prefix).lease(lease).wait(lease / 2);
                options.patience(PATIENCE).open(&hapax::Sqs::local_client(url)).await.map(Queues::Sqs)
            }
            #[cfg(not(feature = "kafka"))]
            Self::Kafka { .. } => Err(without("kafka")),
            #[cfg(not(feature = "sqs"))]
            Self::Sqs { .. } => Err(without("sqs")),
        }
    }
}

#[cfg(not(all(feature = "kafka", feature = "sqs")))]
fn without(feature: &str) -> TransportError {
    TransportError::new(hapax::ports::ErrorKind::Misconfigured, "opening queues", built_without(feature))
}

/// What is not in this program, and what to do.
pub(crate) fn built_without(name: impl fmt::Display) -> String {
    format!("this program was built without {name}: build it with --features {name}")
}

fn away(error: StoreError) -> TransportError {
    TransportError::new(error.kind(), "opening queues", error.to_string()).caused_by(error)
}
