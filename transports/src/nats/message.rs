//! Envelopes as NATS messages.

use std::sync::Arc;

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use hapax_core::{
    envelope::{Envelope, ReadError, cloudevents, plain},
    ids::MessageId,
};
use percent_encoding::percent_decode_str;

use super::names::Names;
use crate::{
    header_order::{in_order, order_of},
    written_as::{CONTENT_TYPE, WrittenAs},
};

/// The broker's own field for who a message is.
pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// Stored only where nothing is on the subject yet, with `0`.
pub(super) const LAST_ON_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence";
/// Of the broker's own.
const SERVERS: &str = "nats-";
/// Ours, beside the envelope's own: they are gone when the message becomes an envelope again.
const OURS: &str = "x-hapax-";
/// How often the message of a letter had been given.
pub(super) const ATTEMPTS: &str = "x-hapax-attempts";
/// Names of the application headers in their order, which the broker's table does not keep.
const ORDER: &str = "x-hapax-order";
/// The broker's own id of what is among the letters, where it would have it dropped as a repeat.
const WAS_ID: &str = "x-hapax-was-nats-msg-id";
/// Longest reason that is written, in bytes.
pub(super) const REASON_BYTES_MAX: usize = 16 << 10;
/// Of each header, beside name and value: a colon, a blank and the end of the line.
const HEADER_BYTES: usize = 4;
/// The first line of headers, and the last.
const HEAD_BYTES: usize = 12;

/// How many bytes of a message `headers` and `body` take, as the server counts.
pub(super) fn wire_bytes(headers: &[(String, String)], body: &[u8]) -> usize {
    let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES).sum();
    HEAD_BYTES + headers + body.len()
}

/// The headers of `envelope`, with what goes beside them, and the body.
pub(super) fn written(envelope: &Envelope, written_as: &WrittenAs) -> (Vec<(String, String)>, Bytes) {
    let (mut headers, body) = (written_as.headers(envelope), written_as.body(envelope));
    if *written_as == WrittenAs::Plain
        && let Some(order) = order_of(envelope)
    {
        headers.push((ORDER.to_owned(), order));
    }
    (headers, body)
}

/// As the driver takes them. What cannot be said in a header is escaped before.
pub(super) fn map_of<'h>(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, value);
    }
    map
}

/// A reason or a name in one line, without blanks at its ends.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let (first, last) = (0, text.chars().count().saturating_sub(1));
    for (place, character) in text.chars().enumerate() {
        let at_end = (place == first || place == last) && character.is_whitespace();
        if character == '%' || character.is_control() || at_end {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// What [`escaped`] was given.
pub(super) fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A reason, or as much of it as there is room for.
pub(super) fn cut(text: &str, room: usize) -> &str {
    let mut end = text.len().min(room).min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The envelope of a message that came: plain, or a CloudEvent in binary or structured mode.
pub(super) fn envelope_of(
    subject: &str,
    headers: Option<&HeaderMap>,
    body: Bytes,
    names: &Names,
) -> Result<Arc<Envelope>, ReadError> {
    let (mut kept, mut id, mut order) = (Vec::<(&str, &str)>::new(), None, None);
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        for value in values.iter().map(|value| value.as_str()) {
            if name.eq_ignore_ascii_case(ORDER) {
                order = Some(value);
            } else if name.eq_ignore_ascii_case(MESSAGE_ID) {
                id = Some(value);
            } else if !begins_with(name, OURS) && !begins_with(name, SERVERS) {
                kept.push((name, value));
            }
        }
    }
    kept.sort_by_key(|(name, _)| *name); // The driver's table has them in any order; repeated ones stay in theirs.
    let has = |wanted: &str| kept.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value);
    let structured = has(CONTENT_TYPE).is_some_and(|kind| kind.starts_with(cloudevents::STRUCTURED_CONTENT_TYPE));
    if structured && has("hapax-message-id").is_none() {
        return cloudevents::from_structured(&body).map(Arc::new);
    }
    if has("ce-specversion").is_some() && has("hapax-message-id").is_none() {
        return cloudevents::from_binary(kept, body).map(Arc::new);
    }
    let defaults = plain::Defaults {
        message_id: id.and_then(|id| MessageId::parse(id).ok()),
        message_type: names.topic_of(subject),
        content_type: None,
    };
    let mut envelope = plain::from_headers(kept, body, &defaults)?;
    if let Some(order) = order {
        envelope.headers = in_order(&envelope.headers, order);
    }
    Ok(Arc::new(envelope))
}

/// The headers of a message that is no envelope, as a dead letter: all but those that the broker would act on.
pub(super) fn as_letter(headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        let of_server = begins_with(name, SERVERS);
        let name = match name.eq_ignore_ascii_case(MESSAGE_ID) {
            true => WAS_ID,
            false if of_server => continue,
            false => name,
        };
        kept.extend(values.iter().map(|value| (name.to_owned(), value.as_str().to_owned())));
    }
    kept
}

/// In any case.
fn begins_with(name: &str, start: &str) -> bool {
    name.get(..start.len()).is_some_and(|its| its.eq_ignore_ascii_case(start))
}

/// What a message says under `name`, as it is.
pub(super) fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.as_str().to_owned())
}

