//! Rigs that the tests share.

mod backend;
mod contended;
#[cfg(feature = "cosmos")]
mod cosmos;
mod discreet;
mod driver;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod elsewhere;
#[cfg(feature = "http-faults")]
pub mod faulted;
mod hands;
#[cfg(feature = "http-faults")]
pub mod http_faults;
mod hurt;
#[cfg(feature = "kafka")]
mod kafka_server;
mod line;
mod log;
#[cfg(feature = "databases")]
mod mysql;
#[cfg(feature = "databases")]
mod mysql_server;
#[cfg(feature = "databases")]
mod nats_server;
mod numbered;
mod pair;
#[cfg(feature = "databases")]
mod postgres;
#[cfg(feature = "databases")]
mod postgres_database;
#[cfg(feature = "databases")]
mod postgres_role;
#[cfg(feature = "databases")]
mod postgres_server;
#[cfg(feature = "databases")]
mod rabbitmq_server;
#[cfg(feature = "http-faults")]
pub mod real;
#[cfg(feature = "redis")]
mod redis_server;
mod remembered;
mod rig;
pub mod samples;
mod scripted;
mod signed;
#[cfg(feature = "sqs")]
mod sqs_queues;
#[cfg(feature = "sqs")]
mod sqs_server;
mod watched;
mod workbench;
pub mod written;

/// The chapters whose examples take client libraries that only these tests depend on, so that what they show compiles.
#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../../docs/dynamodb.md")]
mod dynamodb_chapter {}

#[cfg(all(doctest, feature = "cosmos"))]
#[doc = include_str!("../../docs/cosmos.md")]
mod cosmos_chapter {}

#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../../docs/kafka.md")]
mod kafka_chapter {}

#[cfg(all(doctest, feature = "sqs"))]
#[doc = include_str!("../../docs/sqs.md")]
mod sqs_chapter {}

// What it shows runs on a server, and is left out with it: by its name.
#[cfg(all(doctest, feature = "databases"))]
#[doc = include_str!("../../docs/tenants.md")]
mod tenants_on_postgres_chapter {}

#[cfg(all(doctest, feature = "servicebus"))]
#[doc = include_str!("../../docs/servicebus.md")]
mod servicebus_chapter {}

/// The pages of the book that show Rust, each for one task.
#[cfg(all(doctest, feature = "databases"))]
mod book {
    #[doc = include_str!("../../docs/tasks/choosing-a-store.md")]
    mod choosing_a_store {}
    #[doc = include_str!("../../docs/tasks/choosing-a-broker.md")]
    mod choosing_a_broker {}
    #[doc = include_str!("../../docs/tasks/outbox-only.md")]
    mod outbox_only {}
    #[doc = include_str!("../../docs/tasks/testing.md")]
    mod testing {}
    #[doc = include_str!("../../docs/tasks/production.md")]
    mod production {}
    #[doc = include_str!("../../docs/tasks/migrating.md")]
    mod migrating {}
}

pub use backend::{Backend, Scratch, purged, scheduled};
pub use contended::contended;
#[cfg(feature = "cosmos")]
pub use cosmos::CosmosDatabase;
pub use discreet::is_discreet;
pub use driver::{Case, Driver, Order};
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDbTable;
pub use elsewhere::own_address;
pub use hands::Hands;
pub use hurt::{Saves, Told};
#[cfg(feature = "kafka")]
pub use kafka_server::{KafkaServer, KfakeServer};
pub use line::{Line, Trouble, Weather};
pub use log::{LogLines, lines};
#[cfg(feature = "databases")]
pub use mysql::MySqlTables;
#[cfg(feature = "databases")]
pub use mysql_server::MySqlServer;
#[cfg(feature = "databases")]
pub use nats_server::NatsServer;
pub use numbered::Samples;
pub use pair::{Entities, Entries, Pair};
#[cfg(feature = "databases")]
pub use postgres::PostgresSchema;
#[cfg(feature = "databases")]
pub use postgres_database::PostgresDatabase;
#[cfg(feature = "databases")]
pub use postgres_role::PostgresRole;
#[cfg(feature = "databases")]
pub use postgres_server::{Pgbouncer, PostgresServer};
#[cfg(feature = "databases")]
pub use rabbitmq_server::RabbitMqServer;
#[cfg(feature = "redis")]
pub use redis_server::RedisServer;
pub use remembered::remembered;
pub use rig::{Rig, Setup, Shape, Stage};
pub use scripted::{Events, Out, Save, Scripted};
pub use signed::Signed;
#[cfg(feature = "sqs")]
pub use sqs_queues::SqsQueues;
#[cfg(feature = "sqs")]
pub use sqs_server::SqsServer;
pub use watched::Watched;
pub use workbench::{Bench, Workbench, message, words};
