//! Dedup entries in object storage: the suite, stores that lie, faults on the way, evictions.

#![allow(clippy::unwrap_used)]

#[path = "object/conformance.rs"]
mod conformance;
#[path = "object/directory.rs"]
mod directory;
#[cfg(feature = "real")]
#[path = "object/encrypted.rs"]
mod encrypted;
#[path = "object/every_call.rs"]
mod every_call;
#[path = "object/eviction.rs"]
mod eviction;
#[path = "object/faults.rs"]
mod faults;
#[path = "object/logged.rs"]
mod logged;
#[path = "object/place.rs"]
mod place;
#[path = "object/probes.rs"]
mod probes;
#[cfg(feature = "real")]
#[path = "object/real.rs"]
mod real;
#[path = "object/rigged.rs"]
mod rigged;
#[path = "object/samples.rs"]
mod samples;
#[path = "object/services.rs"]
mod services;
