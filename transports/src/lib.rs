//! Transports for hapax. A feature compiles one in; it never selects one.

#[cfg(feature = "in-process")]
pub mod in_process;
#[cfg(feature = "sqlite")]
pub mod sql;

#[cfg(feature = "in-process")]
pub use in_process::InProcess;
#[cfg(feature = "sqlite")]
pub use sql::sqlite::SqliteQueue;
