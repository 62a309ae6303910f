//! The program as an operator types it, on a store that a small real endpoint has left behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod asking;
mod bad_input;
mod brokers;
mod command;
mod letters;
mod looks;
mod migrate;
mod outbox;
#[cfg(feature = "page")]
mod page;
mod rig;
mod servers;
#[cfg(any(feature = "dynamodb", feature = "cosmos"))]
mod services;
mod sweep;
