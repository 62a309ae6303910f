//! The name of this module is in the names of its tests, by which they are left out where there is no emulator.
#![allow(clippy::unwrap_used)]

#[path = "sqs/main.rs"]
mod sqs;
