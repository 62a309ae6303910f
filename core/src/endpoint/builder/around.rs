//! What stands around the handlers of an endpoint, and what is on the way to them.

use std::sync::Arc;

use super::{EndpointBuilder, SagaParts};
use crate::{
    around::{Around, Layer, Reach},
    claim::Spill,
    codec::Codec,
    context::Services,
    manager::Limits,
    registry::nothing_within,
    seal::Seals,
};
#[cfg(feature = "cron")]
use crate::{registry::Registry, saga::Saga};

/// What each saga and handler is made with.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) limits: Limits,
    pub(super) codec: Codec,
    pub(super) services: Arc<Services>,
    pub(super) seals: Seals,
    /// Where large bodies go.
    pub(super) spill: Option<Arc<Spill>>,
    /// Around its handlers, outermost first.
    pub(super) layers: Arc<[Layer]>,
}

impl Given {
    /// What `saga` is made with.
    pub(super) fn of(&self, saga: &SagaParts) -> Self {
        if saga.own { Self { layers: Arc::default(), ..self.clone() } } else { self.clone() }
    }
}

impl EndpointBuilder {
    /// Puts a middleware around all handlers of the endpoint: around those of one message type, if it is one of that. Of several the first
    /// is the outermost; it does not matter whether handlers are added before or after. See [`Around`].
    ///
    /// ```
    /// # use hapax_core::{Around, Context, Endpoint, HandlerError, Next, Ran};
    /// # struct TenantGate;
    /// # impl Around for TenantGate {
    /// #     async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
    /// #         next.run(cx).await
    /// #     }
    /// # }
    /// let shop = Endpoint::builder("shop").around(TenantGate);
    /// ```
    pub fn around<M: Reach>(mut self, middleware: impl Around<M>) -> Self {
        self.layers.push(Layer::new(middleware));
        self
    }

    /// Adds a saga of hapax's own, around which nothing stands.
    #[cfg(feature = "cron")]
    pub(in crate::endpoint) fn own_saga<T: Saga>(self, messages: impl FnOnce(Registry<T>) -> Registry<T>) -> Self {
        let mut this = self.saga(messages);
        if let Some(saga) = this.sagas.last_mut() {
            saga.own = true;
        }
        this
    }

    /// With what the bodies of messages are sealed and opened: a [`Seal`](crate::seal::Seal), or several [`Seals`] and what they demand.
    pub fn seals(mut self, seals: impl Into<Seals>) -> Self {
        self.seals = seals.into();
        self
    }
}

/// One that stands around nothing was meant to stand around something, and one whose service is missing would fail with each message.
pub(super) fn check_layers(layers: &[Layer], sagas: &[SagaParts], services: &Services) -> Result<(), String> {
    let theirs = || sagas.iter().filter(|saga| !saga.own);
    for layer in layers.iter().chain(theirs().flat_map(|saga| &saga.layers)) {
        if let Some(service) = services.missing(&layer.needs) {
            return Err(format!("has no {service}, which {} needs; add .with(..)", layer.name));
        }
    }
    for layer in layers {
        let mut stands = false;
        for message in theirs().flat_map(|saga| &saga.messages) {
            stands |= layer.stands_around(message).map_err(|e| format!("has a middleware too many: {e}"))?;
        }
        if let (false, Some(only)) = (stands, layer.only) {
            return Err(format!("has a middleware too many: {}", nothing_within(layer, only.message_type)));
        }
    }
    Ok(())
}
