//! Messages as a person sees them, and as JSON.

use std::{collections::BTreeMap, fmt::Display};

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use crate::{
    envelope::{Envelope, Outgoing},
    ids::{Fingerprint, hex},
    ports::DeadLetter,
};

/// Anything by its text.
pub(super) fn text<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// JSON as it is.
fn as_written<S: Serializer>(json: &str, to: S) -> Result<S::Ok, S::Error> {
    serde_json::from_str::<&RawValue>(json).map_err(S::Error::custom)?.serialize(to)
}

/// As text, whatever it is.
fn some(value: Option<&impl Display>) -> Option<String> {
    value.map(ToString::to_string)
}

/// A message. Times are RFC 3339.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownEnvelope {
    /// Its id.
    pub message_id: String,
    /// Its type.
    pub message_type: String,
    /// Its sender's name for its intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The business process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message whose handling sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// What keeps it together with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// When the sender says it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<String>,
    /// Not to be delivered before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// Not worth handling after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Where an answer goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Trace context of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// A saga has set it for itself.
    pub timeout: bool,
    /// How the body is encoded.
    pub content_type: String,
    /// Version of its schema.
    pub schema: u8,
    /// Headers of the application.
    pub headers: BTreeMap<String, String>,
    /// How long the body is, in bytes.
    pub body_bytes: usize,
    /// The body, where it was asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub body: Option<ShownBody>,
}

/// A body: as `body` where it is JSON, as `body_text` where it is other text, else as `body_hex`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub enum ShownBody {
    /// JSON, to the letter: whoever edits it must not find that an amount has become another number on its way.
    #[serde(rename = "body", serialize_with = "as_written")]
    Json(String),
    /// Other text.
    #[serde(rename = "body_text")]
    Text(String),
    /// Anything else, in hexadecimal digits.
    #[serde(rename = "body_hex")]
    Hex(String),
}

impl ShownBody {
    fn of(body: &[u8]) -> Self {
        if let Ok(json) = serde_json::from_slice::<&RawValue>(body) {
            return Self::Json(json.get().to_owned());
        }
        match std::str::from_utf8(body) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(hex(body)),
        }
    }
}

impl ShownEnvelope {
    /// `envelope` without its body, which may be confidential and large.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        let headers = envelope.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            message_id: envelope.message_id.to_string(),
            message_type: envelope.message_type.to_string(),
            idempotency_key: some(envelope.idempotency_key.as_ref()),
            correlation_id: some(envelope.correlation_id.as_ref()),
            causation_id: some(envelope.causation_id.as_ref()),
            partition_key: some(envelope.partition_key.as_ref()),
            tenant: some(envelope.tenant.as_ref()),
            occurred_at: some(envelope.occurred_at.as_ref()),
            due: some(envelope.due.as_ref()),
            expires: some(envelope.expires.as_ref()),
            reply_to: some(envelope.reply_to.as_ref()),
            traceparent: some(envelope.traceparent.as_ref()),
            timeout: envelope.timeout,
            content_type: envelope.content_type.as_str().to_owned(),
            schema: envelope.schema,
            headers: headers.collect(),
            body_bytes: envelope.body.len(),
            body: None,
        }
    }

    /// The same with the body.
    #[must_use]
    pub fn whole(envelope: &Envelope) -> Self {
        Self { body: Some(ShownBody::of(&envelope.body)), ..Self::of(envelope) }
    }
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownOutgoing {
    /// `endpoint:NAME` or `topic:TYPE`.
    pub destination: String,
    /// The message.
    #[serde(flatten)]
    pub envelope: ShownEnvelope,
}

impl ShownOutgoing {
    /// `outgoing` without its body.
    #[must_use]
    pub fn of(outgoing: &Outgoing) -> Self {
        Self { destination: outgoing.destination.to_string(), envelope: ShownEnvelope::of(&outgoing.envelope) }
    }

    /// The same with the body.
    #[must_use]
    pub fn whole(outgoing: &Outgoing) -> Self {
        Self { envelope: ShownEnvelope::whole(&outgoing.envelope), ..Self::of(outgoing) }
    }
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShownLetter {
    /// The endpoint that set it aside.
    pub endpoint: String,
    /// The saga that could not handle it, or has sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<String>,
    /// Where it was to go, if it could not be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Why.
    pub reason: String,
    /// How often it had been given.
    pub attempts: u32,
    /// When it was set aside, by the endpoint's clock.
    pub time: String,
    /// What tells it from another about the same message: an edit that was cut short may have left one.
    pub fingerprint: String,
    /// The message.
    pub message: ShownEnvelope,
}

impl ShownLetter {
    /// `letter` without its message's body.
    #[must_use]
    pub fn of(letter: &DeadLetter) -> Self {
        Self {
            endpoint: letter.endpoint.to_string(),
            saga: some(letter.saga.as_ref()),
            destination: some(letter.destination.as_ref()),
            reason: letter.reason.clone(),
            attempts: letter.attempts,
            time: letter.time.to_string(),
            fingerprint: Fingerprint::of(&letter.envelope).to_string(),
            message: ShownEnvelope::of(&letter.envelope),
        }
    }

    /// The same with the body.
    #[must_use]
    pub fn whole(letter: &DeadLetter) -> Self {
        Self { message: ShownEnvelope::whole(&letter.envelope), ..Self::of(letter) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Goal: what is shown can be edited and given back. Method: bodies that a JSON value would change, in the envelope in which they are shown.
    #[test]
    fn a_body_is_shown_to_the_letter() {
        let shown = |body: &'static [u8]| {
            let mut envelope = Envelope::new("m-1".parse().unwrap(), "shop.pay".parse().unwrap(), body);
            envelope.headers.set("from", "a test").unwrap();
            serde_json::to_string(&ShownEnvelope::whole(&envelope)).unwrap()
        };
        for body in [&br#"{"b":100.00,"a":12345678901234567890123,"a":1e400}"#[..], b"[]", b" 7 ", b"null"] {
            let text = std::str::from_utf8(body).unwrap().trim();
            assert!(shown(body).ends_with(&format!(r#","body":{text}}}"#)), "{}", shown(body));
        }
        assert!(shown(b"{no").ends_with(r#","body_text":"{no"}"#));
        assert!(shown(b"\xff\x00").ends_with(r#","body_hex":"ff00"}"#));
    }
}
