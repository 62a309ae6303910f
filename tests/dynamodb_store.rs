//! The store in DynamoDB, on an emulator: the ports' promises, and what is DynamoDB's own.
#![allow(clippy::unwrap_used)]

#[path = "dynamodb/conformance.rs"]
mod conformance;
#[path = "dynamodb/faults.rs"]
mod faults;
