//! The name of this module is in the names of its tests, by which they are left out where there is no server.
#![allow(clippy::unwrap_used)]

#[path = "servicebus/main.rs"]
mod servicebus;
