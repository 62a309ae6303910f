//! Handlers that work in a transaction of the user's own database: the inbox.
//!
//! ```text
//! begin ─> enter (inbox row) ─> handle(your rows) ─> store outgoing (outbox rows) ─> commit ─> settle(Ack)
//! ```
//!
//! The inbox row is inserted **first**, under one unique key over all rows that are kept: a concurrent copy of the message waits
//! for it, and then finds that the message is over. Your own rows, the inbox row and what the handler sends are one commit, and
//! anything that goes wrong rolls all of it back. Nothing is sent before the commit: what the handler says through its
//! [`Context`] is stored in the [outbox](crate::relay) of the same database, and the relay sends it.
//!
//! Such a handler has no state of hapax's, so it needs no entity store, and its messages go side by side; those of one partition
//! key one after the other within a process.
//!
//! # Source
//! The inbox of J. Gray's "queues are databases" (1995): request, effect and reply in one transaction.

use std::{error::Error, fmt, future::Future, marker::PhantomData, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    around::{self, Last, Layer, Only},
    codec::Codec,
    context::{Context, Services, decode},
    entity::DedupEntry,
    envelope::{Envelope, Outgoing},
    handler_error::{HandlerError, chain},
    ids::{AttemptId, DedupKey, EntityKey, Fingerprint, InvalidId, SagaKey, SagaName, Scope, TypeName},
    manager::{Again, Incoming, Limits, Outcome, Passes, Passing, Ports, text_of},
    ports::{DispatchError, Evicted, Receipt, StoreError},
    registry::{Decoded, REUSED, took_too_long},
    saga::{Message, Needs},
    seal::Seals,
    trace::Trace,
};

