//! Which messages a saga knows, and what is to be done with those it cannot handle now.

mod handlers;
mod running;

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
pub(crate) use handlers::stateless_key;
pub use handlers::{Stateless, stateless};
pub(crate) use running::took_too_long;
use running::{ending, within};

use crate::{
    around::{Around, Layer, Only, Reach},
    context::{Context, decode},
    envelope::Envelope,
    handler_error::HandlerError,
    ids::{InvalidId, SagaKey, SagaName, Scope, TypeName},
    saga::{Handle, Message, Saga},
};

/// A message, decoded once when it is routed.
pub(crate) type Decoded = Box<dyn Any + Send + Sync>;

/// The messages of one saga, built by `starts` and `handles`.
pub struct Registry<T> {
    pub(crate) name: Result<SagaName, InvalidId>,
    pub(crate) routes: Vec<(&'static str, Route<T>)>,
    pub(crate) missing: Missing,
    pub(crate) completed: Completed,
    pub(crate) ordered_outputs: bool,
    /// `when_id_reused` was said of no message.
    id_rule_of_none: bool,
    pub(crate) layers: Vec<Layer>,
    /// Around those: the endpoint's.
    outer: Vec<Layer>,
    /// How long a handler may take, with all that stands around it.
    limit: Option<Duration>,
}

/// How one type of message reaches the saga.
pub(crate) struct Route<T> {
    pub(crate) starts: bool,
    pub(crate) reused_id: ReusedId,
    message: Only,
    route: RouteFn,
    handle: HandleFn<T>,
}

type RouteFn = fn(&Arc<Scope>, &Envelope) -> Result<(SagaKey, Decoded), HandlerError>;

/// Shared, so that a registry can be cloned.
type HandleFn<T> =
    Arc<dyn for<'a> Fn(&'a mut T, Decoded, &'a mut Context) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync>;

/// What happens to a message for a saga instance that does not exist, if the message may not start one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missing {
    /// It is retried like a failure, since the message that starts the saga may come later, then dead-lettered.
    #[default]
    Retry,
    /// It is dead-lettered at once.
    DeadLetter,
    /// It is dropped and counted.
    Drop,
}

/// What happens to a new message for a saga that is complete. (Timeouts of a complete saga are dropped.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Completed {
    /// It is dead-lettered: nothing is lost in silence.
    #[default]
    DeadLetter,
    /// It is dropped and counted.
    Drop,
}

/// How the reason ends for which a message with such an identity is set aside: whoever waits for its answer knows it by that.
pub(crate) const REUSED: &str = "was used before with another type or body";

/// What happens to a message whose identity was used before with other content: a sender's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReusedId {
    /// It is dead-lettered with that reason.
    #[default]
    DeadLetter,
    /// It is dropped and counted.
    Drop,
}

impl<T: Saga> Registry<T> {
    /// A saga that knows no message yet.
    #[must_use]
    pub fn new() -> Self {
        Self::named(T::NAME)
    }

    /// The same under another name: for what handles nothing.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: SagaName::parse(name),
            routes: Vec::new(),
            missing: Missing::default(),
            completed: Completed::default(),
            ordered_outputs: false,
            id_rule_of_none: false,
            layers: Vec::new(),
            outer: Vec::new(),
            limit: None,
        }
    }

    /// Messages of type `M` may start the saga, and are handled by one that runs.
    #[must_use]
    pub fn starts<M: Message>(self) -> Self
    where
        T: Handle<M>,
    {
        self.with_route::<M>(true)
    }

    /// Messages of type `M` are handled by a saga that runs.
    #[must_use]
    pub fn handles<M: Message>(self) -> Self
    where
        T: Handle<M>,
    {
        self.with_route::<M>(false)
    }

    fn with_route<M: Message>(mut self, starts: bool) -> Self
    where
        T: Handle<M>,
    {
        let route = Route {
            starts,
            reused_id: ReusedId::default(),
            message: Only::of::<M>(),
            route: |_, envelope| {
                let message: M = decode(envelope)?;
                let key = T::correlate(&message)
                    .parse()
                    .map_err(|e| HandlerError::permanent(format!("{} does not name its {}: {e}", M::TYPE, T::NAME)))?;
                Ok((key, Box::new(message)))
            },
            handle: Arc::new(|saga: &mut T, message, cx| match message.downcast::<M>() {
                Ok(message) => Box::pin(saga.handle(*message, cx)),
                Err(_) => Box::pin(std::future::ready(Err(HandlerError::permanent("routed to the wrong handler")))),
            }),
        };
        self.routes.push((M::TYPE, route));
        self
    }

    /// What happens to a message for an instance that does not exist.
    #[must_use]
    pub const fn when_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// What happens to a new message for an instance that is complete.
    #[must_use]
    pub const fn when_completed(mut self, completed: Completed) -> Self {
        self.completed = completed;
        self
    }

    /// What happens when an identity comes again with other content, for the message type that was added last. An endpoint where none was
    /// added before it does not start.
    #[must_use]
    pub fn when_id_reused(mut self, reused_id: ReusedId) -> Self {
        match self.routes.last_mut() {
            Some((_, route)) => route.reused_id = reused_id,
            None => self.id_rule_of_none = true,
        }
        self
    }

    /// Puts a middleware around the saga's handlers: around those of one message type, if it is one of that. It stands within those of the
    /// endpoint and those that were put around the saga before. See [`Around`].
    #[must_use]
    pub fn around<M: Reach>(mut self, middleware: impl Around<M>) -> Self {
        self.layers.push(Layer::new(middleware));
        self
    }

    /// Outgoing messages of one instance are first sent in the order in which it handled what caused them: a pass
    /// finishes older outbox entries before its own. After a failure, repeats may still come late.
    #[must_use]
    pub const fn ordered_outputs(mut self) -> Self {
        self.ordered_outputs = true;
        self
    }
}

