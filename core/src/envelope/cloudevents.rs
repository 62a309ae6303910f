//! An envelope as a CloudEvent of version 1.0, in binary and in structured JSON mode.
//!
//! ```
//! # use hapax_core::{envelope::{Envelope, cloudevents}, ids::{MessageId, TypeName}};
//! let source = cloudevents::Source::parse("https://shop.example/orders")?;
//! let envelope = Envelope::new(MessageId::random(), TypeName::parse("shop.add-item")?, "{}");
//! let event = cloudevents::to_structured(&envelope, &source);
//! assert_eq!(cloudevents::from_structured(&event)?, envelope);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Attributes
//! Both modes carry the same attributes, so that a gateway which turns one mode into the other loses nothing.
//!
//! | attribute | field |
//! | --- | --- |
//! | `specversion`, `id`, `source`, `type` | `1.0`, message id, the [`Source`] given, message type |
//! | `datacontenttype`, `time` | content type, occurred at |
//! | `partitionkey`, `traceparent`, `expirytime`, `correlationid`, `causationid` | the field of that name, by the documented extension |
//! | `hapaxmessageid` | message id again: the mark of an event written by hapax |
//! | `hapaxidempotencykey`, `hapaxschema`, `hapaxdue`, `hapaxtenant`, `hapaxreplyto`, `hapaxtimeout`, `hapaxsequence` | the field of that name |
//! | any other | the application header of that name, such as `subject` and `dataschema` |
//! | `hapaxheaders` | application headers that cannot be attributes (names with `-`, `_` or `.`, empty values), as `name=value&name=value`, percent-encoded; a bare name stands for the attribute of that name and keeps the order |
//!
//! # Whose id
//! CloudEvents promises that `source` and `id` *together* are unique, hapax wants one unique message id. An event whose
//! `hapaxmessageid` equals its `id` was written by hapax: its id is the message id. (A gateway that derives a new event
//! may copy extensions but gives a new id, and then nothing that begins with `hapax` is believed.) Any other event is
//! foreign: its message id is `SOURCE ID`, with one blank between, or, where that is no message id because it is too
//! long or malformed, `cloudevents-sha256:` and the SHA-256 of both in hexadecimal digits. A foreign producer that wants
//! its ids taken as they are sets `hapaxmessageid`.
//!
//! Everything of a foreign event that has no field becomes an application header: `source`, `id`, extensions, and
//! attributes whose field refuses the value. Header names and values are treated as in [`plain::from_headers`].
//!
//! # Source
//! CloudEvents 1.0.2: the specification, HTTP Protocol Binding (`ce-` and percent-encoding; NATS has the same), JSON
//! Event Format; its documented extensions Partitioning, Distributed Tracing, Expiry Time and Correlation. The bindings
//! of Kafka and AMQP have other prefixes and no percent-encoding: their adapters use structured mode or [`plain`].
//!
//! [`plain`]: super::plain
//! [`plain::from_headers`]: super::plain::from_headers

use std::{borrow::Cow, fmt, fmt::Write as _};

use bytes::Bytes;

use self::event::Event;
use super::{
    Envelope, ReadError,
    fields::{Field, put_once},
    received::{decode_field, encode, encode_in_list, verbatim},
};
use crate::ids::{ID_BYTES_MAX, InvalidId};

mod event;
mod structured;

pub use structured::{STRUCTURED_CONTENT_TYPE, from_structured, to_structured};

pub(crate) const PREFIX: &str = "ce-";
const CONTENT_TYPE: &str = "content-type";
const VERSION: &str = "1.0";
const HEADERS: &str = "hapaxheaders";

/// The `source` attribute of what we write: who produces these events, for example `https://shop.example/orders` or
/// `/orders`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source(Box<str>);

