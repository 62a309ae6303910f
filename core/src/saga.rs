//! What an application developer implements: messages, sagas and handlers.

use std::{any::TypeId, borrow::Cow, fmt, future::Future};

use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    codec::{CodecError, Older, Schema},
    context::Context,
    handler_error::HandlerError,
    ids::{InvalidId, SagaKey},
};

/// A typed message: a command, an event, a reply or a timeout.
///
/// # Changing a message
/// Add optional fields freely. For any other change raise [`SCHEMA`](Message::SCHEMA) and write an
/// [`upcast`](Message::upcast) from the older versions that may still be under way.
pub trait Message: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name on the wire, for example `shop.add-item`. Never derived from a Rust path: renaming a type must not lose
    /// messages.
    const TYPE: &'static str;

    /// Version of the body's schema.
    const SCHEMA: u8 = 1;

    /// Reads a body of an older schema version.
    ///
    /// # Errors
    /// [`CodecError`] when there is no way up from that version.
    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        older.unknown()
    }
}

/// A message-driven state machine for one business process. The value is its state.
///
/// Handlers change a copy; only what is saved counts. Another saga, or another copy of the same message, never sees
/// half of it. (The word is NServiceBus's; not the compensation of H. Garcia-Molina and K. Salem, "Sagas".)
pub trait Saga: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Name in every entity and dedup key. Renaming it forgets what has been handled.
    const NAME: &'static str;

    /// Version of the state's schema.
    const SCHEMA: u8 = 1;

    /// Reads state of an older schema version.
    ///
    /// # Errors
    /// [`CodecError`] when there is no way up from that version.
    fn upcast(older: Older<'_>) -> Result<Self, CodecError> {
        older.unknown()
    }

    /// What the handlers get from [`Context::get`]; the endpoint refuses to start when one is missing.
    #[must_use]
    fn needs() -> Needs {
        Needs::default()
    }
}

/// Handles one type of message in a saga.
///
/// ```
/// # use hapax_core::{Context, Correlation, Handle, HandlerError, Message, Saga};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct AddItem { order: String, item: String }
/// # impl Message for AddItem { const TYPE: &'static str = "shop.add-item"; }
/// # #[derive(Default, serde::Serialize, serde::Deserialize)] struct Order { items: Vec<String> }
/// # impl Saga for Order { const NAME: &'static str = "order"; }
/// impl Handle<AddItem> for Order {
///     fn correlate(add: &AddItem) -> Correlation<'_> {
///         (&add.order).into()
///     }
///     async fn handle(&mut self, add: AddItem, cx: &mut Context) -> Result<(), HandlerError> {
///         self.items.push(add.item);
///         Ok(())
///     }
/// }
/// ```
pub trait Handle<M: Message>: Saga {
    /// Which instance of the saga the message is for. A pure function of the message: a look-up that changes between two
    /// copies would handle both (S57).
    fn correlate(message: &M) -> Correlation<'_>;

    /// Changes the saga and says through `cx` what is to be sent.
    ///
    /// It may run several times for one message, but only one run is saved. So it sends nothing but through `cx`, and
    /// hands [`Context::idempotency_key`] to any outside service it calls.
    ///
    /// # Errors
    /// Any error is retried and, when retries are spent, dead-lettered; [`HandlerError::permanent`] at once. Nothing the
    /// run did is kept. A panic is an error of this message and of nothing else; built with `panic = "abort"` it is a
    /// crash of the process, after which the message comes again.
    fn handle(&mut self, message: M, cx: &mut Context) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Handles one type of message without state of its own: once for each message.
pub trait Handler<M: Message>: Send + Sync + 'static {
    /// Name in every entity and dedup key. Renaming it forgets what has been handled.
    const NAME: &'static str;

    /// What it gets from [`Context::get`]; the endpoint refuses to start when one is missing.
    #[must_use]
    fn needs() -> Needs {
        Needs::default()
    }

    /// Says through `cx` what is to be sent. As for [`Handle::handle`], only one run is kept.
    ///
    /// # Errors
    /// As for [`Handle::handle`].
    fn handle(&self, message: M, cx: &mut Context) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

pub(crate) fn message_schema<M: Message>() -> Schema<M> {
    Schema { what: M::TYPE, version: M::SCHEMA, upcast: M::upcast }
}

pub(crate) fn state_schema<T: Saga>() -> Schema<T> {
    Schema { what: T::NAME, version: T::SCHEMA, upcast: T::upcast }
}

/// The value of a message that names the saga instance. Parsed by hapax: one that is empty or malformed is a permanent
/// error that names the field.
#[derive(Debug, Clone)]
pub struct Correlation<'a> {
    field: &'static str,
    value: Cow<'a, str>,
}

impl<'a> Correlation<'a> {
    /// The correlation by `value`, which stands in `field` of the message.
    pub fn of(field: &'static str, value: impl Into<Self>) -> Self {
        Self { field, ..value.into() }
    }

    pub(crate) fn parse(self) -> Result<SagaKey, InvalidId> {
        let text: std::sync::Arc<str> = match self.value {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        };
        SagaKey::parse(text).map_err(|e| {
            let problem = e.to_string();
            let problem = problem.strip_prefix("saga key ").unwrap_or(&problem).to_owned();
            InvalidId::new(self.field, problem)
        })
    }
}

const UNNAMED: &str = "the correlation value";

impl<'a> From<&'a str> for Correlation<'a> {
    fn from(value: &'a str) -> Self {
        Self { field: UNNAMED, value: Cow::Borrowed(value) }
    }
}

impl<'a> From<&'a String> for Correlation<'a> {
    fn from(value: &'a String) -> Self {
        value.as_str().into()
    }
}

impl From<String> for Correlation<'_> {
    fn from(value: String) -> Self {
        Self { field: UNNAMED, value: Cow::Owned(value) }
    }
}

macro_rules! correlation_by_display {
    ($($of:ty),*) => {$(
        impl From<$of> for Correlation<'_> {
            fn from(value: $of) -> Self {
                value.to_string().into()
            }
        }
        impl From<&$of> for Correlation<'_> {
            fn from(value: &$of) -> Self {
                value.to_string().into()
            }
        }
    )*};
}
correlation_by_display!(u32, u64, i32, i64, Uuid);

/// Services that a saga's handlers, or a stateless handler, need.
#[derive(Debug, Clone, Default)]
pub struct Needs(pub(crate) Vec<Need>);

#[derive(Clone, Copy)]
pub(crate) struct Need {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Needs {
    /// And a `C`.
    #[must_use]
    pub fn and<C: Send + Sync + 'static>(mut self) -> Self {
        self.0.push(Need { id: TypeId::of::<C>(), name: std::any::type_name::<C>() });
        self
    }
}
