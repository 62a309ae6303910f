//! An envelope as plain headers and a body, for any broker.
//!
//! ```
//! # use hapax_core::{envelope::{Envelope, plain}, ids::{MessageId, TypeName}};
//! let envelope = Envelope::new(MessageId::random(), TypeName::parse("shop.add-item")?, "{}");
//! let headers = plain::to_headers(&envelope);
//! let received = plain::from_headers(headers, envelope.body.clone(), &plain::Defaults::default())?;
//! assert_eq!(received, envelope);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Format
//! The envelope's own fields are headers that begin with `hapax-`; a field that says nothing is not written. The content
//! type is `content-type`, as it is. Application headers go under their own names. All values but the content type are
//! percent-encoded: blanks, `"`, `%` and everything that is not printable ASCII, so that they survive brokers which
//! take ASCII only or trim blanks. The body is the envelope's, untouched.
//!
//! | header | value |
//! | --- | --- |
//! | `hapax-message-id`, `hapax-type` | always there |
//! | `hapax-idempotency-key`, `hapax-correlation-id`, `hapax-causation-id`, `hapax-partition-key`, `hapax-tenant`, `hapax-traceparent` | as they are |
//! | `hapax-schema` | decimal; 1 when it is not there |
//! | `hapax-occurred-at`, `hapax-due`, `hapax-expires` | RFC 3339 with milliseconds |
//! | `hapax-reply-to` | `endpoint:NAME` or `topic:TYPE` |
//! | `hapax-timeout` | `true`; false when it is not there |
//! | `hapax-sequence` | 24 hexadecimal digits, a dot and a number: which message of its sender's it is |
//! | `hapax-header-NAME` | the application header NAME, where that name is taken (`content-type`) |
//!
//! # Growing
//! Later versions of hapax may add fields that older ones can do without. A program keeps a `hapax-` header it does not
//! know as the application header `unknown-hapax-...` and writes it under its first name again when the message moves
//! on. What an older program must not do without will come under another prefix.
//!
//! # Foreign messages
//! A message without `hapax-message-id` was not written by hapax; see [`from_headers`].
//!
//! # Source
//! Percent-encoding of header values: CloudEvents, HTTP Protocol Binding 1.0.2, section 3.1.3.2.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    ContentType, Envelope, ReadError,
    fields::{Field, Fields, put_once},
    received::{ReceivedHeaders, UNKNOWN, content_type, decode, decode_field, encode, verbatim},
};
use crate::ids::{MessageId, TypeName};

pub(crate) const PREFIX: &str = "hapax-";
const CONTENT_TYPE: &str = "content-type";
/// After the prefix: an application header under a name that is taken.
const HEADER: &str = "header-";

/// What a foreign message is taken for where it does not say so itself.
///
/// Ids must come from the message, such as AMQP's `message-id` or a header that its producer sets: never from the
/// broker's own delivery, which changes with every copy (S62).
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// Identity of the message.
    pub message_id: Option<MessageId>,
    /// Which message type the body holds.
    pub message_type: Option<TypeName>,
    /// How the body is encoded; without it `application/octet-stream`, which no handler reads.
    pub content_type: Option<ContentType>,
}

/// The headers of `envelope`, in a fixed order; its body goes as it is.
#[must_use]
pub fn to_headers(envelope: &Envelope) -> Vec<(String, String)> {
    let mut headers = vec![(CONTENT_TYPE.to_owned(), envelope.content_type.as_str().to_owned())];
    for field in Field::ALL {
        if let Some(text) = field.text(envelope) {
            headers.push((field.plain().to_owned(), encode(text)));
        }
    }
    headers.extend(envelope.headers.iter().map(|(name, value)| (written_name(name).into_owned(), encode(value))));
    headers
}

