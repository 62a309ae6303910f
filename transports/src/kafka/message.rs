//! Envelopes as Kafka records.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use hapax_core::{
    envelope::{Envelope, ReadError, cloudevents, plain},
    ids::PartitionKey,
};
use rdkafka::{
    Message,
    message::{BorrowedMessage, Headers as _},
};

use super::names::Names;
use crate::written_as::{CONTENT_TYPE, WrittenAs};

/// As the broker keeps them: in order, and the same name as often as it likes.
pub(super) type Headers = Vec<(String, Vec<u8>)>;

/// Ours, beside the envelope's own: they are gone when the record becomes an envelope again.
pub(super) const OURS: &str = "x-hapax-";
/// What attributes of a CloudEvent begin with here, and elsewhere.
const EVENT: (&str, &str) = ("ce_", "ce-");
/// Longest reason that is written, in bytes.
pub(super) const REASON_BYTES_MAX: usize = 16 << 10;
/// Of each header beside name and value, and of a record beside all: lengths and numbers, in a few bytes each.
const HEADER_BYTES: usize = 10;
const RECORD_BYTES: usize = 128;

/// How many bytes of a batch a record takes, at most.
pub(super) fn wire_bytes(headers: &Headers, key: Option<&PartitionKey>, body: &[u8]) -> usize {
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES).sum();
    RECORD_BYTES + key.map_or(0, |key| key.as_str().len()) + headers + body.len()
}

/// Headers and body of `envelope`.
pub(super) fn written(envelope: &Envelope, written_as: &WrittenAs) -> (Headers, Bytes) {
    (headers_as(envelope, written_as), written_as.body(envelope))
}

fn headers_as(envelope: &Envelope, written_as: &WrittenAs) -> Headers {
    let is_plain = *written_as == WrittenAs::Plain;
    let headers = written_as.headers(envelope).into_iter().map(|(name, value)| match name.strip_prefix(EVENT.1) {
        Some(attribute) if !is_plain => (format!("{}{attribute}", EVENT.0), value.into_bytes()),
        _ => (name, value.into_bytes()),
    });
    headers.collect()
}

/// The headers of a letter about `envelope`. All that a message says is in them, also where messages are written as structured events: a letter may
/// have to do without its body.
pub(super) fn headers_of(envelope: &Envelope, written_as: &WrittenAs) -> Headers {
    headers_as(envelope, &written_as.with_body_as_it_is())
}

/// Why a record is no message.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// The client library gives no header of such a record: it fails in itself.
    #[error("the name of a header is not UTF-8; its headers are not kept")]
    HeaderName,
    #[error(transparent)]
    Malformed(#[from] ReadError),
}

/// The headers of a record that came. The client library fails in itself over a name that is not UTF-8, which any producer may write:
/// that must not end whoever reads.
pub(super) fn headers_in(message: &BorrowedMessage<'_>) -> Result<Headers, Unreadable> {
    let read = || -> Headers {
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        headers.map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec())).collect()
    };
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| Unreadable::HeaderName)
}

/// The envelope of a message that came. Where no header says the partition key, it is the record's, if it can be one: what others send with a
/// key is kept together by it.
pub(super) fn message_of(
    topic: &str,
    key: Option<&[u8]>,
    headers: &Headers,
    body: Bytes,
    names: &Names,
) -> Result<Arc<Envelope>, Unreadable> {
    let mut envelope = envelope_of(topic, headers, body, names)?;
    if envelope.partition_key.is_none() {
        let key = key.and_then(|key| std::str::from_utf8(key).ok());
        let key = key.and_then(|key| PartitionKey::parse(key.to_owned()).ok());
        if key.is_some() {
            Arc::make_mut(&mut envelope).partition_key = key;
        }
    }
    Ok(envelope)
}

/// The envelope that a record's headers tell: plain, or a CloudEvent in binary or structured mode.
pub(super) fn envelope_of(
    topic: &str,
    headers: &Headers,
    body: Bytes,
    names: &Names,
) -> Result<Arc<Envelope>, Unreadable> {
    let ours =
        |name: &str| name.len() >= OURS.len() && name.as_bytes()[..OURS.len()].eq_ignore_ascii_case(OURS.as_bytes());
    let kept: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), &value[..])).filter(|(name, _)| !ours(name)).collect();
    let has = |wanted: &str| kept.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value);
    let is_ours = has("hapax-message-id").is_some();
    let structured =
        has(CONTENT_TYPE).is_some_and(|kind| kind.starts_with(cloudevents::STRUCTURED_CONTENT_TYPE.as_bytes()));
    if structured && !is_ours {
        return Ok(cloudevents::from_structured(&body).map(Arc::new)?);
    }
    if has("ce_specversion").is_some() && !is_ours {
        let renamed = kept.iter().map(|(name, value)| {
            let lower = name.to_ascii_lowercase();
            let attribute = lower.strip_prefix(EVENT.0).map(|rest| format!("{}{rest}", EVENT.1));
            (attribute.unwrap_or_else(|| (*name).to_owned()), *value)
        });
        return Ok(cloudevents::from_binary(renamed.collect::<Vec<_>>(), body).map(Arc::new)?);
    }
    let defaults = plain::Defaults { message_id: None, message_type: names.type_of(topic), content_type: None };
    Ok(Arc::new(plain::from_headers(kept, body, &defaults)?))
}

