//! Middleware: what stands around handlers.

use std::{
    any::{TypeId, type_name},
    fmt,
    future::{Future, ready},
    marker::PhantomData,
    sync::Arc,
};

use futures_util::future::BoxFuture;

use crate::{
    context::Context,
    envelope::Envelope,
    handler_error::HandlerError,
    ids::InvalidId,
    registry::Decoded,
    saga::{Message, Needs},
};

/// A middleware: it stands around handlers, those of every message, or of those of one type, `impl Around<AddItem>`, whose message it sees
/// decoded. [`EndpointBuilder::around`](crate::endpoint::EndpointBuilder::around) puts it around all of an endpoint, and
/// [`Registry::around`](crate::Registry::around) around those of one saga.
///
/// It is part of the run that it stands around. It runs on each attempt, its own messages are sent and its error is treated as if the handler
/// had said it, and of all runs one is kept, with all that was around it. So a duplicate does not reach it, and nothing that it
/// does through [`Context`] happens twice; what it does elsewhere does, and is done with [`Context::idempotency_key`].
///
/// It ends in one of three ways, and there is no fourth:
/// - with what [`Next::run`] gave it, after it has awaited it: the message is handled, if all that stands further out ends so too;
/// - with [`Next::skip`]: the message is dropped by a rule, acknowledged and [counted](crate::metrics::Event::Dropped), and nothing of
///   the run is kept. As with every rule that drops, nothing is remembered of it: a copy is judged anew;
/// - with an error, before or after: nothing of the run is kept, and the [rules](crate::deliver::Recoverability) for errors hold.
///
/// An error of what stands further in is passed on, as it is or as another: a run that has failed cannot be made one that has not. (The
/// rules for errors look for types along the causes, so keep the error as the cause of the other.)
///
/// Where several stand around a handler, the one that was registered first is the outermost, those of the endpoint before those of its
/// sagas. None stands around what hapax itself handles, such as recurrences. Messages that no handler takes, that cannot be read or
/// that a rule drops beforehand reach none of them.
///
/// ```
/// # use hapax_core::{Around, Context, HandlerError, Message, Next, Ran};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct AddItem { count: u32 }
/// # impl Message for AddItem { const TYPE: &'static str = "shop.add-item"; }
/// /// Only messages of somebody.
/// struct TenantGate;
/// impl Around for TenantGate {
///     async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
///         if cx.incoming().tenant.is_none() {
///             return Err(HandlerError::permanent("nobody's message"));
///         }
///         next.run(cx).await
///     }
/// }
///
/// /// Nothing is done about orders of nothing.
/// struct NoEmptyOrders;
/// impl Around<AddItem> for NoEmptyOrders {
///     async fn around<'r>(&self, cx: &mut Context, next: Next<'r, AddItem>) -> Result<Ran<'r>, HandlerError> {
///         if next.message().count == 0 {
///             return Ok(next.skip("empty order"));
///         }
///         next.run(cx).await
///     }
/// }
/// ```
pub trait Around<M: Reach = Every>: Send + Sync + 'static {
    /// What it gets from [`Context::get`]; the endpoint refuses to start when one is missing.
    #[must_use]
    fn needs() -> Needs {
        Needs::default()
    }

    /// Runs what is further in, or does not. See the [trait](Self) for what it may return.
    ///
    /// # Errors
    /// As for [`Handle::handle`](crate::Handle::handle).
    fn around<'r>(
        &self,
        cx: &mut Context,
        next: Next<'r, M>,
    ) -> impl Future<Output = Result<Ran<'r>, HandlerError>> + Send;
}

