//! The hand-written limits: what somebody who knows the driver well would write for this one workload.
//!
//! One task owns the database, so no two messages of an entity are ever handled at once; the version check of every
//! write is a belt to that. An error ends the run.

mod array;
mod database;
pub(crate) mod disk;
pub(crate) mod memory;
mod single;

use std::path::Path;

use crate::{
    AnyError,
    run::{Run, Shape},
};

/// The loop on SQLite that fits `shape`: message by message, or in batches.
pub(crate) async fn sqlite(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    if shape.batch == 1 { single::run(path, shape).await } else { array::run(path, shape).await }
}
