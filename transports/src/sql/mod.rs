//! Queues in SQL databases.

mod errors;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
mod room;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod served;
mod set_aside;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use set_aside::SetAside;
