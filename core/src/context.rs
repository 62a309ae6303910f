//! What a handler is given beside its message: the only way out.

mod services;
mod typed;

use std::{any::type_name, fmt, sync::Arc, time::Duration};

pub(crate) use services::Services;
pub(crate) use typed::{decode, envelope_of, type_name_of};

use crate::{
    codec::Codec,
    entity::LiveTimeout,
    envelope::{Destination, Envelope, Outgoing},
    handler_error::HandlerError,
    ids::{
        CausationId, CorrelationId, DedupKey, EndpointName, EntityKey, MessageId, SagaKey, SagaName, Scope, TypeName,
    },
    routes::Routes,
    saga::Message,
    seal::Seals,
    time::Timestamp,
    trace::Trace,
};

/// A handler's way to send, to set timeouts, to complete its saga and to reach its services.
///
/// Nothing leaves before the saga is saved, and nothing of a run that was not saved leaves at all. A context is lent for
/// one run: it cannot be cloned, kept or moved into a task. It only notes down what is to happen, so one that was swapped
/// for another does nothing, and the run fails.
///
/// ```compile_fail
/// # use hapax_core::Context;
/// async fn handle(cx: &mut Context) {
///     tokio::spawn(async move { cx.complete() }); // a context cannot leave the call
/// }
/// ```
pub struct Context {
    incoming: Arc<Envelope>,
    key: EntityKey,
    dedup: DedupKey,
    now: Timestamp,
    codec: Codec,
    services: Arc<Services>,
    seals: Seals,
    trace: Trace,
    effects: Effects,
}

/// What one run of a handler wants to happen.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) reply: Option<u32>,
    pub(crate) timeouts: Vec<LiveTimeout>,
    pub(crate) cancelled: Vec<MessageId>,
    pub(crate) completed: bool,
}

/// Most outgoing messages of one handled message: bounds the entity, which holds them until they are sent.
pub const OUTGOING_MAX: usize = 1000;

impl Context {
    pub(crate) fn new(
        incoming: Arc<Envelope>,
        key: EntityKey,
        dedup: DedupKey,
        now: Timestamp,
        codec: Codec,
        services: Arc<Services>,
    ) -> Self {
        let (seals, trace, effects) = (Seals::default(), Trace::default(), Effects::default());
        Self { incoming, key, dedup, now, codec, services, seals, trace, effects }
    }

    /// The same for a message that `trace` follows, and what is sent because of it.
    pub(crate) fn traced(mut self, trace: &Trace) -> Self {
        self.trace = trace.clone();
        self
    }

    /// The same with seals for what is sent.
    pub(crate) fn sealing(mut self, seals: &Seals) -> Self {
        self.seals = seals.clone();
        self
    }

    /// Sends `message` to every endpoint that subscribes to its type.
    ///
    /// # Errors
    /// A permanent error when the message cannot be encoded or [`OUTGOING_MAX`] is reached.
    pub fn publish<M: Message>(&mut self, message: M) -> Result<(), HandlerError> {
        let message_type = type_name_of::<M>()?;
        let to = Destination::Topic(message_type.clone());
        self.allow(&message_type, &to)?;
        self.push_typed(to, message_type, &message, None).map(drop)
    }

    /// Sends `message` to one endpoint.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish), and for a malformed endpoint name, or one that the endpoint's [`Routes`] do not declare.
    pub fn send<M: Message>(&mut self, to: &str, message: M) -> Result<(), HandlerError> {
        let (message_type, to) = self.addressed::<M>(to)?;
        self.push_typed(to, message_type, &message, None).map(drop)
    }

    /// Sends or publishes `message` as the endpoint's [`Routes`] declare for its type.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish), and a permanent error for a type that has no route.
    pub fn send_routed<M: Message>(&mut self, message: M) -> Result<(), HandlerError> {
        let message_type = type_name_of::<M>()?;
        let to = self
            .services
            .get::<Routes>()
            .map_or_else(|| Routes::new().of(&message_type), |all| all.of(&message_type))?;
        self.push_typed(to, message_type, &message, None).map(drop)
    }

    /// Sends `message` to this endpoint: to its other sagas, or to this one.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish).
    pub fn send_local<M: Message>(&mut self, message: M) -> Result<(), HandlerError> {
        self.push(self.own_endpoint(), &message, None).map(drop)
    }