/// What stands further in: other middleware, and the handler at last. It can be run once, and lives no longer than the run.
///
/// ```compile_fail
/// # use hapax_core::{Around, Context, HandlerError, Next, Ran};
/// # struct Later;
/// # impl Around for Later {
/// async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
///     tokio::spawn(async move { next.run(&mut Context::for_test()).await }); // it cannot leave the call
///     Err(HandlerError::transient("later"))
/// }
/// # }
/// ```
///
/// Nor can it be run twice, and what it gave in one run cannot be returned in another:
///
/// ```compile_fail
/// # use hapax_core::{Around, Context, HandlerError, Next, Ran};
/// # struct Twice;
/// # impl Around for Twice {
/// async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
///     next.run(cx).await?;
///     next.run(cx).await
/// }
/// # }
/// ```
///
/// ```compile_fail
/// # use std::sync::Mutex;
/// # use hapax_core::{Around, Context, HandlerError, Next, Ran};
/// struct Keeps(Mutex<Option<Ran<'static>>>);
/// # impl Around for Keeps {
/// async fn around<'r>(&self, cx: &mut Context, next: Next<'r>) -> Result<Ran<'r>, HandlerError> {
///     let ran = next.run(cx).await?;
///     *self.0.lock().unwrap() = Some(ran);
///     Err(HandlerError::transient("later"))
/// }
/// # }
/// ```
pub struct Next<'r, M: Reach = Every> {
    inner: Inner<'r>,
    message: M::Held,
}

/// How a run has ended that has not failed: [`Next::run`] and [`Next::skip`] give it, and nothing else does. It belongs to its run.
#[derive(Debug)]
#[must_use = "a run counts as its middleware says: return it"]
pub struct Ran<'r> {
    skipped: Option<&'static str>,
    /// Of this run alone, neither longer nor shorter.
    run: PhantomData<fn(&'r ()) -> &'r ()>,
}

impl<'r, M: Reach> Next<'r, M> {
    /// Runs the handler, and the middleware in between.
    ///
    /// Dropping the future before its end leaves the message neither handled nor skipped: return an error then.
    ///
    /// # Errors
    /// What has failed further in. A permanent error where `cx` is not the context that came with this.
    pub async fn run(self, cx: &mut Context) -> Result<Ran<'r>, HandlerError> {
        self.inner.run(M::give(self.message), cx).await
    }

    /// Does not run the handler. The message is dropped by `rule`, which says why, in two or three words: it stands in logs and metrics.
    pub fn skip(self, rule: &'static str) -> Ran<'r> {
        Ran { skipped: Some(rule), run: PhantomData }
    }
}

impl<M: Message> Next<'_, M> {
    /// The message. The handler takes it: what is needed of it afterwards is to be kept before.
    #[must_use]
    pub fn message(&self) -> &M {
        &self.message
    }
}

impl Ran<'_> {
    /// The rule by which the message is dropped, if something further in has skipped it.
    #[must_use]
    pub const fn skipped(&self) -> Option<&'static str> {
        self.skipped
    }
}

impl<M: Reach> fmt::Debug for Next<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("layers", &self.inner.layers).finish_non_exhaustive()
    }
}

/// Messages of every type: where no other is said.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Every;

/// Which messages a middleware stands around: [`Every`] one, or those of one [`Message`] type. Nothing else is one.
pub trait Reach: sealed::Reach {}

impl<R: sealed::Reach> Reach for R {}

mod sealed {
    use super::{Decoded, Every, Message, Only, TypeId};

    pub trait Reach: 'static {
        type Held: Send;

        fn only() -> Option<Only>;
        /// The message, if it is one of these.
        fn take(message: Decoded) -> Option<Self::Held>;
        fn give(held: Self::Held) -> Decoded;
    }

    impl Reach for Every {
        type Held = Decoded;

        fn only() -> Option<Only> {
            None
        }

        fn take(message: Decoded) -> Option<Decoded> {
            Some(message)
        }

        fn give(held: Decoded) -> Decoded {
            held
        }
    }

    impl<M: Message> Reach for M {
        type Held = Box<M>;

        fn only() -> Option<Only> {
            Some(Only { message_type: M::TYPE, id: TypeId::of::<M>() })
        }

        fn take(message: Decoded) -> Option<Box<M>> {
            message.downcast().ok()
        }

        fn give(held: Box<M>) -> Decoded {
            held
        }
    }
}

/// One type of messages, and what it is in Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Only {
    pub(crate) message_type: &'static str,
    pub(crate) id: TypeId,
}