/// Transactions of a database that keeps an inbox and an outbox. For adapters.
///
/// # Promises
/// 1. *One winner:* of all transactions that have entered the same message, one commits; the others wait and then find it seen.
/// 2. *All or nothing:* the entry, what the handler has done and what it sends are committed together, or none of it is.
/// 3. *In the end:* entries that were committed longer ago than the retention are removed by finitely many calls of `evict`.
#[async_trait]
pub trait Inbox: fmt::Debug + Send + Sync + 'static {
    /// What a handler is given.
    type Transaction: Send;

    /// Begins a transaction and enters the message in it, before anything else is done there.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was changed.
    async fn enter(&self, entry: &DedupEntry) -> Result<Entered<Self::Transaction>, StoreError>;

    /// Stores what is to be sent, and the reply of `entry` beside it, and commits.
    ///
    /// # Errors
    /// [`CommitError`]; but for an unknown outcome, nothing was changed.
    async fn commit(
        &self,
        transaction: Self::Transaction,
        entry: &DedupEntry,
        outgoing: &[Outgoing],
    ) -> Result<(), CommitError>;

    /// Whether `error` is of a race with another transaction, such as a deadlock: then it is tried again, and not counted as the
    /// handler's failure.
    fn is_of_a_race(&self, error: &(dyn Error + 'static)) -> bool;

    /// Removes entries that were committed longer ago than `retention`, a bounded number a call.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    async fn evict(&self, retention: Duration) -> Result<Evicted, StoreError>;
}

/// How entering a message ended. Complete: there is no other.
#[derive(Debug)]
pub enum Entered<T> {
    /// It is new: the transaction, with the entry in it.
    First(T),
    /// It is over.
    Seen(DedupEntry),
}

/// Why a transaction was not committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Something that the handler sends can never be sent.
    #[error("{0}")]
    Refused(String),
    /// A statement of the handler has failed, which it did not tell: the transaction cannot be committed any more. It counts as
    /// the handler's failure.
    #[error("{0}")]
    Broken(String),
    /// Another transaction was in the way: it may be tried again at once.
    #[error("another transaction was in the way: {0}")]
    Race(String),
    /// The database. An unknown outcome is found out by entering the message again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Handles one type of message in a transaction of the inbox `I`: its effects there happen once for each message.
pub trait TransactionHandler<M: Message, I: Inbox>: Send + Sync + 'static {
    /// Name in every inbox row. Renaming it forgets what has been handled.
    const NAME: &'static str;

    /// What it gets from [`Context::get`]; the endpoint refuses to start when one is missing.
    #[must_use]
    fn needs() -> Needs {
        Needs::default()
    }

    /// Does its work through `transaction`, and says through `cx` what is to be sent. It must not commit or roll back. It may
    /// run several times for one message, but only one run is committed: what it does elsewhere it does with
    /// [`Context::idempotency_key`].
    ///
    /// # Errors
    /// Any error rolls back and is retried and, when retries are spent, dead-lettered; [`HandlerError::permanent`] at once. A
    /// deadlock is tried again at once and not counted.
    fn handle(
        &self,
        message: M,
        cx: &mut Context,
        transaction: &mut I::Transaction,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// One handler, as the endpoint runs it.
pub(crate) struct InTransaction<M, I, H> {
    scope: Arc<Scope>,
    /// Under which all its messages are remembered, whatever their lanes.
    any: SagaKey,
    message_type: TypeName,
    inbox: Arc<I>,
    handler: H,
    ports: Ports,
    limits: Limits,
    codec: Codec,
    services: Arc<Services>,
    seals: Seals,
    layers: Arc<[Layer]>,
    message: PhantomData<fn() -> M>,
}

/// The handler's name and its message, or what is wrong with them.
pub(crate) fn known<M: Message, I: Inbox, H: TransactionHandler<M, I>>() -> Result<(SagaName, Vec<TypeName>), InvalidId>
{
    Ok((SagaName::parse(H::NAME)?, vec![TypeName::constant(M::TYPE)?]))
}

impl<M: Message, I: Inbox, H: TransactionHandler<M, I>> InTransaction<M, I, H> {
    pub(crate) fn new(
        endpoint: &crate::ids::EndpointName,
        inbox: Arc<I>,
        handler: H,
        ports: Ports,
        limits: Limits,
        codec: Codec,
        services: Arc<Services>,
    ) -> Result<Self, InvalidId> {
        let scope = Arc::new(Scope { endpoint: endpoint.clone(), saga: SagaName::parse(H::NAME)? });
        let (any, message_type) = (SagaKey::parse("in-transaction")?, TypeName::constant(M::TYPE)?);
        let (seals, layers, message) = (Seals::default(), Arc::default(), PhantomData);
        Ok(Self { scope, any, message_type, inbox, handler, ports, limits, codec, services, seals, layers, message })
    }

    pub(crate) fn with_seals(mut self, seals: Seals) -> Self {
        self.seals = seals;
        self
    }

    /// The same within those of `layers` that stand around its message.
    pub(crate) fn within(mut self, layers: &[Layer]) -> Result<Self, InvalidId> {
        self.layers = Layer::around(layers, &Only::of::<M>())?;
        Ok(self)
    }

    /// The message in `envelope`, what it says, and how many bytes it has.
    fn read(&self, envelope: &Envelope) -> Result<(M, Fingerprint, usize), HandlerError> {
        let opened = self.seals.opened(envelope)?;
        Ok((decode::<M>(&opened.envelope)?, opened.fingerprint, opened.bytes))
    }

    /// Runs the handler, with what stands around it.
    async fn run(
        &self,
        message: Box<M>,
        cx: &mut Context,
        transaction: &mut I::Transaction,
    ) -> Result<(), HandlerError> {
        if self.layers.is_empty() {
            return self.handler.handle(*message, cx, transaction).await;
        }
        let mut last = OfTransaction::<M, I, H> { handler: &self.handler, transaction, message: PhantomData };
        around::run(&self.layers, message, cx, &mut last).await
    }

    async fn one(&self, key: &EntityKey, message: &mut Incoming) -> Outcome {
        let now = self.ports.clock.now().await.0;
        let attempt: AttemptId = self.ports.ids.attempt().await;
        let (dedup, fingerprint) = (message.key, message.fingerprint);
        let mut entry = DedupEntry { key: dedup, attempt, fingerprint, reply: None, time: now };
        let mut transaction = match self.inbox.enter(&entry).await {
            Ok(Entered::First(transaction)) => transaction,
            Ok(Entered::Seen(seen)) => return self.seen(message, seen).await,
            Err(error) => return Outcome::Again(error.into()),
        };
        // Whoever returns before the commit drops the transaction, which rolls it back.
        if message.envelope.expires.is_some_and(|expires| expires < now) {
            return Outcome::Dropped("expired");
        }
        if message.attempts > self.limits.poison_above {
            let times = message.attempts - 1;
            return Outcome::DeadLetter(format!(
                "poison: given {times} times and never settled, the process may die of it"
            ));
        }
        let outgoing = match self.handle(key, message, now, &mut transaction, &mut entry).await {
            Ok(outgoing) => outgoing,
            Err(outcome) => return outcome,
        };
        match self.inbox.commit(transaction, &entry, &outgoing).await {
            Ok(()) => Outcome::Handled,
            Err(CommitError::Refused(why)) => Outcome::DeadLetter(why),
            Err(CommitError::Broken(why)) => Outcome::Failed(HandlerError::transient(why)),
            Err(CommitError::Race(_)) => Outcome::Again(Again::Conflict),
            Err(CommitError::Store(error)) => Outcome::Again(error.into()),
        }
    }

    /// Runs the handler. What it sends, with the reply in `entry`.
    async fn handle(
        &self,
        key: &EntityKey,
        message: &mut Incoming,
        now: crate::time::Timestamp,
        transaction: &mut I::Transaction,
        entry: &mut DedupEntry,
    ) -> Result<Vec<Outgoing>, Outcome> {
        let decoded = message.decoded.take().and_then(|decoded| decoded.downcast::<M>().ok());
        let decoded = match decoded {
            Some(decoded) => decoded,
            None => Box::new(self.read(message.whole()).map_err(Outcome::of_run)?.0),
        };
        let envelope = message.whole().clone();
        let mut cx = Context::new(envelope.clone(), key.clone(), message.key, now, self.codec, self.services.clone())
            .traced(&message.trace)
            .sealing(&self.seals);
        let handling = message.trace.within(self.run(decoded, &mut cx, transaction));
        let handling = AssertUnwindSafe(handling).catch_unwind();
        match tokio::time::timeout(self.limits.deadline, handling).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) if self.inbox.is_of_a_race(error.source()) => {
                return Err(Outcome::Again(Again::Conflict));
            }
            Ok(Ok(Err(error))) => return Err(Outcome::of_run(error)),
            Ok(Err(panic)) => {
                let why = format!("the handler panicked: {}", text_of(&*panic));
                return Err(Outcome::Failed(HandlerError::transient(why)));
            }
            Err(_) => {
                return Err(Outcome::Failed(took_too_long(self.limits.deadline)));
            }
        }
        let Some(effects) = cx.into_effects(&envelope) else {
            return Err(Outcome::DeadLetter("the handler has exchanged its context".to_owned()));
        };
        if !effects.timeouts.is_empty() {
            let why =
                "a handler in a transaction has no saga that a timeout could wait for: send a message after a delay";
            return Err(Outcome::DeadLetter(why.to_owned()));
        }
        entry.reply = effects.reply.and_then(|index| effects.outgoing.get(usize::try_from(index).ok()?).cloned());
        Ok(effects.outgoing)
    }

    /// A copy of what is over gets the answer that was given, at its own address.
    async fn seen(&self, message: &Incoming, seen: DedupEntry) -> Outcome {
        if seen.fingerprint != message.fingerprint {
            return Outcome::DeadLetter(format!("the identity of {} {REUSED}", message.envelope.message_id));
        }
        let (Some(reply), Some(to)) = (seen.reply, message.envelope.reply_to.clone()) else {
            return Outcome::Duplicate;
        };
        let answer = Outgoing { destination: to, envelope: reply.envelope };
        for result in self.ports.dispatcher.dispatch(&[answer]).await {
            match result {
                Err(DispatchError::Transient(error)) => return Outcome::Unanswered(chain(&error)),
                Err(DispatchError::Permanent(error)) => {
                    let message_id = &message.envelope.message_id;
                    tracing::warn!(%message_id, error = %chain(&error), "its copy cannot be answered");
                }
                Ok(()) => {}
            }
        }
        Outcome::Duplicate
    }
}

