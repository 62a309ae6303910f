//! **hapax** (Greek ἅπαξ, "once") lets you write a message handler as if every message came exactly once.
//!
//! Deliveries may repeat, reorder and race, processes may die anywhere, writes may time out after they took effect: the
//! **effects** of handling a message happen once, and its outgoing messages are sent at least once under ids that never
//! change, so that the next endpoint drops the repeats.
//!
//! ```text
//! load ─> check dedup ─> handle ─> save(state + outbox entry) ─> dispatch ─> add dedup ─> clean up ─> settle(Ack)
//! ```
//!
//! # Map
//! | you want to | look at |
//! | --- | --- |
//! | write a saga | [`Message`], [`Saga`], [`Handle`], [`Context`], [`HandlerError`] |
//! | handle messages without state | [`Handler`] |
//! | put middleware around handlers | [`Around`] |
//! | compress or encrypt bodies on their way | [`seal`] |
//! | run it, and ask how it is | [`Endpoint::builder`], [`endpoint::Settings`], [`endpoint::EndpointHandle`] |
//! | say what happens when a handler fails | [`deliver::Recoverability`] |
//! | look at what a store holds, from outside | [`operator`] |
//! | mend what was set aside | [`Endpoint::dead_letter_office`], [`endpoint::EndpointHandle::dead_letter_office`] |
//! | send the first message | [`Sender`] |
//! | ask, and await the answer | [`RequestClient`] |
//! | see what happens | [`trace`], [`metrics`], `otel` (feature `otel`) |
//! | see that the promise holds | [`endpoint::Audit`] |
//! | choose where things are kept | the features below |
//! | understand why it is right | [`manager`], [`deliver`] |
//! | write a store or a transport | [`ports`], the conformance suites in `testing` (feature `testing`) |
//! | test a handler | [`Context::for_test`] |
//! | test an endpoint, with time that the test lets pass | `testing::Harness` (feature `testing`) |
//! | check a handler in everything that can happen to it | `check` (feature `check`) |
//!
//! # Features
//! A feature compiles a backend in; it never selects one. Each compiles alone.
//!
//! | feature | what | default |
//! | --- | --- | --- |
//! | `sqlite` | `Sqlite`: entities, dedup entries and dead letters in one file | yes |
//! | `mysql` | `MySql`: entities, dedup entries and dead letters in a MariaDB database; MySQL is untested | no |
//! | `postgres` | `Postgres`: entities, dedup entries and dead letters in a PostgreSQL database | no |
//! | `postgres-log` | `PostgresOutbox` relayed from the server's log | no |
//! | `object` | `ObjectDedup`: dedup entries in object storage or a local directory | no |
//! | `dynamodb` | `DynamoDb`: entities, dedup entries and dead letters in a DynamoDB table | no |
//! | `cosmos` | `CosmosDb`: entities, dedup entries and dead letters in Cosmos DB | no |
//! | `sqlite-queue` | `SqliteQueue`: durable queues for several processes, in the store's file or in another | no |
//! | `postgres-queue` | `PostgresQueue`: durable queues for any number of hosts, in the store's database or in another | no |
//! | `mysql-queue` | `MySqlQueue`: the same in a MariaDB database; MySQL is untested | no |
//! | `nats` | `Nats`: queues on NATS JetStream | no |
//! | `rabbitmq` | `RabbitMq`: queues on a RabbitMQ server | no |
//! | `redis` | `RedisStreams`: queues on a Redis server | no |
//! | `kafka` | `Kafka`: queues on Kafka; needs a C compiler, make and zlib | no |
//! | `preview-kafka-transactions` | a preview: what one dispatch sends to Kafka in one transaction; never run against Apache Kafka | no |
//! | `kafka-tls` | TLS and SCRAM to Kafka, by OpenSSL built from its source; SCRAM untested | no |
//! | `sqs` | `Sqs`: queues on Amazon SQS | no |
//! | `preview-servicebus` | `ServiceBus`: queues on Azure Service Bus; never run against the service itself | no |
//! | `in-process` | `InProcess`: queues inside the process, with faults on request | yes |
//! | `partitioned-log` | `PartitionedLog`: logs with partitions inside the process, as Kafka has them; for tests | no |
//! | `memory` | `Memory`: the reference store | no |
//! | `messagepack` | a second codec | no |
//! | `bincode` | a third; the crate is unmaintained (RUSTSEC-2025-0141) | no |
//! | `tls-ring` | TLS to database servers, RabbitMQ, NATS and Redis, by rustls with ring | no |
//! | `cron` | messages that recur by the calendar | no |
//! | `deflate` | bodies that are compressed on their way | no |
//! | `check` | your own handlers, gone through in everything that can happen to them: for tests | no |
//! | `otel` | spans and metrics for OpenTelemetry | no |
//! | `fuzzing` | doors for hapax's own tests of decoders: no promise is made of them | no |
//! | `testing` | an endpoint in virtual time for your tests; conformance suites for adapters, fault hooks | no |
//!
//! # README
#![doc = include_str!("../README.md")]
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "testing")]
pub use hapax_core::testing;
pub use hapax_core::{
    Around, Completed, Context, Correlation, Endpoint, Enqueued, Every, Handle, Handler, HandlerError, Message,
    Missing, Needs, Next, OUTGOING_MAX, Ran, Reach, Registry, Relay, RequestClient, ReusedId, Routes, Saga,
    SagaManager, SendError, Sender, claim, codec, deliver, endpoint, entity, envelope, ids, ids::MessageId, inbox,
    manager, metrics, operator, ports, relay, requests, seal, time, trace,
};
#[cfg(feature = "check")]
pub use hapax_model::check;
#[cfg(feature = "otel")]
pub use hapax_otel as otel;
#[cfg(feature = "cosmos")]
pub use hapax_stores::CosmosDb;
#[cfg(feature = "dynamodb")]
pub use hapax_stores::DynamoDb;
#[cfg(feature = "memory")]
pub use hapax_stores::Memory;
#[cfg(feature = "object")]
pub use hapax_stores::ObjectDedup;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use hapax_stores::sql::Connections;
#[cfg(feature = "mysql")]
pub use hapax_stores::{MySql, MySqlOutbox};
#[cfg(feature = "postgres")]
pub use hapax_stores::{Postgres, PostgresOutbox};
#[cfg(feature = "sqlite")]
pub use hapax_stores::{Sqlite, SqliteOutbox};
#[cfg(feature = "in-process")]
pub use hapax_transports::InProcess;
#[cfg(feature = "kafka")]
pub use hapax_transports::Kafka;
#[cfg(feature = "mysql-queue")]
pub use hapax_transports::MySqlQueue;
#[cfg(feature = "nats")]
pub use hapax_transports::Nats;
#[cfg(feature = "partitioned-log")]
pub use hapax_transports::PartitionedLog;
#[cfg(feature = "postgres-queue")]
pub use hapax_transports::PostgresQueue;
#[cfg(feature = "rabbitmq")]
pub use hapax_transports::RabbitMq;
#[cfg(feature = "redis")]
pub use hapax_transports::RedisStreams;
#[cfg(feature = "preview-servicebus")]
pub use hapax_transports::ServiceBus;
#[cfg(feature = "sqlite-queue")]
pub use hapax_transports::SqliteQueue;
#[cfg(feature = "sqs")]
pub use hapax_transports::Sqs;

