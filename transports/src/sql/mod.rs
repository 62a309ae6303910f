//! Queues in SQL databases.

pub mod sqlite;