    /// Sends `message` to one endpoint, not to be delivered before `delay` from now. The due time is fixed now, so a
    /// repeat does not shift it (S76).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_after<M: Message>(&mut self, delay: Duration, to: &str, message: M) -> Result<(), HandlerError> {
        self.send_at(self.now.after(delay), to, message)
    }

    /// Sends `message` to one endpoint, not to be delivered before `due`. What is due already is delivered at once.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_at<M: Message>(&mut self, due: Timestamp, to: &str, message: M) -> Result<(), HandlerError> {
        let (message_type, to) = self.addressed::<M>(to)?;
        self.push_typed(to, message_type, &message, Some(due)).map(drop)
    }

    /// Answers the message, at the address it asked for. Duplicates of the message get the same answer again. A
    /// [`RequestClient`](crate::RequestClient) is one who asks.
    ///
    /// # Errors
    /// A permanent error when the message names no address for replies, when it has been answered already, and as for
    /// [`publish`](Self::publish).
    pub fn reply<M: Message>(&mut self, message: M) -> Result<(), HandlerError> {
        let Some(to) = self.incoming.reply_to.clone() else {
            return Err(HandlerError::permanent(format!(
                "{} names no address for replies",
                self.incoming.message_type
            )));
        };
        if self.effects.reply.is_some() {
            return Err(HandlerError::permanent("a message can be answered once only"));
        }
        let index = self.effects.outgoing.len();
        self.push(to, &message, None)?;
        self.effects.reply = u32::try_from(index).ok();
        Ok(())
    }

    /// Sends `message` to this saga after `delay`, unless the saga is complete by then or has cancelled it with the id
    /// returned. Cancelling is exact: a cancelled timeout is never handled, however late it arrives.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish).
    pub fn timeout<M: Message>(&mut self, delay: Duration, message: M) -> Result<MessageId, HandlerError> {
        self.timeout_at(self.now.after(delay), message)
    }

    /// Sends `message` to this saga at `due`, as [`timeout`](Self::timeout) does after a delay, and cancelled as exactly. What is due already comes at
    /// once.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish).
    pub fn timeout_at<M: Message>(&mut self, due: Timestamp, message: M) -> Result<MessageId, HandlerError> {
        let message_id = self.push(self.own_endpoint(), &message, Some(due))?;
        if let Some(last) = self.effects.outgoing.last_mut() {
            Arc::make_mut(&mut last.envelope).timeout = true;
        }
        self.effects.timeouts.push(LiveTimeout { message_id: message_id.clone(), due });
        Ok(message_id)
    }

    /// Cancels a timeout that this saga has set. One that was handled or cancelled before is no error.
    pub fn cancel_timeout(&mut self, message_id: &MessageId) {
        self.effects.timeouts.retain(|timeout| timeout.message_id != *message_id);
        self.effects.cancelled.push(message_id.clone());
    }

    /// Ends the saga: its state is dropped and its timeouts are cancelled. What stays is a tombstone, until retention is
    /// over.
    pub fn complete(&mut self) {
        self.effects.completed = true;
    }

    /// Ends the entity of a stateless handler, to which no timeout could come back.
    pub(crate) fn complete_stateless(&mut self) -> Result<(), HandlerError> {
        self.complete();
        match self.effects.timeouts.is_empty() {
            true => Ok(()),
            false => {
                Err(HandlerError::permanent("a handler without state cannot set a timeout: use send_after, or a saga"))
            }
        }
    }

    /// A key for an outside effect of handling this message, to hand to the service that makes it: the same on every
    /// attempt, for every copy of the message and after a re-run, different for every `name`. 32 hexadecimal digits.
    ///
    /// # Source
    /// The `Idempotency-Key` HTTP header field (IETF draft of that name) is the usual place for it.
    #[must_use]
    pub fn idempotency_key(&self, name: &str) -> String {
        self.dedup.named(name)
    }

    /// A service that was given to the endpoint with `.with(..)`.
    ///
    /// # Errors
    /// A transient error when there is none: the message is not to blame. Name it in [`Saga::needs`](crate::Saga::needs) to learn that at start-up.
    pub fn get<C: Send + Sync + 'static>(&self) -> Result<&C, HandlerError> {
        self.services.get::<C>().ok_or_else(|| {
            // The message is as good as any: it is this process that was put together wrongly.
            HandlerError::transient(format!("no {} was given to the endpoint; add .with(..)", type_name::<C>()))
        })
    }

    /// The message as it came: ids, headers, times. A body that came sealed is sealed here too.
    #[must_use]
    pub fn incoming(&self) -> &Envelope {
        &self.incoming
    }

    /// The saga instance that handles.
    #[must_use]
    pub const fn saga_key(&self) -> &SagaKey {
        self.key.key()
    }

    /// The time of this run, by the endpoint's clock.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The type and the address of what is sent to the endpoint `to`, if it may go there.
    fn addressed<M: Message>(&self, to: &str) -> Result<(TypeName, Destination), HandlerError> {
        let message_type = type_name_of::<M>()?;
        let to = Destination::Endpoint(EndpointName::parse(to).map_err(HandlerError::permanent)?);
        if to != self.own_endpoint() {
            self.allow(&message_type, &to)?;
        }
        Ok((message_type, to))
    }

    fn allow(&self, message_type: &TypeName, to: &Destination) -> Result<(), HandlerError> {
        self.services.get::<Routes>().map_or(Ok(()), |routes| routes.allow(message_type, to))
    }

    fn own_endpoint(&self) -> Destination {
        Destination::Endpoint(self.key.scope().endpoint.clone())
    }

    fn push<M: Message>(
        &mut self,
        destination: Destination,
        message: &M,
        due: Option<Timestamp>,
    ) -> Result<MessageId, HandlerError> {
        self.push_typed(destination, type_name_of::<M>()?, message, due)
    }

    fn push_typed<M: Message>(
        &mut self,
        destination: Destination,
        message_type: TypeName,
        message: &M,
        due: Option<Timestamp>,
    ) -> Result<MessageId, HandlerError> {
        let index = self.effects.outgoing.len();
        if index == OUTGOING_MAX {
            return Err(HandlerError::permanent(format!("a handler may send {OUTGOING_MAX} messages at most")));
        }
        let message_id = MessageId::derived(&self.dedup, index, self.incoming.shared_time());
        let mut envelope = envelope_of(message_id.clone(), message_type, message, self.codec)?;
        envelope.correlation_id = Some(self.correlation_id());
        envelope.causation_id = Some(CausationId(self.incoming.message_id.clone()));
        envelope.partition_key = Some(self.key.key().into());
        envelope.occurred_at = Some(self.now);
        envelope.due = due;
        envelope.tenant.clone_from(&self.incoming.tenant);
        self.seals.seal(&mut envelope)?;
        // Now, not when it is dispatched: that may be somebody else, much later.
        let traced = self.trace.create(&destination, &envelope);
        envelope.traceparent = traced.or_else(|| self.incoming.traceparent.clone());
        self.effects.outgoing.push(Outgoing { destination, envelope: Arc::new(envelope) });
        Ok(message_id)
    }

    fn correlation_id(&self) -> CorrelationId {
        self.incoming.correlation_id.clone().unwrap_or_else(|| (&self.incoming.message_id).into())
    }

    pub(crate) const fn incoming_shared(&self) -> &Arc<Envelope> {
        &self.incoming
    }

    /// Whether this is the context that was lent for `incoming`.
    pub(crate) fn is_lent_for(&self, incoming: &Arc<Envelope>) -> bool {
        Arc::ptr_eq(&self.incoming, incoming)
    }

    /// The effects, if this is the context that was lent for `incoming`; a handler may have swapped in another.
    pub(crate) fn into_effects(self, incoming: &Arc<Envelope>) -> Option<Effects> {
        self.is_lent_for(incoming).then_some(self.effects)
    }
}

