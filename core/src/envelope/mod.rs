//! A message as it is carried: who it is, what it says, where answers go.
//!
//! [`Envelope`] is broker-neutral. [`plain`] turns it into headers and a body for any broker and back without loss;
//! [`cloudevents`] does the same for the CloudEvents 1.0 binary and structured forms.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::{
    ids::{
        CausationId, CorrelationId, EndpointName, IdempotencyKey, InvalidId, MessageId, PartitionKey, SequenceNumber,
        TenantId, TraceParent, TypeName,
    },
    time::Timestamp,
};

pub mod cloudevents;
mod fields;
pub mod plain;
mod received;

pub use received::ReadError;

/// Most headers of one message.
pub const HEADERS_MAX: usize = 64;
/// Longest header name, in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 100;
/// Longest header value, in bytes: below what every broker we know takes for all headers together.
pub const HEADER_VALUE_BYTES_MAX: usize = 4096;
/// Longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 100;

/// A message as carried. The body is opaque bytes; nothing here is ever hashed after re-encoding.
///
/// `{:?}` is fit for logs: it shows how long the body is and the headers' names, and neither the body nor what the headers say.
/// `{:+?}` shows all of it, also of what holds an envelope: for tests and models.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Identity of the message, the same for every copy.
    pub message_id: MessageId,
    /// The sender's name for its intent; where given, it is the identity for deduplication.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Which message type the body holds.
    pub message_type: TypeName,
    /// The business process.
    pub correlation_id: Option<CorrelationId>,
    /// The message whose handling sent this one.
    pub causation_id: Option<CausationId>,
    /// Keeps messages of one key together in a broker's partitions.
    pub partition_key: Option<PartitionKey>,
    /// How the body is encoded.
    pub content_type: ContentType,
    /// Version of the body's schema, counted by its type's owner; 1 when the sender said nothing.
    pub schema: u8,
    /// Application headers.
    pub headers: Headers,
    /// The encoded message.
    pub body: Bytes,
    /// When the sender says it happened.
    pub occurred_at: Option<Timestamp>,
    /// Not to be delivered before.
    pub due: Option<Timestamp>,
    /// Not worth handling after.
    ///
    /// A time by the sender's clock, judged by others': in an outbox by its table's, on a broker that counts (RabbitMQ) by that
    /// of whoever sends, at the end by the receiver's. Clocks that are apart by a minute end it a minute early or late, so give
    /// it minutes where that matters.
    pub expires: Option<Timestamp>,
    /// Whose it is, in a system of several tenants.
    pub tenant: Option<TenantId>,
    /// W3C trace context of the sender.
    pub traceparent: Option<TraceParent>,
    /// Where a reply goes.
    pub reply_to: Option<Destination>,
    /// Whether this is a timeout that a saga set for itself, which counts only while the saga still waits for it.
    pub timeout: bool,
    /// Which message of its sender's it is, where the sender numbers what it sends: then it is known by this instead of its id. A
    /// message that is made of another one takes a new id, and must leave this behind.
    pub sequence: Option<SequenceNumber>,
}

impl Envelope {
    /// An envelope with an id, a type and a JSON body, and nothing else set.
    #[must_use]
    pub fn new(message_id: MessageId, message_type: TypeName, body: impl Into<Bytes>) -> Self {
        Self {
            message_id,
            idempotency_key: None,
            message_type,
            correlation_id: None,
            causation_id: None,
            partition_key: None,
            content_type: ContentType::JSON,
            schema: 1,
            headers: Headers::default(),
            body: body.into(),
            occurred_at: None,
            due: None,
            expires: None,
            tenant: None,
            traceparent: None,
            reply_to: None,
            timeout: false,
            sequence: None,
        }
    }

    /// The time that all copies of this message share, where there is one: it orders derived ids and nothing else.
    pub(crate) fn shared_time(&self) -> Option<Timestamp> {
        if self.idempotency_key.is_some() {
            return None; // Copies of one intent are sent at different times.
        }
        if self.timeout { self.due } else { self.occurred_at }
    }

    /// Rough size on the wire, in bytes: body, headers and a fixed allowance for the ids.
    #[must_use]
    pub fn size(&self) -> usize {
        const IDS_BYTES: usize = 512;
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.body.len() + headers + IDS_BYTES
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All of them, so that a new field is thought about.
        let Self {
            message_id,
            idempotency_key,
            message_type,
            correlation_id,
            causation_id,
            partition_key,
            content_type,
            schema,
            headers,
            body,
            occurred_at,
            due,
            expires,
            tenant,
            traceparent,
            reply_to,
            timeout,
            sequence,
        } = self;
        let tells_all = f.sign_plus();
        let mut shown = f.debug_struct("Envelope");
        shown
            .field("message_id", message_id)
            .field("idempotency_key", idempotency_key)
            .field("message_type", message_type)
            .field("correlation_id", correlation_id)
            .field("causation_id", causation_id)
            .field("partition_key", partition_key)
            .field("content_type", content_type)
            .field("schema", schema)
            .field("headers", headers);
        if tells_all {
            shown.field("body", body);
        } else {
            shown.field("body", &format_args!("{} bytes", body.len()));
        }
        shown
            .field("occurred_at", occurred_at)
            .field("due", due)
            .field("expires", expires)
            .field("tenant", tenant)
            .field("traceparent", traceparent)
            .field("reply_to", reply_to)
            .field("timeout", timeout)
            .field("sequence", sequence)
            .finish()
    }
}

