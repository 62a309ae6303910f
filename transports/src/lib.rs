//! Transports for hapax. A feature compiles one in; it never selects one.
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(
    test,
    any(
        feature = "kafka",
        feature = "mysql",
        feature = "nats",
        feature = "postgres",
        feature = "preview-servicebus",
        feature = "rabbitmq",
        feature = "redis",
        feature = "sqlite",
        feature = "sqs"
    )
))]
mod golden;
#[cfg(any(feature = "nats", feature = "preview-servicebus", feature = "rabbitmq"))]
mod header_order;
#[cfg(feature = "in-process")]
pub mod in_process;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod own_fields;
#[cfg(feature = "partitioned-log")]
pub mod partitioned_log;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(any(
    feature = "kafka",
    feature = "nats",
    feature = "preview-servicebus",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs"
))]
mod reason;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "preview-servicebus")]
pub mod servicebus;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis", feature = "sqs"))]
mod survey;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod together;
#[cfg(any(
    feature = "kafka",
    feature = "nats",
    feature = "preview-servicebus",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqs"
))]
mod written_as;

#[cfg(feature = "redis")]
pub use self::redis::RedisStreams;
#[cfg(feature = "in-process")]
pub use in_process::InProcess;
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
#[cfg(feature = "nats")]
pub use nats::Nats;
#[cfg(feature = "partitioned-log")]
pub use partitioned_log::PartitionedLog;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMq;
#[cfg(feature = "preview-servicebus")]
pub use servicebus::ServiceBus;
#[cfg(feature = "mysql")]
pub use sql::mysql::MySqlQueue;
#[cfg(feature = "postgres")]
pub use sql::postgres::PostgresQueue;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteQueue;
#[cfg(feature = "sqs")]
pub use sqs::Sqs;
