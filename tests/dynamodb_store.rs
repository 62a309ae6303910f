//! The store in DynamoDB, on an emulator: the ports' promises, and what is DynamoDB's own.
#![allow(clippy::unwrap_used)]

#[path = "dynamodb/calls.rs"]
mod calls;
#[path = "dynamodb/conformance.rs"]
mod conformance;
#[path = "dynamodb/faults.rs"]
mod dynamodb_proxied;
#[path = "dynamodb/every_call.rs"]
mod dynamodb_proxied_every_call;
#[path = "dynamodb/races.rs"]
mod dynamodb_proxied_races;
#[path = "dynamodb/reads.rs"]
mod dynamodb_proxied_reads;
#[path = "dynamodb/enqueue.rs"]
mod enqueue;
#[path = "dynamodb/large.rs"]
mod large;
#[path = "dynamodb/letters.rs"]
mod letters;
#[path = "dynamodb/limits.rs"]
mod limits;
#[path = "dynamodb/logged.rs"]
mod logged;
#[path = "dynamodb/rig.rs"]
mod rig;
#[path = "dynamodb/table.rs"]
mod table;
#[path = "dynamodb/upkeep.rs"]
mod upkeep;
