//! Transactions on Kafka, a preview. The name of module `kafka` is in the names of its tests, by which they are left out where there is no broker;
//! `mocked` needs none.
#![allow(clippy::unwrap_used)]

#[path = "kafka_transactions/broker.rs"]
mod kafka;
#[path = "kafka_transactions/mocked.rs"]
mod mocked;
#[path = "kafka/raw.rs"]
#[allow(dead_code, reason = "shared with the tests of the transport without transactions")]
mod raw;
#[path = "kafka/rig.rs"]
#[allow(dead_code, reason = "shared with the tests of the transport without transactions")]
mod rig;