/// A reason, or as much of it as there is room for.
pub(super) fn cut(text: &str, room: usize) -> &str {
    let mut end = text.len().min(room).min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::{
        envelope::cloudevents::Source,
        ids::{MessageId, TypeName},
    };

    use super::*;

    fn names() -> Names {
        Names::new("hapax").unwrap()
    }

    fn sent(written_as: &WrittenAs) -> (Envelope, Envelope, Headers) {
        let mut sent = Envelope::new(
            MessageId::parse("Order 7/ü").unwrap(),
            TypeName::parse("shop.added").unwrap(),
            br#"{"n":1}"#.to_vec(),
        );
        for (name, value) in [("zebra", "first"), ("apple", " second, with blanks "), ("content-type", "taken")] {
            sent.headers.set(name, value).unwrap();
        }
        let (headers, body) = written(&sent, written_as);
        let came = envelope_of("hapax.queue.shop", &headers, body, &names()).unwrap();
        (sent, (*came).clone(), headers)
    }

    #[test]
    fn what_is_sent_in_any_form_comes_back_as_it_was() {
        let source = Source::parse("/shop").unwrap();
        for written_as in
            [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
        {
            let (sent, came, _) = sent(&written_as);
            assert_eq!(came, sent, "{written_as:?}");
        }
    }

    #[test]
    fn a_letter_says_in_its_headers_who_a_structured_event_is() {
        let structured = WrittenAs::StructuredCloudEvents(Source::parse("/shop").unwrap());
        let (sent, _, _) = sent(&structured);
        let headers = headers_of(&sent, &structured);
        let came = envelope_of("hapax.dead-letters.shop", &headers, Bytes::new(), &names()).unwrap();
        assert_eq!(came.message_id, sent.message_id);
    }

    #[test]
    fn attributes_of_an_event_are_called_as_events_over_kafka_are() {
        let (_, _, headers) = sent(&WrittenAs::CloudEvents(Source::parse("/shop").unwrap()));
        assert!(headers.iter().any(|(name, _)| name == "ce_specversion"), "{headers:?}");
        assert!(headers.iter().all(|(name, _)| !name.starts_with("ce-")), "{headers:?}");
    }

    #[test]
    fn an_event_in_structured_mode_is_read() {
        let headers = vec![("Content-Type".to_owned(), b"application/cloudevents+json; charset=utf-8".to_vec())];
        let event = br#"{"specversion":"1.0","id":"7","source":"/shop","type":"shop.added","datacontenttype":"application/json","data":{"n":1}}"#;
        let came = envelope_of("hapax.queue.shop", &headers, Bytes::from_static(event), &names()).unwrap();
        assert_eq!((came.message_type.as_str(), &came.body[..]), ("shop.added", &br#"{"n":1}"#[..]));
    }

    #[test]
    fn the_key_of_a_record_is_the_partition_key_unless_a_header_says_it() {
        let mut headers = vec![("hapax-message-id".to_owned(), b"7".to_vec())];
        let key = |headers: &Headers, key: Option<&[u8]>| {
            let came = message_of("hapax.topic.shop.added", key, headers, Bytes::new(), &names()).unwrap();
            came.partition_key.as_ref().map(ToString::to_string)
        };
        assert_eq!(key(&headers, Some(b"order 7")).as_deref(), Some("order 7"));
        assert_eq!((key(&headers, None), key(&headers, Some(b"\xff")), key(&headers, Some(b""))), (None, None, None));
        headers.push(("hapax-partition-key".to_owned(), b"order 8".to_vec()));
        assert_eq!(key(&headers, Some(b"order 7")).as_deref(), Some("order 8"));
    }

    #[test]
    fn the_topic_of_a_type_says_the_type_and_nothing_says_the_id() {
        let headers = vec![("hapax-message-id".to_owned(), b"7".to_vec()), ("n".to_owned(), vec![0xff])];
        let came = envelope_of("hapax.topic.shop.added", &headers, Bytes::new(), &names()).unwrap();
        assert_eq!(came.message_type.as_str(), "shop.added");
        assert!(envelope_of("hapax.queue.shop", &headers, Bytes::new(), &names()).is_err(), "it has no type");
        assert!(envelope_of("hapax.topic.shop.added", &Vec::new(), Bytes::new(), &names()).is_err(), "it has no id");
    }
}
