//! Timeouts of saga instances that are not there: what they were to remind of is not done, and an operator hears of it.

use std::sync::PoisonError;

use tokio::time::Instant;

use super::super::warned::Warned;
use crate::{ids::EntityKey, sync::Mutex};

/// Warns of the first of an endpoint, and then now and then: of a saga that was renamed thousands may come.
#[derive(Debug, Default)]
pub(super) struct Strays(Mutex<Warned>);

impl Strays {
    /// One was dropped.
    pub(super) fn came(&self, entity: &EntityKey) {
        let untold = self.0.lock().unwrap_or_else(PoisonError::into_inner).came(Instant::now());
        if let Some(untold) = untold {
            tracing::warn!(
                %entity, saga = %entity.scope().saga, untold,
                "a timeout is dropped, since nothing of its saga instance is there: if the saga or the endpoint has another name than it had, \
                 give it the former one again, or all timeouts that are still due are lost, too; if the instance was completed longer ago than \
                 the retention, nothing is lost. Others are told of once a minute, and `untold` counts those since"
            );
        }
    }
}