impl Only {
    pub(crate) fn of<M: Message>() -> Self {
        Self { message_type: M::TYPE, id: TypeId::of::<M>() }
    }
}

/// A middleware that was registered.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) only: Option<Only>,
    erased: Arc<dyn Erased>,
}

impl Layer {
    pub(crate) fn new<M: Reach, A: Around<M>>(middleware: A) -> Self {
        let erased = Arc::new(Of::<M, A> { middleware, of: PhantomData });
        Self { name: type_name::<A>(), needs: A::needs(), only: M::only(), erased }
    }

    /// Whether it stands around handlers of `message`. One that stood around half of a message type, because another half is read as
    /// another Rust type, would be gone around.
    pub(crate) fn stands_around(&self, message: &Only) -> Result<bool, InvalidId> {
        match &self.only {
            None => Ok(true),
            Some(only) if only.message_type != message.message_type => Ok(false),
            Some(only) if only.id == message.id => Ok(true),
            Some(only) => {
                let why = format!(
                    "`{}` is handled as another Rust type than the one that {} stands around; use one for both",
                    only.message_type, self.name
                );
                Err(InvalidId::new("message type", why))
            }
        }
    }

    /// Those that stand around handlers of `message`, outermost first.
    pub(crate) fn around(layers: &[Self], message: &Only) -> Result<Arc<[Self]>, InvalidId> {
        let mut around = Vec::new();
        for layer in layers {
            if layer.stands_around(message)? {
                around.push(layer.clone());
            }
        }
        Ok(around.into())
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A handler, with what it works on.
pub(crate) trait Last: Send {
    fn run<'c>(&'c mut self, message: Decoded, cx: &'c mut Context) -> BoxFuture<'c, Result<(), HandlerError>>;
}

/// What is left to run.
struct Inner<'r> {
    layers: &'r [Layer],
    last: &'r mut (dyn Last + 'r),
    /// Of the context that was lent for the run.
    incoming: &'r Arc<Envelope>,
}

impl<'r> Inner<'r> {
    async fn run(self, message: Decoded, cx: &mut Context) -> Result<Ran<'r>, HandlerError> {
        // Effects that were noted down in another context would be lost, and the message handled without them.
        if !cx.is_lent_for(self.incoming) {
            return Err(HandlerError::permanent("a middleware has run the handler with another context than its own"));
        }
        match self.layers.split_first() {
            Some((layer, layers)) => layer.erased.around(cx, Inner { layers, ..self }, message).await,
            None => {
                self.last.run(message, cx).await?;
                Ok(Ran { skipped: None, run: PhantomData })
            }
        }
    }
}

/// A middleware without its types.
trait Erased: Send + Sync {
    fn around<'c, 'r: 'c>(
        &'c self,
        cx: &'c mut Context,
        inner: Inner<'r>,
        message: Decoded,
    ) -> BoxFuture<'c, Result<Ran<'r>, HandlerError>>;
}

struct Of<M, A> {
    middleware: A,
    of: PhantomData<fn() -> M>,
}

impl<M: Reach, A: Around<M>> Erased for Of<M, A> {
    fn around<'c, 'r: 'c>(
        &'c self,
        cx: &'c mut Context,
        inner: Inner<'r>,
        message: Decoded,
    ) -> BoxFuture<'c, Result<Ran<'r>, HandlerError>> {
        match M::take(message) {
            Some(message) => Box::pin(self.middleware.around(cx, Next { inner, message })),
            None => Box::pin(ready(Err(HandlerError::permanent("routed to the wrong middleware")))),
        }
    }
}

/// Runs `last` with `layers` around it.
pub(crate) async fn run(
    layers: &[Layer],
    message: Decoded,
    cx: &mut Context,
    last: &mut dyn Last,
) -> Result<(), HandlerError> {
    let incoming = cx.incoming_shared().clone();
    let ran = Inner { layers, last, incoming: &incoming }.run(message, cx).await?;
    match ran.skipped {
        None => Ok(()),
        Some(rule) => Err(HandlerError::skipped(rule)),
    }
}
