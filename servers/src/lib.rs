//! Private database servers, brokers and poolers, for tests and examples that kill one: run from the installed programs, on a free port, with
//! their data in a folder of the caller's, and gone with the process that started them, however that ends.
//!
//! Nothing here speaks to such a server. Whether it answers, those ask who connect to it anyway. Of services that are elsewhere there is
//! what it takes to reach them.

mod cloud;
mod kafka;
mod kfake;
mod leash;
mod mysql;
mod nats;
#[cfg(feature = "objects")]
pub mod objects;
mod pgbouncer;
mod postgres;
mod process;
mod rabbitmq;
pub mod real;
mod redis;
mod sqs;

pub use cloud::Cloud;
pub use kafka::KafkaServer;
pub use kfake::KfakeServer;
pub use leash::{find, free_port};
pub use mysql::MySqlServer;
pub use nats::NatsServer;
pub use pgbouncer::Pgbouncer;
pub use postgres::PostgresServer;
pub use rabbitmq::RabbitMqServer;
pub use redis::RedisServer;
pub use sqs::SqsServer;
