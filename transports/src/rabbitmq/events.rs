//! Envelopes as CloudEvents in binary mode, with the names of the binding for AMQP and values as they are.
//!
//! The binding is of AMQP 1.0; over 0-9-1 its application properties are headers. Of its two prefixes the one is written that every version of it knows,
//! and both are read; so are those of HTTP and Kafka, by which gateways write.
//!
//! # Source
//! CloudEvents, AMQP Protocol Binding 1.0.2, sections 3.1.3.1 and 3.1.3.2, and what later drafts of it add.

use hapax_core::envelope::{Envelope, ReadError, cloudevents};
use percent_encoding::percent_decode_str;

/// What names of attributes begin with when they are written.
const WRITTEN: &str = "cloudEvents:";
/// And when they are read.
const READ: [&str; 4] = [WRITTEN, "cloudEvents_", OF_CORE, "ce_"];
/// What core writes and reads, with values that are percent-encoded.
const OF_CORE: &str = "ce-";

/// The headers of `envelope` as an event of `source`, the content type among them.
pub(super) fn headers_of(envelope: &Envelope, source: &cloudevents::Source) -> Vec<(String, String)> {
    let headers = cloudevents::to_binary(envelope, source).into_iter();
    let renamed = headers.map(|(name, value)| match name.strip_prefix(OF_CORE) {
        Some(attribute) => (format!("{WRITTEN}{attribute}"), unescaped(&value)),
        None => (name, value),
    });
    renamed.collect()
}

/// The attribute that the header `name` is.
pub(super) fn attribute(name: &str) -> Option<&str> {
    READ.iter().find_map(|prefix| {
        let (first, rest) = name.split_at_checked(prefix.len())?;
        first.eq_ignore_ascii_case(prefix).then_some(rest)
    })
}

/// Whether these are the headers of an event in binary mode.
pub(super) fn is_event(headers: &[(String, Vec<u8>)]) -> bool {
    headers.iter().any(|(name, _)| attribute(name).is_some_and(|name| name.eq_ignore_ascii_case("specversion")))
}

/// The envelope of an event in binary mode.
pub(super) fn envelope_of(headers: Vec<(String, Vec<u8>)>, body: Vec<u8>) -> Result<Envelope, ReadError> {
    let renamed = headers.into_iter().map(|(name, value)| match attribute(&name) {
        // As over HTTP, with its escapes.
        Some(_) if name.get(..OF_CORE.len()).is_some_and(|first| first.eq_ignore_ascii_case(OF_CORE)) => (name, value),
        Some(attribute) => (format!("{OF_CORE}{attribute}"), escaped(&value)),
        None => (name, value),
    });
    cloudevents::from_binary(renamed, body)
}

/// So that core reads `value` as it is: it takes `%` for an escape, and quotes for those of older drafts.
fn escaped(value: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            b'%' => escaped.extend_from_slice(b"%25"),
            b'"' => escaped.extend_from_slice(b"%22"),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// What core has percent-encoded, which is all of it that is no printable ASCII.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_known_by_every_prefix_in_any_case_and_nothing_else_is() {
        for name in ["cloudEvents:id", "cloudEvents_id", "CLOUDEVENTS_id", "ce-id", "ce_id"] {
            assert_eq!(attribute(name), Some("id"), "{name}");
        }
        for name in ["id", "cloudEvents", "cloudEvents-id", "c", "cé", "hapax-id"] {
            assert_eq!(attribute(name), None, "{name}");
        }
    }

    #[test]
    fn values_go_and_come_as_they_are() {
        for text in ["", "plain", "100 %", "%41", "\"quoted\"", "ü \u{1F600}"] {
            let name = |attribute: &str| format!("cloudEvents_{attribute}");
            let said =
                [("specversion", "1.0"), ("id", "7"), ("source", "/shop"), ("type", "shop.added"), ("note", text)];
            let headers = said.map(|(attribute, value)| (name(attribute), value.as_bytes().to_vec())).to_vec();
            let came = envelope_of(headers, Vec::new()).unwrap();
            assert_eq!(came.headers.value("note"), Some(text));
            if text.is_empty() {
                continue; // No attribute is empty.
            }
            let mut sent = came.clone();
            sent.headers = Default::default();
            sent.headers.set("note", text).unwrap();
            let written = headers_of(&sent, &cloudevents::Source::parse("/shop").unwrap());
            assert!(written.contains(&("cloudEvents:note".to_owned(), text.to_owned())), "{written:?}");
        }
    }
}
