//! Stores for hapax. A feature compiles one in; it never selects one.
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "cosmos")]
pub mod cosmos;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(all(
    test,
    any(feature = "cosmos", feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite")
))]
mod golden;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "object")]
pub mod object;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;

#[cfg(feature = "cosmos")]
pub use cosmos::CosmosDb;
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDb;
#[cfg(feature = "memory")]
pub use memory::Memory;
#[cfg(feature = "object")]
pub use object::ObjectDedup;
#[cfg(feature = "mysql")]
pub use sql::mysql::{MySql, outbox::MySqlOutbox};
#[cfg(feature = "postgres")]
pub use sql::postgres::{Postgres, outbox::PostgresOutbox};
#[cfg(feature = "sqlite")]
pub use sql::sqlite::{Sqlite, outbox::SqliteOutbox};
