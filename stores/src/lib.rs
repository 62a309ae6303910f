//! Stores for hapax. A feature compiles one in; it never selects one.

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sql;

#[cfg(feature = "memory")]
pub use memory::Memory;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::Sqlite;
