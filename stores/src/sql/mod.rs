//! Stores on SQL databases: entities, dedup entries and dead letters in one database, so that load and check are one
//! snapshot and marks ride with saves.

pub mod sqlite;
