//! Handlers without a saga, registered as one that has no state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Completed, Registry, ReusedId, Route};
use crate::{
    around::Only,
    context::decode,
    envelope::Envelope,
    handler_error::HandlerError,
    ids::{DedupKey, EntityKey, InvalidId, SagaKey, Scope},
    saga::{Handler, Message, Saga},
};

/// The state of a handler that has none: an entity for each message, complete once it is handled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stateless;

impl Saga for Stateless {
    const NAME: &'static str = "stateless";
}

/// Keyed by message: the saga key is the message's own identity, hashed to a length every store takes.
pub(crate) fn stateless_key(scope: &Arc<Scope>, envelope: &Envelope) -> Result<SagaKey, InvalidId> {
    let any = SagaKey::parse("stateless")?;
    SagaKey::parse(DedupKey::of(&EntityKey::new(scope.clone(), any), envelope).to_string())
}

/// A registry for one stateless handler.
#[must_use]
pub fn stateless<M: Message, H: Handler<M>>(handler: H) -> Registry<Stateless> {
    let mut registry = Registry::named(H::NAME);
    let handler = Arc::new(handler);
    registry.completed = Completed::Drop;
    registry.routes.push((
        M::TYPE,
        Route {
            starts: true,
            reused_id: ReusedId::default(),
            message: Only::of::<M>(),
            route: |scope, envelope| {
                let key = stateless_key(scope, envelope).map_err(HandlerError::permanent)?;
                Ok((key, Box::new(decode::<M>(envelope)?)))
            },
            handle: Arc::new(move |_, message, cx| {
                let handler = handler.clone();
                match message.downcast::<M>() {
                    Ok(message) => Box::pin(async move {
                        handler.handle(*message, cx).await?;
                        cx.complete_stateless()?;
                        Ok(())
                    }),
                    Err(_) => Box::pin(std::future::ready(Err(HandlerError::permanent("routed to the wrong handler")))),
                }
            }),
        },
    ));
    registry
}
