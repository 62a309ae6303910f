//! Entities in one store, dedup entries in another.

#![allow(clippy::unwrap_used)]

#[cfg(all(feature = "dynamodb", feature = "real"))]
#[path = "object/encrypted.rs"]
mod encrypted;
#[path = "object/endpoint.rs"]
mod endpoint;
#[cfg(feature = "dynamodb")]
#[allow(dead_code, reason = "the rest of it is for tests of object storage alone")]
#[path = "object/place.rs"]
mod place;
#[path = "object/properties.rs"]
mod properties;
#[cfg(all(feature = "dynamodb", feature = "real"))]
#[path = "object/real.rs"]
mod real;
