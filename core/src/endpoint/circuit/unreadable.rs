//! Messages that wait until what is stored for them can be read: an operator hears of them, and not of each at each of its tries.

use std::sync::PoisonError;

use tokio::time::Instant;

use super::super::warned::Warned;
use crate::{
    ids::{EntityKey, MessageId},
    sync::Mutex,
};

/// Warns of the first of an endpoint, and then now and then.
#[derive(Debug, Default)]
pub(super) struct Unreadable(Mutex<Warned>);

impl Unreadable {
    /// One was given back.
    pub(super) fn came(&self, entity: &EntityKey, message_id: &MessageId, why: &str) {
        let untold = self.0.lock().unwrap_or_else(PoisonError::into_inner).came(Instant::now());
        if let Some(untold) = untold {
            tracing::warn!(
                %entity, %message_id, why, untold,
                "waits until what is stored can be read: by a version with a default for a new field or an upcast, or once it is mended; \
                 others that wait are told of once a minute, and `untold` counts their tries since"
            );
        }
    }
}