impl Source {
    /// Takes text of 1 to [`ID_BYTES_MAX`] bytes of which every character may stand in a URI-reference.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() || text.len() > ID_BYTES_MAX || !is_uri_reference(text) {
            let problem = format!("`{}` is not a URI-reference of 1 to {ID_BYTES_MAX} bytes", text.escape_debug());
            return Err(InvalidId::new("CloudEvents source", problem));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The headers of `envelope` in binary mode; its body goes as it is.
#[must_use]
pub fn to_binary(envelope: &Envelope, source: &Source) -> Vec<(String, String)> {
    let mut headers = vec![(CONTENT_TYPE.to_owned(), envelope.content_type.as_str().to_owned())];
    for (name, value) in attributes(envelope, source) {
        headers.push((format!("{PREFIX}{name}"), encode(value)));
    }
    headers
}

/// An envelope from the headers and the body of an event in binary mode. What [`to_binary`] was given comes back without
/// loss; foreign events are taken as the [module](self) says. An event without a content type has
/// `application/octet-stream`, which no handler reads.
///
/// Give it the headers of the message only, not those of the connection: headers that do not begin with `ce-` become
/// application headers.
///
/// # Errors
/// [`ReadError`] for an event without `id`, `source`, `type` or `specversion`, of another version, with a `type` that is
/// no message type, or with an attribute given twice; for an event that hapax wrote also when a field is malformed. It
/// is permanent: set the message aside.
pub fn from_binary<N: AsRef<str>, V: AsRef<[u8]>>(
    headers: impl IntoIterator<Item = (N, V)>,
    body: impl Into<Bytes>,
) -> Result<Envelope, ReadError> {
    let mut event = Event::default();
    let mut content_type = None;
    for (name, value) in headers {
        let (name, value) = (name.as_ref().to_ascii_lowercase(), value.as_ref());
        if let Some(attribute) = name.strip_prefix(PREFIX) {
            event.put(attribute, decode_field(&name, &unquoted(value))?)?;
        } else if name == CONTENT_TYPE {
            put_once(&mut content_type, &name, verbatim(value))?;
        } else {
            event.put_header(name, verbatim(value));
        }
    }
    // The binding knows no `ce-datacontenttype` beside the content type; where a sender has both, one must count.
    event.content_type = content_type.or(event.content_type);
    event.into_envelope(body.into())
}

/// What stands between double quotes, for senders of older drafts.
///
/// # Source
/// RFC 7230, section 3.2.6, which the HTTP binding names.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inner @ .., b'"'] = value else { return value.into() };
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
    }
    plain.into()
}

/// All attributes of `envelope` but `datacontenttype`, with their values as text.
fn attributes<'a>(envelope: &'a Envelope, source: &'a Source) -> Vec<(&'a str, Cow<'a, str>)> {
    let mut attributes: Vec<(&str, Cow<'_, str>)> = vec![
        ("specversion", VERSION.into()),
        ("id", envelope.message_id.to_string().into()),
        ("source", source.as_str().into()),
    ];
    attributes.extend(Field::ALL.into_iter().filter_map(|field| Some((field.attribute(), field.text(envelope)?))));
    let mut list = String::new();
    let mut listed = false;
    for (name, value) in envelope.headers.iter() {
        let and = if list.is_empty() { "" } else { "&" };
        if is_extension(name, value) {
            attributes.push((name, value.into()));
            let _ = write!(list, "{and}{name}");
        } else {
            listed = true;
            let _ = write!(list, "{and}{name}={}", encode_in_list(value));
        }
    }
    if listed {
        attributes.push((HEADERS, list.into()));
    }
    attributes
}

/// Whether an application header can be an attribute, by the names and types that the specification allows.
fn is_extension(name: &str, value: &str) -> bool {
    const NAME_BYTES_MAX: usize = 20;
    const TAKEN: [&str; 6] = ["id", "source", "specversion", "datacontenttype", "data", HEADERS];
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && !TAKEN.contains(&name)
        && Field::with_attribute(name).is_none()
        && !value.is_empty()
        && !value.contains(is_noncharacter)
        && (name != "dataschema" || is_uri(value))
}

const fn is_noncharacter(c: char) -> bool {
    let code = c as u32;
    matches!(code, 0xfdd0..=0xfdef) || code & 0xfffe == 0xfffe
}

/// Whether every character may stand in a URI-reference (RFC 3986, appendix A); its grammar is not checked.
fn is_uri_reference(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b))
}

fn is_uri(text: &str) -> bool {
    is_uri_reference(text)
        && text.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        })
}

impl Field {
    const fn attribute(self) -> &'static str {
        match self {
            Self::MessageId => "hapaxmessageid",
            Self::Type => "type",
            Self::IdempotencyKey => "hapaxidempotencykey",
            Self::CorrelationId => "correlationid",
            Self::CausationId => "causationid",
            Self::PartitionKey => "partitionkey",
            Self::Schema => "hapaxschema",
            Self::OccurredAt => "time",
            Self::Due => "hapaxdue",
            Self::Expires => "expirytime",
            Self::Tenant => "hapaxtenant",
            Self::TraceParent => "traceparent",
            Self::ReplyTo => "hapaxreplyto",
            Self::Timeout => "hapaxtimeout",
            Self::Sequence => "hapaxsequence",
        }
    }

    fn with_attribute(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.attribute() == name)
    }

    /// Whether only hapax gives the attribute its meaning.
    fn is_ours(self) -> bool {
        self.attribute().starts_with("hapax")
    }
}