impl<T: Saga> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// By hand: a derive would ask that the saga can be cloned.
impl<T> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            routes: self.routes.iter().map(|(message_type, route)| (*message_type, route.clone())).collect(),
            missing: self.missing,
            completed: self.completed,
            ordered_outputs: self.ordered_outputs,
            id_rule_of_none: self.id_rule_of_none,
            layers: self.layers.clone(),
            outer: self.outer.clone(),
            limit: self.limit,
        }
    }
}

impl<T> Clone for Route<T> {
    fn clone(&self) -> Self {
        let Self { starts, reused_id, message, route, ref handle } = *self;
        Self { starts, reused_id, message, route, handle: handle.clone() }
    }
}

impl<T> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.routes.iter().map(|(message_type, _)| message_type).collect();
        f.debug_struct("Registry").field("name", &self.name).field("types", &types).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Registry<T> {
    /// Checks what can be known without closing the list. It gives the name and the types.
    pub(crate) fn check(&self) -> Result<(SagaName, Vec<TypeName>), InvalidId> {
        let name = self.name.clone()?;
        let wrong = |why: &str| Err(InvalidId::new("saga", format!("`{name}`: {why}")));
        if self.routes.is_empty() {
            return wrong("knows no message: add .starts::<M>() or .handles::<M>()");
        }
        if !self.routes.iter().any(|(_, route)| route.starts) {
            return wrong("no message may start it: add .starts::<M>()");
        }
        if self.id_rule_of_none {
            return wrong(
                "when_id_reused stands before any message; put it behind the .starts::<M>() or .handles::<M>() it is about",
            );
        }
        let mut types = Vec::with_capacity(self.routes.len());
        for (message_type, _) in &self.routes {
            let message_type = TypeName::parse(*message_type)?;
            if types.contains(&message_type) {
                return Err(twice(&message_type, &name));
            }
            types.push(message_type);
        }
        self.check_layers()?;
        Ok((name, types))
    }

    fn check_layers(&self) -> Result<(), InvalidId> {
        for layer in &self.layers {
            let mut stands = false;
            for message in self.messages() {
                stands |= layer.stands_around(&message)?;
            }
            if !stands {
                let message_type = layer.only.map_or("any", |only| only.message_type);
                return Err(nothing_within(layer, message_type));
            }
        }
        Ok(())
    }

    /// The messages it knows.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Only> {
        self.routes.iter().map(|(_, route)| route.message)
    }

    /// The same within `outer`.
    pub(crate) fn within(mut self, outer: &[Layer]) -> Self {
        self.outer = outer.to_vec();
        self
    }

    /// The same with handlers that fail once they have taken so long. Who runs them has to be within a runtime with timers.
    pub(crate) fn limited(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Checks the names and closes the list.
    pub(crate) fn close(self) -> Result<(SagaName, ClosedRegistry<T>), InvalidId> {
        self.check_layers()?;
        let Self { name, routes, missing, completed, ordered_outputs, layers, outer, limit, id_rule_of_none: _ } = self;
        let layers = [outer, layers].concat();
        let name = name?;
        let mut by_type = BTreeMap::new();
        for (message_type, mut route) in routes {
            let message_type = TypeName::parse(message_type)?;
            route.handle = within(Layer::around(&layers, &route.message)?, route.handle);
            if let Some(limit) = limit {
                route.handle = ending(limit, route.handle);
            }
            if by_type.insert(message_type.clone(), route).is_some() {
                return Err(twice(&message_type, &name));
            }
        }
        Ok((name, ClosedRegistry { by_type, missing, completed, ordered_outputs }))
    }
}

pub(crate) fn nothing_within(layer: &Layer, message_type: &str) -> InvalidId {
    let why = format!(
        "`{message_type}` has no handler here that {} could stand around; add one, or leave it out",
        layer.name
    );
    InvalidId::new("message type", why)
}

fn twice(message_type: &TypeName, name: &SagaName) -> InvalidId {
    InvalidId::new("message type", format!("`{message_type}` is handled twice by `{name}`; leave one of the two out"))
}

/// A closed registry.
pub(crate) struct ClosedRegistry<T> {
    by_type: BTreeMap<TypeName, Route<T>>,
    pub(crate) missing: Missing,
    pub(crate) completed: Completed,
    pub(crate) ordered_outputs: bool,
}

impl<T> ClosedRegistry<T> {
    pub(crate) fn of(&self, message_type: &TypeName) -> Option<&Route<T>> {
        self.by_type.get(message_type)
    }

    pub(crate) fn types(&self) -> Vec<TypeName> {
        self.by_type.keys().cloned().collect()
    }
}

impl<T> Route<T> {
    /// Decodes the message and finds its saga instance.
    pub(crate) fn route(&self, scope: &Arc<Scope>, envelope: &Envelope) -> Result<(SagaKey, Decoded), HandlerError> {
        (self.route)(scope, envelope)
    }

    pub(crate) fn handle<'a>(
        &self,
        saga: &'a mut T,
        message: Decoded,
        cx: &'a mut Context,
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        (self.handle)(saga, message, cx)
    }
}