/// An envelope from headers in any case and order, and a body. What [`to_headers`] was given comes back without loss,
/// application headers in the order in which the broker hands them over.
///
/// A message without `hapax-message-id` is foreign: `defaults` say what it does not say itself, and its application
/// headers are taken as they are, not percent-decoded. No application header is a reason to refuse a message: names
/// become lower case, with `_` for what [`Headers`](super::Headers) refuses; control characters and bytes that are not
/// UTF-8 are percent-encoded; repeated names are joined with `, `; what is too long or too many is left out, with a
/// warning in the log. A content type that [`ContentType`] refuses becomes `application/octet-stream`, with the header
/// `content-type` as it came.
///
/// # Errors
/// [`ReadError`] for a message without id or type, for a `hapax-` field that is malformed, and for a field or content
/// type given twice with different values. It is permanent: set the message aside.
pub fn from_headers<N: AsRef<str>, V: AsRef<[u8]>>(
    headers: impl IntoIterator<Item = (N, V)>,
    body: impl Into<Bytes>,
    defaults: &Defaults,
) -> Result<Envelope, ReadError> {
    let mut fields = Fields::default();
    let mut content_type_text = None;
    let mut rest = Vec::new();
    for (name, value) in headers {
        let name = lower(name.as_ref());
        if let Some(field) = Field::with_plain(&name) {
            fields.put(field, &name, decode_field(&name, value.as_ref())?)?;
        } else if name == CONTENT_TYPE {
            put_once(&mut content_type_text, &name, verbatim(value.as_ref()))?;
        } else {
            rest.push((name.into_owned(), value));
        }
    }

    let (message_id, foreign) = match (fields.take(Field::MessageId), &defaults.message_id) {
        (Some(text), _) => (MessageId::parse(&text).map_err(|e| ReadError::invalid("hapax-message-id", e))?, false),
        (None, Some(id)) => (id.clone(), true),
        (None, None) => return Err(missing("hapax-message-id", "its sender sets it, or its adapter a default id")),
    };
    let message_type = match (fields.take(Field::Type), &defaults.message_type) {
        (Some(text), _) => TypeName::parse(text).map_err(|e| ReadError::invalid("hapax-type", e))?,
        (None, Some(name)) => name.clone(),
        (None, None) => return Err(missing("hapax-type", "its sender sets it, or its adapter a default type")),
    };

    let mut kept = ReceivedHeaders::default();
    let content_type = content_type(content_type_text, CONTENT_TYPE, &mut kept);
    for (name, value) in rest {
        let text = if foreign { None } else { decode(value.as_ref()) };
        kept.keep(read_name(&name), &text.unwrap_or_else(|| verbatim(value.as_ref())));
    }
    let mut envelope = Envelope::new(message_id, message_type, body);
    envelope.content_type =
        content_type.or_else(|| defaults.content_type.clone()).unwrap_or(super::received::UNKNOWN_CONTENT);
    fields.set_all(&mut envelope, |field, _, invalid| Err(ReadError::invalid(field.plain(), invalid)))?;
    envelope.headers = kept.finish(&envelope.message_id);
    Ok(envelope)
}

const fn missing(name: &'static str, remedy: &'static str) -> ReadError {
    ReadError::Missing { name, remedy }
}

/// In lower case, in which nearly all come.
fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { name.to_ascii_lowercase().into() } else { name.into() }
}

/// Under which name the application header `name` goes.
fn written_name(name: &str) -> Cow<'_, str> {
    if name == CONTENT_TYPE {
        return format!("{PREFIX}{HEADER}{name}").into();
    }
    let unknown = name.strip_prefix(UNKNOWN).filter(|name| {
        // Only what a reader takes for unknown again; an application must not write the envelope's own fields.
        let field = name.strip_prefix(PREFIX);
        field.is_some_and(|field| Field::with_plain(name).is_none() && !field.starts_with(HEADER))
    });
    unknown.unwrap_or(name).into()
}

/// Which application header a header called `name` is.
fn read_name(name: &str) -> &str {
    name.strip_prefix(PREFIX).and_then(|name| name.strip_prefix(HEADER)).unwrap_or(name)
}

impl Field {
    const fn plain(self) -> &'static str {
        match self {
            Self::MessageId => "hapax-message-id",
            Self::Type => "hapax-type",
            Self::IdempotencyKey => "hapax-idempotency-key",
            Self::CorrelationId => "hapax-correlation-id",
            Self::CausationId => "hapax-causation-id",
            Self::PartitionKey => "hapax-partition-key",
            Self::Schema => "hapax-schema",
            Self::OccurredAt => "hapax-occurred-at",
            Self::Due => "hapax-due",
            Self::Expires => "hapax-expires",
            Self::Tenant => "hapax-tenant",
            Self::TraceParent => "hapax-traceparent",
            Self::ReplyTo => "hapax-reply-to",
            Self::Timeout => "hapax-timeout",
            Self::Sequence => "hapax-sequence",
        }
    }

    fn with_plain(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.plain() == name)
    }
}
