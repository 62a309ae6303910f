//! Where messages may go, said in one place.

use std::{collections::BTreeMap, fmt};

use crate::{
    context::type_name_of,
    envelope::Destination,
    handler_error::HandlerError,
    ids::{EndpointName, TypeName},
    saga::Message,
};

/// What an endpoint's handlers send, and to whom: declared in one place, checked when the endpoint starts and at each send, before
/// anything is saved.
///
/// ```
/// # use hapax_core::{Context, Message, Routes};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)] struct TakePayment { order: String }
/// impl Message for TakePayment { const TYPE: &'static str = "shop.take-payment"; }
/// #[derive(Serialize, Deserialize)] struct Shipped { order: String }
/// impl Message for Shipped { const TYPE: &'static str = "shop.shipped"; }
///
/// let routes = || Routes::new().sends::<TakePayment>("payments").publishes::<Shipped>();
/// let mut cx = Context::for_test().with(routes()); // An endpoint: Endpoint::builder("shop").routes(routes())
///
/// cx.send_routed(TakePayment { order: "o-1".into() })?;
/// assert_eq!(cx.outgoing()[0].destination.to_string(), "endpoint:payments");
/// let refused = cx.send("chargign", TakePayment { order: "o-1".into() }).unwrap_err();
/// assert_eq!(refused.to_string(), "shop.take-payment goes to payments by the declared routes, not to chargign");
/// # Ok::<(), hapax_core::HandlerError>(())
/// ```
///
/// With routes, nothing goes anywhere that is not declared: a mistyped name is an error at once, and not a message in a queue that nobody
/// reads. What goes to the endpoint itself (timeouts, [`send_local`](crate::Context::send_local)) and replies need no route. Without routes,
/// handlers may send anything to anybody. A [`Sender`](crate::Sender), a [`RequestClient`](crate::RequestClient) and an outbox have none.
///
/// Who receives what is published is declared where it is received: an endpoint subscribes to the types it handles.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    all: BTreeMap<TypeName, Route>,
    invalid: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    To(EndpointName),
    Published,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(endpoint) => endpoint.fmt(f),
            Self::Published => f.write_str("whoever subscribes"),
        }
    }
}

impl Routes {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Messages of type `M` are sent to the endpoint `to`.
    #[must_use]
    pub fn sends<M: Message>(self, to: &str) -> Self {
        match EndpointName::parse(to) {
            Ok(to) => self.add::<M>(Route::To(to)),
            Err(e) => self.refuse(format!("the route of {}: {e}", M::TYPE)),
        }
    }

    /// Messages of type `M` are published.
    #[must_use]
    pub fn publishes<M: Message>(self) -> Self {
        self.add::<M>(Route::Published)
    }

    fn add<M: Message>(mut self, route: Route) -> Self {
        let message_type = match type_name_of::<M>() {
            Ok(message_type) => message_type,
            Err(e) => return self.refuse(e.to_string()),
        };
        match self.all.get(&message_type) {
            Some(other) if *other != route => {
                let why = format!("{message_type} is declared to go to {other} and to {route}; leave one of them away");
                self.refuse(why)
            }
            _ => {
                self.all.insert(message_type, route);
                self
            }
        }
    }

    /// The first thing that is wrong is told.
    fn refuse(mut self, why: String) -> Self {
        self.invalid.get_or_insert(why);
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.invalid.clone().map_or(Ok(()), Err)
    }

    /// Where messages of this type are sent.
    pub(crate) fn of(&self, message_type: &TypeName) -> Result<Destination, HandlerError> {
        match self.all.get(message_type) {
            Some(Route::To(endpoint)) => Ok(Destination::Endpoint(endpoint.clone())),
            Some(Route::Published) => Ok(Destination::Topic(message_type.clone())),
            None => Err(undeclared(message_type)),
        }
    }

    /// Whether a message of this type may go to `destination`.
    pub(crate) fn allow(&self, message_type: &TypeName, destination: &Destination) -> Result<(), HandlerError> {
        let Some(route) = self.all.get(message_type) else { return Err(undeclared(message_type)) };
        match (route, destination) {
            (Route::To(declared), Destination::Endpoint(to)) if declared == to => Ok(()),
            (Route::Published, Destination::Topic(_)) => Ok(()),
            (_, Destination::Endpoint(to)) => Err(HandlerError::permanent(format!(
                "{message_type} goes to {route} by the declared routes, not to {to}"
            ))),
            (_, Destination::Topic(_)) => Err(HandlerError::permanent(format!(
                "{message_type} goes to {route} by the declared routes, and is not published"
            ))),
        }
    }
}

fn undeclared(message_type: &TypeName) -> HandlerError {
    HandlerError::permanent(format!("{message_type} has no route; declare one in the endpoint's .routes(..)"))
}
