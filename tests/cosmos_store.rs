//! The store in Cosmos DB, against Microsoft's emulator: the ports' promises, and what is Cosmos DB's own.
#![allow(clippy::unwrap_used)]

mod cosmos;
