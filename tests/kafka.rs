//! The name of this module is in the names of its tests, by which they are left out where there is no broker.
#![allow(clippy::unwrap_used)]

#[path = "kafka/main.rs"]
mod kafka;