/// How it is told where a delivery is settled: `$JS.ACK`, what the server is called where it is one of several, and then this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) reply: Subject,
    /// Where in it the stream begins. The rest is read from there: every message has one, and few are asked for more.
    begins: usize,
    pub(super) delivered: u64,
    pub(super) sequence: u64,
}

impl Place {
    /// Newer servers put a domain and an account before the rest.
    pub(super) fn parse(reply: Subject) -> Option<Self> {
        const START: &str = "$JS.ACK.";
        let rest = reply.strip_prefix(START)?;
        let dots = rest.bytes().filter(|byte| *byte == b'.').count();
        let rest = match dots {
            6 => rest,
            8.. => rest.splitn(3, '.').nth(2)?,
            _ => return None,
        };
        let begins = reply.len() - rest.len();
        let mut counts = rest.split('.').skip(2);
        let mut count = || counts.next()?.parse().ok();
        let (delivered, sequence) = (count()?, count()?);
        Some(Self { reply, begins, delivered, sequence })
    }

    pub(super) fn stream(&self) -> &str {
        self.token(0)
    }

    pub(super) fn consumer(&self) -> &str {
        self.token(1)
    }

    /// When it was published, as the server says it.
    pub(super) fn published(&self) -> &str {
        self.token(5)
    }

    fn token(&self, number: usize) -> &str {
        self.reply.get(self.begins..).and_then(|rest| rest.split('.').nth(number)).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::{envelope::cloudevents::Source, ids::TypeName};

    use super::*;

    fn names() -> Names {
        Names::new("hapax").unwrap()
    }

    fn sent(written_as: &WrittenAs) -> (Envelope, Envelope) {
        let mut sent = Envelope::new(
            MessageId::parse("Order 7/ü").unwrap(),
            TypeName::parse("shop.added").unwrap(),
            br#"{"n":1}"#.to_vec(),
        );
        for (name, value) in [("zebra", "first"), ("apple", " second, with blanks "), ("content-type", "taken")] {
            sent.headers.set(name, value).unwrap();
        }
        let (headers, body) = written(&sent, written_as);
        let map = map_of(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let came = envelope_of("hapax.queue.shop", Some(&map), body, &names()).unwrap();
        (sent, (*came).clone())
    }

    #[test]
    fn what_is_sent_in_any_form_comes_back_as_it_was() {
        let source = Source::parse("/shop").unwrap();
        for written_as in
            [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
        {
            let (sent, came) = sent(&written_as);
            assert_eq!(came, sent, "{written_as:?}");
        }
    }

    #[test]
    fn another_producer_is_known_by_the_brokers_own_id_and_the_subject() {
        let map = map_of([(MESSAGE_ID, "order 7"), ("Shop", "corner"), ("Nats-Expected-Stream", "x")]);
        let came = envelope_of("hapax.topic.-.shop.added", Some(&map), Bytes::new(), &names()).unwrap();
        assert_eq!((came.message_id.to_string().as_str(), came.message_type.as_str()), ("order 7", "shop.added"));
        assert_eq!(came.headers.iter().collect::<Vec<_>>(), [("shop", "corner")]);
        assert!(envelope_of("hapax.queue.shop", Some(&map), Bytes::new(), &names()).is_err(), "it has no type");
        assert!(envelope_of("hapax.topic.-.shop.added", None, Bytes::new(), &names()).is_err(), "it has no id");
    }

    #[test]
    fn an_event_in_structured_mode_is_read() {
        let map = map_of([("content-type", "application/cloudevents+json; charset=utf-8")]);
        let event = br#"{"specversion":"1.0","id":"7","source":"/shop","type":"shop.added","datacontenttype":"application/json","data":{"n":1}}"#;
        let came = envelope_of("hapax.queue.shop", Some(&map), Bytes::from_static(event), &names()).unwrap();
        assert_eq!((came.message_type.as_str(), &came.body[..]), ("shop.added", &br#"{"n":1}"#[..]));
    }

    #[test]
    fn a_reason_of_several_lines_is_one_line_and_comes_back() {
        for text in ["", "it is\nno \"use\"", " 100 % \u{1F600}\r\n", "%0A", "% zz %"] {
            let line = escaped(text);
            assert!(!line.contains(['\r', '\n']) && line.trim() == line, "{line}");
            assert_eq!(unescaped(&line), text);
        }
    }

    #[test]
    fn where_a_delivery_is_settled_is_read_as_old_and_new_servers_say_it() {
        for reply in ["$JS.ACK.q.c.2.7.9.1700000000000000000.3", "$JS.ACK._.acc.q.c.2.7.9.1700000000000000000.3.x"] {
            let place = Place::parse(reply.into()).unwrap();
            assert_eq!((place.delivered, place.sequence), (2, 7), "{reply}");
            assert_eq!(
                [place.stream(), place.consumer(), place.published()],
                ["q", "c", "1700000000000000000"],
                "{reply}"
            );
            assert_eq!(place.reply.as_str(), reply);
        }
        let not_one =
            ["_INBOX.x", "$JS.ACK.q.c", "$JS.ACK.q.c.2.7.9.17", "$JS.ACK.a.q.c.2.7.9.17.3", "$JS.ACK.q.c.x.7.9.17.3"];
        for reply in not_one {
            assert_eq!(Place::parse(reply.into()), None, "{reply}");
        }
    }
}
