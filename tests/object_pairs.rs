//! Entities in one store, dedup entries in object storage.

#![allow(clippy::unwrap_used)]

#[path = "object/endpoint.rs"]
#[cfg(feature = "databases")]
mod endpoint;
#[path = "object/properties.rs"]
mod properties;