/// Transports and their settings.
pub mod transports {
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    pub use hapax_transports::fuzzing;
    #[cfg(feature = "in-process")]
    pub use hapax_transports::in_process;
    #[cfg(feature = "kafka")]
    pub use hapax_transports::kafka;
    #[cfg(feature = "nats")]
    pub use hapax_transports::nats;
    #[cfg(feature = "partitioned-log")]
    pub use hapax_transports::partitioned_log;
    #[cfg(feature = "rabbitmq")]
    pub use hapax_transports::rabbitmq;
    #[cfg(feature = "redis")]
    pub use hapax_transports::redis;
    #[cfg(feature = "preview-servicebus")]
    pub use hapax_transports::servicebus;
    #[cfg(feature = "mysql-queue")]
    pub use hapax_transports::sql::mysql as mysql_queue;
    #[cfg(feature = "postgres-queue")]
    pub use hapax_transports::sql::postgres as postgres_queue;
    #[cfg(feature = "sqlite-queue")]
    pub use hapax_transports::sql::sqlite as sqlite_queue;
    #[cfg(feature = "sqs")]
    pub use hapax_transports::sqs;
}

/// Stores and their settings.
pub mod stores {
    #[cfg(feature = "cosmos")]
    pub use hapax_stores::cosmos;
    #[cfg(feature = "dynamodb")]
    pub use hapax_stores::dynamodb;
    #[cfg(feature = "memory")]
    pub use hapax_stores::memory;
    #[cfg(feature = "object")]
    pub use hapax_stores::object;
    #[cfg(feature = "mysql")]
    pub use hapax_stores::sql::mysql;
    #[cfg(feature = "postgres")]
    pub use hapax_stores::sql::postgres;
    #[cfg(feature = "sqlite")]
    pub use hapax_stores::sql::sqlite;
}

