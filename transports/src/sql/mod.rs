//! Queues in SQL databases.

mod errors;
#[cfg(all(feature = "fuzzing", feature = "sqlite"))]
mod fuzzing;
mod marks;
#[cfg(feature = "mysql")]
pub mod mysql;
mod order;
#[cfg(feature = "postgres")]
pub mod postgres;
mod room;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod served;
mod set_aside;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod survey;

pub use set_aside::SetAside;

/// Whole milliseconds, at most what a time far away has: 100,000 years.
fn millis(time: std::time::Duration) -> i64 {
    const MAX: i64 = 100_000 * 366 * 24 * 3600 * 1000;
    i64::try_from(time.as_millis()).unwrap_or(MAX).min(MAX)
}
