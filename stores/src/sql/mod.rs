//! Stores on SQL databases: entities, dedup entries and dead letters in one database, so that load and check are one
//! snapshot and marks ride with saves.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod bodies;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clean_ups;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clock;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod columns;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod frames;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
mod golden;
mod group;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod long;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod missing;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[doc(hidden)]
pub mod numbers;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[doc(hidden)]
pub mod races;
#[doc(hidden)]
pub mod readable;
mod rows;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod schedule;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod survey;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod tls;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod url;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod versions;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
mod warnings;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use connections::Connections;
