//! The sagas of a check behind the explorer's one manager, and a watch over what they send to themselves.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use hapax_core::{
    HandlerError,
    envelope::Envelope,
    ids::{AttemptId, EntityKey, Scope, TypeName},
    manager::{Incoming, Outcome, Passes},
    ports::Receipt,
};

use super::watch::{Shared, lock};

/// The managers of a check, as one.
pub(super) struct Sagas {
    pub(super) manager: Arc<dyn Passes>,
    pub(super) notes: Shared,
    /// A message that nobody can read may end as a dead letter.
    pub(super) may_set_aside: bool,
}

impl fmt::Debug for Sagas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.manager.fmt(f)
    }
}

#[async_trait]
impl Passes for Sagas {
    fn scope(&self) -> &Arc<Scope> {
        self.manager.scope()
    }

    fn types(&self) -> Vec<TypeName> {
        self.manager.types()
    }

    /// Asked by the explorer for each message of the beginning, for each that is sent to a saga of the check, and at each
    /// delivery.
    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        let routed = self.manager.route(envelope, receipt, attempts);
        let mut notes = lock(&self.notes);
        let Some(coming) = &mut notes.coming else { return routed };
        match routed {
            Ok((key, incoming)) if coming.admit(incoming.key, envelope) => Ok((key, incoming)),
            Ok(_) => Err(HandlerError::permanent("one message too many for a check")),
            Err(e) => {
                // One of the beginning that cannot be read is refused by the explorer.
                if envelope.causation_id.is_some() && !self.may_set_aside {
                    coming.refuse(envelope, &e.to_string());
                }
                Err(e)
            }
        }
    }

    async fn pass(&self, key: &EntityKey, messages: &mut [Incoming], sweep: &[AttemptId]) -> Vec<Outcome> {
        self.manager.pass(key, messages, sweep).await
    }
}
