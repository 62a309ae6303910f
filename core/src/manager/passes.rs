//! A manager without its saga's type, so that an endpoint has many sagas in one list; and how a message finds its entity.

use std::{
    any::Any,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
};

use super::{Incoming, Outcome, SagaManager};
use crate::{
    envelope::Envelope,
    handler_error::HandlerError,
    ids::{AttemptId, DedupKey, EntityKey, SagaKey, Scope, TypeName},
    ports::Receipt,
    registry::{Decoded, Route},
    saga::Saga,
    trace::Trace,
};

/// A pass under way: one future, not one that holds another, since thousands may wait for a store at a time.
pub type Passing<'p> = Pin<Box<dyn Future<Output = Vec<Outcome>> + Send + 'p>>;

/// One manager of any saga, for [`deliver`](crate::deliver) and the endpoint.
pub trait Passes: fmt::Debug + Send + Sync {
    /// The endpoint and saga it manages.
    fn scope(&self) -> &Arc<Scope>;

    /// The message types it handles.
    fn types(&self) -> Vec<TypeName>;

    /// Finds the entity that `envelope` is for and works out its identity.
    ///
    /// # Errors
    /// [`HandlerError`] when the message cannot be decoded or does not name its entity.
    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError>;

    /// See [`SagaManager::pass`].
    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p>;
}

impl<T: Saga> SagaManager<T> {
    /// The message in `envelope`, opened and decoded, and its saga instance.
    pub(super) fn read(&self, route: &Route<T>, envelope: &Envelope) -> Result<(SagaKey, Decoded), HandlerError> {
        route.route(&self.scope, &*self.seals.open(envelope)?)
    }
}

impl<T: Saga> Passes for SagaManager<T> {
    fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    fn types(&self) -> Vec<TypeName> {
        self.registry.types()
    }

    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        let Some(route) = self.registry.of(&envelope.message_type) else {
            return Err(HandlerError::permanent(format!(
                "{} does not handle {}",
                self.scope.saga, envelope.message_type
            )));
        };
        // The user's code reads the message and names its saga: a panic there is this message's error, like any other.
        let routed = catch_unwind(AssertUnwindSafe(|| -> Result<_, HandlerError> {
            let opened = self.seals.opened(envelope)?;
            Ok((route.route(&self.scope, &opened.envelope)?, opened.fingerprint, opened.bytes))
        }));
        let panicked = |panic: Box<dyn Any + Send>| {
            HandlerError::transient(format!("reading {} panicked: {}", envelope.message_type, text_of(&*panic)))
        };
        let ((key, decoded), fingerprint, bytes) = routed.map_err(panicked)??;
        let entity = EntityKey::new(self.scope.clone(), key);
        let incoming = Incoming {
            key: DedupKey::of(&entity, envelope),
            fingerprint,
            envelope: envelope.clone(),
            receipt,
            attempts,
            bytes,
            decoded: Some(decoded),
            trace: Trace::default(),
            fetched: None,
            answered: false,
            is_first: false,
        };
        Ok((entity, incoming))
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], sweep: &'p [AttemptId]) -> Passing<'p> {
        Box::pin(Self::pass(self, key, messages, sweep))
    }
}

/// What a panic says.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
