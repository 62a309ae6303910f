//! Sending from outside a handler.

use std::{fmt, sync::Arc};

use tracing::Instrument;

use crate::{
    codec::Codec,
    context::{envelope_of, type_name_of},
    envelope::{Destination, Envelope, Outgoing},
    handler_error::{HandlerError, chain},
    ids::{EndpointName, MessageId, TypeName},
    ports::{DispatchError, Dispatcher},
    saga::Message,
    seal::Seals,
    time::Timestamp,
    trace::{self, Spans, Traces},
};

/// Sends messages from outside any handler, straight to the transport.
///
/// A send that fails may have happened: send the *same* id again ([`Sender::send_as`]) and the receiver drops the
/// repeat. What must change together with a database belongs into an outbox instead.
#[derive(Debug, Clone)]
pub struct Sender {
    dispatcher: Arc<dyn Dispatcher>,
    codec: Codec,
    seals: Seals,
    spans: Spans,
}

/// Why a message was not sent.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message cannot be encoded, or an address is malformed.
    #[error("the message cannot be sent as it is: {0}")]
    Invalid(String),
    /// The transport did not confirm it. Where the outcome [is unknown](Self::is_unknown_outcome) it may have been sent: send it again under
    /// the same id. Otherwise it was not, and never can be as it is.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
}

/// For people: a `main` that returns an error prints it so.
impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl SendError {
    /// Whether the message may have been sent all the same. Sent again under its id, it is handled once.
    #[must_use]
    pub const fn is_unknown_outcome(&self) -> bool {
        matches!(self, Self::Dispatch(DispatchError::Transient(_)))
    }
}

impl Sender {
    /// A sender of JSON messages through `dispatcher`.
    #[must_use]
    pub fn new(dispatcher: Arc<dyn Dispatcher>) -> Self {
        Self { dispatcher, codec: Codec::Json, seals: Seals::default(), spans: Spans::default() }
    }

    /// The same with spans that are joined to traces by `traces`; `system` is what the transport is called in them, for example
    /// `rabbitmq` (an [endpoint](crate::endpoint::EndpointBuilder::traces) has it from its transport). A message that has no trace context
    /// of its own gets that of its span.
    #[must_use]
    pub fn traces_as(mut self, system: &'static str, traces: impl Traces + 'static) -> Self {
        self.spans = Spans::new(system, Some(Arc::new(traces)));
        self
    }

    /// The same with another codec.
    #[must_use]
    pub const fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// The same, and bodies are sealed when they are sent.
    #[must_use]
    pub fn seals(mut self, seals: impl Into<Seals>) -> Self {
        self.seals = seals.into();
        self
    }

    /// Sends `message` to one endpoint under a new id, which is returned.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send<M: Message>(&self, to: &str, message: &M) -> Result<MessageId, SendError> {
        let id = MessageId::random();
        let to = EndpointName::parse(to).map_err(|e| SendError::Invalid(e.to_string()))?;
        let envelope = self.envelope(id.clone(), message)?;
        self.send_envelope(Destination::Endpoint(to), envelope).await.map(|()| id)
    }

    /// Sends `message` to one endpoint under an id of your own: for repeats, and where the id comes from elsewhere. It bears
    /// no time of its own, so that all repeats are alike.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_as<M: Message>(&self, id: MessageId, to: &str, message: &M) -> Result<(), SendError> {
        let to = EndpointName::parse(to).map_err(|e| SendError::Invalid(e.to_string()))?;
        // A repeat would bear another time, and ids derived from it would differ (S61).
        let envelope = Envelope { occurred_at: None, ..self.envelope(id, message)? };
        self.send_envelope(Destination::Endpoint(to), envelope).await
    }

    /// Sends `message` to every endpoint that subscribes to its type, under a new id, which is returned.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn publish<M: Message>(&self, message: &M) -> Result<MessageId, SendError> {
        let id = MessageId::random();
        let topic = TypeName::parse(M::TYPE).map_err(|e| SendError::Invalid(e.to_string()))?;
        self.send_envelope(Destination::Topic(topic), self.envelope(id.clone(), message)?).await.map(|()| id)
    }

    /// An envelope around `message`, to set headers, keys and times before [`Sender::send_envelope`].
    ///
    /// # Errors
    /// [`SendError::Invalid`] when the message cannot be encoded.
    pub fn envelope<M: Message>(&self, id: MessageId, message: &M) -> Result<Envelope, SendError> {
        Self::envelope_with(self.codec, id, message)
    }

    /// The same without a sender, for what is stored first.
    ///
    /// # Errors
    /// [`SendError::Invalid`] when the message cannot be encoded.
    #[doc(hidden)]
    pub fn envelope_with<M: Message>(codec: Codec, id: MessageId, message: &M) -> Result<Envelope, SendError> {
        let invalid = |e: HandlerError| SendError::Invalid(e.to_string());
        let message_type = type_name_of::<M>().map_err(invalid)?;
        let mut envelope = envelope_of(id, message_type, message, codec).map_err(invalid)?;
        envelope.occurred_at = Some(Timestamp::now());
        Ok(envelope)
    }

    /// Sends an envelope as it is, but sealed, if the sender seals and it is not sealed yet.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send_envelope(&self, destination: Destination, envelope: Envelope) -> Result<(), SendError> {
        let mut envelope = envelope;
        self.seals.seal(&mut envelope).map_err(|e| SendError::Invalid(e.to_string()))?;
        let mut outgoing = [Outgoing { destination, envelope: Arc::new(envelope) }];
        let [only] = &outgoing;
        self.dispatcher.check(only).map_err(|refused| SendError::Invalid(refused.to_string()))?;
        let span = self.spans.begin_send(&mut outgoing);
        let results = self.dispatcher.dispatch(&outgoing).instrument(span.clone()).await;
        trace::sent(&span, &results);
        results.into_iter().collect::<Result<(), _>>().map_err(SendError::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{ErrorKind, TransportError};

    #[test]
    fn what_may_have_been_sent_is_told_from_what_was_not() {
        let lost = TransportError::new(ErrorKind::Unavailable, "sending", "cut off");
        assert!(SendError::from(DispatchError::Transient(lost)).is_unknown_outcome());
        let refused = TransportError::new(ErrorKind::Misconfigured, "sending", "too large");
        assert!(!SendError::from(DispatchError::Permanent(refused)).is_unknown_outcome());
        assert!(!SendError::Invalid("no name".into()).is_unknown_outcome());
    }
}