/// The chapters under `docs`, so that what they show compiles.
#[cfg(all(doctest, feature = "postgres", feature = "rabbitmq"))]
#[doc = include_str!("../docs/outbox.md")]
mod outbox {}

/// The chapter on the log.
#[cfg(all(doctest, feature = "postgres-log", feature = "rabbitmq"))]
#[doc = include_str!("../docs/log.md")]
mod log {}

#[cfg(all(doctest, feature = "postgres", feature = "rabbitmq"))]
#[doc = include_str!("../docs/relay.md")]
mod running {}

#[cfg(all(doctest, feature = "postgres", feature = "rabbitmq"))]
#[doc = include_str!("../docs/inbox.md")]
mod handlers {}

#[cfg(all(doctest, feature = "redis", feature = "sqlite"))]
#[doc = include_str!("../docs/redis.md")]
mod redis_chapter {}

#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../docs/debezium.md")]
mod debezium {}

#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../docs/import.md")]
mod import {}

#[cfg(all(doctest, feature = "nats", feature = "memory"))]
#[doc = include_str!("../docs/nats.md")]
mod jetstream {}

#[cfg(all(doctest, feature = "rabbitmq", feature = "memory"))]
#[doc = include_str!("../docs/rabbitmq.md")]
mod rabbitmq_chapter {}

#[cfg(all(doctest, feature = "object"))]
#[doc = include_str!("../docs/object.md")]
mod object {}

#[cfg(all(doctest, feature = "testing", feature = "memory", feature = "in-process", feature = "cron"))]
#[doc = include_str!("../docs/endpoint.md")]
mod endpoints {}

#[cfg(all(doctest, feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/flow.md")]
mod flow {}

#[cfg(all(doctest, feature = "testing", feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/failures.md")]
mod failures {}

#[cfg(all(doctest, feature = "otel", feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/telemetry.md")]
mod telemetry {}

#[cfg(all(doctest, feature = "testing", feature = "memory", feature = "deflate"))]
#[doc = include_str!("../docs/middleware.md")]
mod around {}

#[cfg(all(doctest, feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/requests.md")]
mod asking {}

#[cfg(all(doctest, feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/audit.md")]
mod auditing {}

#[cfg(all(doctest, feature = "memory", feature = "partitioned-log"))]
#[doc = include_str!("../docs/schedule.md")]
mod later {}

#[cfg(all(doctest, feature = "memory", feature = "in-process", feature = "testing"))]
#[doc = include_str!("../docs/patterns.md")]
mod patterns {}

#[cfg(all(doctest, feature = "memory", feature = "partitioned-log", feature = "testing"))]
#[doc = include_str!("../docs/eviction.md")]
mod forgetting {}

#[cfg(all(doctest, feature = "memory", feature = "in-process"))]
#[doc = include_str!("../docs/claim-check.md")]
mod claiming {}

#[cfg(all(doctest, feature = "sqlite-queue"))]
#[doc = include_str!("../docs/operator.md")]
mod operating {}
