//! What other programs and brokers make of headers, and how it becomes an envelope's again.

use std::{borrow::Cow, fmt::Write as _};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode, utf8_percent_encode};

use super::{ContentType, Headers, cloudevents, plain};
use crate::ids::InvalidId;

/// Why a message as received cannot become an [`Envelope`](super::Envelope). No repeat will cure it: an adapter sets
/// the message aside with this as the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Something that every message must have is not there.
    #[error("the message has no `{name}`: {remedy}")]
    Missing {
        /// Of the header or attribute.
        name: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Nobody knows which one is meant.
    #[error("`{name}` is given twice with different values; its sender or a broker on the way must give it once")]
    Repeated {
        /// Of the header or attribute.
        name: String,
    },
    /// A header or attribute is there but malformed.
    #[error("`{name}` cannot be read")]
    Invalid {
        /// Of the header or attribute.
        name: String,
        /// What is wrong with it.
        #[source]
        problem: InvalidId,
    },
    /// A CloudEvent of a version other than 1.0, which may mean something else by the same names.
    #[error("CloudEvents version `{found}` is unknown to this program, which knows 1.0")]
    UnknownVersion {
        /// As received.
        found: String,
    },
    /// The body of a structured CloudEvent is not the JSON object it must be.
    #[error("the structured CloudEvent is malformed: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: String,
    },
}

impl ReadError {
    pub(super) fn invalid(name: impl Into<String>, problem: InvalidId) -> Self {
        Self::Invalid { name: name.into(), problem }
    }
}

/// For bodies whose sender did not say how they are encoded: no assumption (RFC 9110, section 8.3).
pub(super) const UNKNOWN_CONTENT: ContentType = ContentType(Cow::Borrowed("application/octet-stream"));

/// What the CloudEvents HTTP binding demands; brokers that take ASCII only, or trim blanks, leave the rest alone.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// The same within a list of `name=value&name=value`.
const ENCODED_IN_LIST: &AsciiSet = &ENCODED.add(b'&').add(b'=');

/// `text` in printable ASCII without blanks, percent-encoded.
pub(super) fn encode<'t>(text: impl Into<Cow<'t, str>>) -> String {
    let text = text.into();
    let encoded = match Cow::from(utf8_percent_encode(&text, ENCODED)) {
        Cow::Borrowed(same) if same.len() == text.len() => None, // Most are as they were; what is one escape and nothing else is borrowed too.
        encoded => Some(encoded.into_owned()),
    };
    encoded.unwrap_or_else(|| text.into_owned())
}

/// The same for a value in a list.
pub(super) fn encode_in_list(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, ENCODED_IN_LIST)
}

/// What [`encode`] was given. A `%` that begins no escape stays; `None` for bytes that are not UTF-8.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    percent_decode(bytes).decode_utf8().ok().map(Cow::into_owned)
}

/// [`decode`] for one of the envelope's own fields, which are text.
pub(super) fn decode_field(name: &str, bytes: &[u8]) -> Result<String, ReadError> {
    decode(bytes).ok_or_else(|| ReadError::invalid(name, InvalidId::new("text", "is not UTF-8 when percent-decoded")))
}

/// A foreign value as text; bytes that are none are percent-encoded, so that they can still be told apart.
pub(super) fn verbatim(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| percent_encode(bytes, CONTROLS).to_string(), str::to_owned)
}

/// The content type that a sender gave. One that [`ContentType`] refuses is kept as a header, for people.
pub(super) fn content_type(text: Option<String>, name: &str, headers: &mut ReceivedHeaders) -> Option<ContentType> {
    let text = text?;
    Some(ContentType::parse(&text).unwrap_or_else(|_| {
        headers.keep(name, &text);
        UNKNOWN_CONTENT
    }))
}

/// Takes whatever headers a message has: a foreign message is not refused for a header that [`Headers`] refuses.
///
/// Names become lower case; what names may not hold becomes `_`; names with a prefix kept for the envelope's own fields
/// get [`UNKNOWN`] in front. Control characters in values are percent-encoded. Repeated names become one with the
/// values joined by `, ` (as RFC 9110, section 5.2, does). What is too long or too many is left out, with a warning.
#[derive(Debug, Default)]
pub(super) struct ReceivedHeaders {
    headers: Headers,
    left_out: usize,
    first_left_out: String,
}

/// In front of the names of headers that look like the envelope's own and are unknown to this program.
pub(super) const UNKNOWN: &str = "unknown-";

impl ReceivedHeaders {
    pub(super) fn keep(&mut self, name: &str, value: &str) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        let lower = name.chars().map(|c| c.to_ascii_lowercase()).map(|c| if allowed(c) { c } else { '_' });
        let mut name: String = lower.collect();
        if name.starts_with(plain::PREFIX) || name.starts_with(cloudevents::PREFIX) {
            name.insert_str(0, UNKNOWN);
        }
        let value = without_controls(value);
        let joined = match self.headers.value(&name) {
            Some(there) if *there == value => return,
            Some(there) => Some(format!("{there}, {value}")),
            None => None,
        };
        if self.headers.set(&name, joined.as_deref().unwrap_or(&value)).is_err() {
            self.leave_out(&name);
        }
    }

    pub(super) fn leave_out(&mut self, name: &str) {
        const SHOWN_CHARS_MAX: usize = 100;
        if self.left_out == 0 {
            self.first_left_out = name.chars().take(SHOWN_CHARS_MAX).collect();
        }
        self.left_out += 1;
    }

    pub(super) fn finish(self, message_id: &impl std::fmt::Display) -> Headers {
        if self.left_out > 0 {
            let (left_out, first) = (self.left_out, self.first_left_out.as_str());
            tracing::warn!(%message_id, left_out, first, "headers left out: too many, or too long");
        }
        self.headers
    }
}

fn without_controls(value: &str) -> Cow<'_, str> {
    if !value.contains(char::is_control) {
        return value.into();
    }
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_control() {
            let bytes = c.encode_utf8(&mut [0; 4]).to_owned();
            let _ = write!(text, "{}", percent_encode(bytes.as_bytes(), CONTROLS));
        } else {
            text.push(c);
        }
    }
    text.into()
}
