//! What adapters and applications are tested with.
//!
//! A suite for each port: [`entity_store`], [`dedup_store`], [`long_memory`], [`dead_letters`], [`schedule`], [`survey`], [`queue_survey`],
//! [`bodies`], [`transport`]. Each checks every numbered
//! promise of the port by a function of the promise's name; a suite that an adapter passes is worth as much as the lying
//! adapters it rejects (`tests/liars`). All need a backend that is well: a check that cannot be made is a failed check.

#![allow(clippy::missing_errors_doc, reason = "the error of a check is what it found broken")]

pub mod bodies;
pub mod dead_letters;
pub mod dedup_store;
mod drops;
pub mod entity_store;
pub mod long_memory;
pub mod queue_survey;
mod report;
mod samples;
pub mod schedule;
pub mod survey;
pub mod transport;
mod wait;

pub use crate::endpoint::harness::{DELIVERIES_MAX, Harness, HarnessError};
pub use drops::Drops;
pub use report::{Broken, Checked, Kept, Report, assert_claimed, assert_kept};
