//! The hand-written limits: what somebody who knows the driver well would write for this one workload.
//!
//! One task owns the database, so no two messages of an entity are ever handled at once; the version check of every
//! write is a belt to that. An error ends the run.

mod array;
mod batch;
mod database;
pub(crate) mod disk;
pub(crate) mod memory;
mod queue;
mod single;

use std::path::Path;

use crate::{
    AnyError,
    run::{Run, Shape},
};

/// The loop on SQLite that fits `shape`: message by message, in batches, or in batches from a queue, for which the file
/// is what [`prepare`] made.
pub(crate) async fn sqlite(path: &Path, shape: &Shape) -> Result<Run, AnyError> {
    match shape {
        Shape { queued: 1.., .. } => queue::run(path, shape).await,
        Shape { batch: 1, .. } => single::run(path, shape).await,
        _ => array::run(path, shape).await,
    }
}

/// Makes the file that a run of `shape` needs at `path`.
pub(crate) async fn prepare(path: &Path, shape: &Shape) -> Result<(), AnyError> {
    queue::prepare(path, shape).await
}