/// For unit tests of handlers, without an endpoint.
impl Context {
    /// A context for a handler under test, as if a message of type `test` had come to the saga `test/test` of the
    /// endpoint `test`, with an address for replies.
    #[must_use]
    pub fn for_test() -> Self {
        let name = "test";
        let (Ok(endpoint), Ok(saga), Ok(key), Ok(message_type)) =
            (EndpointName::parse(name), SagaName::parse(name), SagaKey::parse(name), TypeName::parse(name))
        else {
            unreachable!("`test` is a valid name")
        };
        let mut incoming = Envelope::new(MessageId::random(), message_type, "{}");
        incoming.reply_to = Some(Destination::Endpoint(endpoint.clone()));
        let key = EntityKey::new(Arc::new(Scope { endpoint, saga }), key);
        let dedup = DedupKey::of(&key, &incoming);
        Self::new(Arc::new(incoming), key, dedup, Timestamp::now(), Codec::Json, Arc::default())
    }

    /// The same with a service that handlers may [`get`](Context::get).
    #[must_use]
    pub fn with<C: Send + Sync + 'static>(mut self, service: C) -> Self {
        Arc::make_mut(&mut self.services).insert(service);
        self
    }
}

impl Context {
    /// What the handler wants to be sent, in order.
    #[must_use]
    pub fn outgoing(&self) -> &[Outgoing] {
        &self.effects.outgoing
    }

    /// The messages of type `M` that the handler wants to be sent, in order, as they will arrive.
    ///
    /// # Errors
    /// A permanent error when one cannot be read back.
    pub fn sent<M: Message>(&self) -> Result<Vec<M>, HandlerError> {
        let of_type = self.effects.outgoing.iter().filter(|sent| sent.envelope.message_type.as_str() == M::TYPE);
        of_type.map(|sent| decode(&*self.seals.open_if_sealed(&sent.envelope)?)).collect()
    }

    /// Whether the handler has ended the saga.
    #[must_use]
    pub const fn is_completed(&self) -> bool {
        self.effects.completed
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("key", &self.key)
            .field("incoming", &self.incoming.message_id)
            .finish_non_exhaustive()
    }
}
