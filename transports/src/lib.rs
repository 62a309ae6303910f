//! Transports for hapax. A feature compiles one in; it never selects one.

#[cfg(feature = "in-process")]
pub mod in_process;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;

#[cfg(feature = "in-process")]
pub use in_process::InProcess;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMq;
#[cfg(feature = "mysql")]
pub use sql::mysql::MySqlQueue;
#[cfg(feature = "postgres")]
pub use sql::postgres::PostgresQueue;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteQueue;