/// The handler and its transaction, for what stands around it.
struct OfTransaction<'a, M, I: Inbox, H> {
    handler: &'a H,
    transaction: &'a mut I::Transaction,
    message: PhantomData<fn() -> M>,
}

impl<M: Message, I: Inbox, H: TransactionHandler<M, I>> Last for OfTransaction<'_, M, I, H> {
    fn run<'c>(&'c mut self, message: Decoded, cx: &'c mut Context) -> BoxFuture<'c, Result<(), HandlerError>> {
        match message.downcast::<M>() {
            Ok(message) => Box::pin(self.handler.handle(*message, cx, self.transaction)),
            Err(_) => Box::pin(std::future::ready(Err(HandlerError::permanent("routed to the wrong handler")))),
        }
    }
}

impl<M: Message, I: Inbox, H: TransactionHandler<M, I>> Passes for InTransaction<M, I, H> {
    fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    fn types(&self) -> Vec<TypeName> {
        vec![self.message_type.clone()]
    }

    fn route(
        &self,
        envelope: &Arc<Envelope>,
        receipt: Receipt,
        attempts: u32,
    ) -> Result<(EntityKey, Incoming), HandlerError> {
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| self.read(envelope)));
        let (decoded, fingerprint, bytes) = read.map_err(|panic| {
            HandlerError::transient(format!("reading {} panicked: {}", envelope.message_type, text_of(&*panic)))
        })??;
        let identity = DedupKey::of(&EntityKey::new(self.scope.clone(), self.any.clone()), envelope);
        let lane = envelope.partition_key.as_ref().and_then(|key| SagaKey::parse(key.as_str()).ok());
        let lane = match lane {
            Some(lane) => lane,
            None => SagaKey::parse(identity.to_string()).map_err(HandlerError::permanent)?,
        };
        let incoming = Incoming {
            key: identity,
            fingerprint,
            envelope: envelope.clone(),
            receipt,
            attempts,
            bytes,
            decoded: Some(Box::new(decoded)),
            trace: Trace::default(),
            fetched: None,
            answered: false,
            is_first: false,
        };
        Ok((EntityKey::new(self.scope.clone(), lane), incoming))
    }

    fn pass<'p>(&'p self, key: &'p EntityKey, messages: &'p mut [Incoming], _: &'p [AttemptId]) -> Passing<'p> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(messages.len());
            for message in messages {
                // One that is not over holds up those behind it, which are judged in the next pass.
                let stuck = outcomes.last().is_some_and(|outcome| {
                    !matches!(
                        outcome,
                        Outcome::Handled | Outcome::Duplicate | Outcome::Dropped(_) | Outcome::DeadLetter(_)
                    )
                });
                outcomes.push(if stuck { Outcome::Rest } else { self.one(key, message).await });
            }
            outcomes
        })
    }
}

impl<M, I: fmt::Debug, H> fmt::Debug for InTransaction<M, I, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").field("scope", &self.scope).field("inbox", &self.inbox).finish_non_exhaustive()
    }
}
