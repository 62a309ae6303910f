//! Entities in one store, dedup entries in another.

#![allow(clippy::unwrap_used)]

#[path = "object/endpoint.rs"]
mod endpoint;
#[cfg(feature = "dynamodb")]
#[allow(dead_code, reason = "the rest of it is for tests of object storage alone")]
#[path = "object/place.rs"]
mod place;
#[cfg(feature = "dynamodb")]
#[path = "object/plain.rs"]
mod plain;
#[path = "object/properties.rs"]
mod properties;
#[cfg(all(feature = "dynamodb", feature = "real"))]
#[path = "object/real.rs"]
mod real;