/// An outgoing message with its address. Ids and due times are fixed when it is made, so every repeat is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub destination: Destination,
    /// What goes there.
    pub envelope: Arc<Envelope>,
}

/// Where an outgoing message goes. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// To one endpoint.
    Endpoint(EndpointName),
    /// To every endpoint that subscribes to the message type.
    Topic(TypeName),
}

impl Destination {
    /// Reads what [`fmt::Display`] writes: `endpoint:NAME` or `topic:TYPE`.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        match text.split_once(':') {
            Some(("endpoint", name)) => EndpointName::parse(name).map(Self::Endpoint),
            Some(("topic", name)) => TypeName::parse(name).map(Self::Topic),
            _ => {
                let problem = format!("`{}` is neither `endpoint:NAME` nor `topic:TYPE`", text.escape_debug());
                Err(InvalidId::new("destination", problem))
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(name) => write!(f, "endpoint:{name}"),
            Self::Topic(name) => write!(f, "topic:{name}"),
        }
    }
}

/// How a body is encoded: a media type without parameters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContentType(std::borrow::Cow<'static, str>);

impl ContentType {
    /// `application/json`, the default.
    pub const JSON: Self = Self(std::borrow::Cow::Borrowed("application/json"));
    /// `application/msgpack`.
    pub const MESSAGE_PACK: Self = Self(std::borrow::Cow::Borrowed("application/msgpack"));
    /// `application/vnd.hapax.bincode`; bincode has no registered media type.
    pub const BINCODE: Self = Self(std::borrow::Cow::Borrowed("application/vnd.hapax.bincode"));

    /// Takes any printable ASCII text of 1 to [`CONTENT_TYPE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if let Some(known) = [Self::JSON, Self::MESSAGE_PACK, Self::BINCODE].into_iter().find(|k| k.as_str() == text) {
            return Ok(known);
        }
        if text.is_empty() || text.len() > CONTENT_TYPE_BYTES_MAX || !text.bytes().all(|b| (b' '..0x7f).contains(&b)) {
            return Err(InvalidId::new("content type", format!("`{}` is not a media type", text.escape_debug())));
        }
        Ok(Self(text.to_owned().into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Application headers: lower-case names, text values, in the order they were added, each name once.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Headers(Vec<(Box<str>, Box<str>)>);

impl Headers {
    /// Sets `name` to `value`, in place of an earlier value.
    ///
    /// # Errors
    /// [`InvalidId`] for a name that is not lower-case ASCII letters, digits, `-`, `_` or `.`, that begins with
    /// `hapax-` or `ce-` (kept for the envelope's own fields), for control characters in a value, and beyond
    /// [`HEADERS_MAX`], [`HEADER_NAME_BYTES_MAX`] and [`HEADER_VALUE_BYTES_MAX`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidId> {
        let bad = |problem: &str| InvalidId::new("header", format!("`{}` {problem}", name.escape_debug()));
        if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX {
            return Err(bad("has an empty or over-long name"));
        }
        if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)) {
            return Err(bad("may hold lower-case ASCII letters, digits and - _ . only"));
        }
        if name.starts_with(plain::PREFIX) || name.starts_with(cloudevents::PREFIX) {
            return Err(bad("begins with a prefix that is kept for the envelope's own fields"));
        }
        if value.len() > HEADER_VALUE_BYTES_MAX {
            return Err(bad("has a value that is too long"));
        }
        if value.chars().any(char::is_control) {
            return Err(bad("has a control character in its value"));
        }
        if let Some(slot) = self.0.iter_mut().find(|(n, _)| &**n == name) {
            slot.1 = value.into();
            return Ok(());
        }
        if self.0.len() == HEADERS_MAX {
            return Err(bad("is one header too many"));
        }
        self.0.push((name.into(), value.into()));
        Ok(())
    }

    /// Takes `name` away, if it is there.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(n, _)| &**n != name);
    }

    /// The value of `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| &**n == name).map(|(_, value)| &**value)
    }

    /// All headers in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    /// Their names: what they say may be as secret as a body. All of them with `+`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.sign_plus() {
            return f.debug_map().entries(self.iter()).finish();
        }
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_of_an_envelope_tells_neither_its_body_nor_what_its_headers_say() {
        let mut envelope = Envelope::new(
            MessageId::parse("order-1").expect("an id"),
            TypeName::parse("shop.placed").expect("a type"),
            &b"a-secret"[..],
        );
        envelope.headers.set("card", "a-secret").expect("a header");
        let outgoing = Outgoing {
            destination: Destination::parse("endpoint:shop").expect("an address"),
            envelope: Arc::new(envelope.clone()),
        };
        let bytes = format!("{:?}", b"a-secret");
        for printed in [format!("{envelope:?}"), format!("{envelope:#?}"), format!("{outgoing:?}")] {
            assert!(!printed.contains("secret") && !printed.contains(bytes.trim_matches(['[', ']'])), "{printed}");
            for told in ["order-1", "shop.placed", "8 bytes", "card"] {
                assert!(printed.contains(told), "`{told}` is not in {printed}");
            }
        }
        for all in [format!("{envelope:+?}"), format!("{outgoing:+?}"), format!("{:+?}", Some(vec![&outgoing]))] {
            assert_eq!(all.matches("a-secret").count(), 2, "{all}");
        }
    }
}
