//! Whether timeouts find their way back: asked before anything is saved.

use super::SagaManager;
use crate::{entity::LiveTimeout, envelope::Outgoing, handler_error::HandlerError, ids::EntityKey, saga::Saga};

/// The rule that drops a timeout where there is nothing of its saga instance: it has another name now, or was completed so long ago
/// that its tombstone is gone.
pub(crate) const TIMEOUT_OF_NO_SAGA: &str = "timeout of no saga";

impl<T: Saga> SagaManager<T> {
    /// A timeout comes back as a message: it must find its way to this very saga instance.
    pub(super) fn check_timeouts(
        &self,
        key: &EntityKey,
        timeouts: &[LiveTimeout],
        outgoing: &[Outgoing],
    ) -> Result<(), HandlerError> {
        for timeout in timeouts {
            let Some(outgoing) = outgoing.iter().find(|o| o.envelope.message_id == timeout.message_id) else {
                continue;
            };
            let (envelope, saga) = (&outgoing.envelope, &self.scope.saga);
            let Some(route) = self.registry.of(&envelope.message_type) else {
                let why = format!("timeout {} has no handler in {saga}; add .handles(..)", envelope.message_type);
                return Err(HandlerError::permanent(why));
            };
            let (back, _) = self.read(route, envelope)?;
            if back != *key.key() {
                let why =
                    format!("timeout {} correlates to {back}, but was set by {}", envelope.message_type, key.key());
                return Err(HandlerError::permanent(why));
            }
        }
        Ok(())
    }
}
