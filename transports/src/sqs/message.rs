//! Envelopes as messages of the service: text with attributes.

use std::collections::HashMap;

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as System};
use base64::{Engine, engine::general_purpose::STANDARD};
use hapax_core::{
    envelope::{
        Envelope, ReadError,
        cloudevents::{self, STRUCTURED_CONTENT_TYPE},
        plain,
    },
    time::Timestamp,
};

use super::attributes::{ATTRIBUTES_MAX, is_text, packed, unpacked, written_name};
use crate::written_as::{CONTENT_TYPE, WrittenAs};

/// How a body is written that is no text that the service takes.
const ENCODING: &str = "x-hapax-encoding";
const BASE64: &str = "base64";
/// The service takes no body without a character.
const EMPTY: &str = "empty";
const EMPTY_BODY: &str = "-";
/// How often the message had been given before it was sent again by its receiver.
pub(super) const GIVEN: &str = "x-hapax-given";
/// It is not to be given before this time, in milliseconds since 1970.
pub(super) const UNTIL: &str = "x-hapax-until";
/// Type of every attribute.
const STRING: &str = "String";

/// A message as it is written.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    pub(super) body: String,
    pub(super) attributes: Vec<(String, String)>,
}

impl Parcel {
    /// With `extras` beside its own headers.
    pub(super) fn of(envelope: &Envelope, written_as: &WrittenAs, extras: &[(&str, String)]) -> Self {
        let (mut headers, body) = (written_as.headers(envelope), written_as.body(envelope));
        let mut ordered = headers.len();
        if *written_as == WrittenAs::Plain {
            headers = headers.into_iter().map(|(name, value)| (written_name(name), value)).collect();
            ordered = ordered.saturating_sub(envelope.headers.iter().count());
        }
        let (body, encoding) = written(&body);
        let mut ours: Vec<(String, String)> =
            extras.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        ours.extend(encoding.map(|encoding| (ENCODING.to_owned(), encoding.to_owned())));
        let mut attributes = packed(headers, ordered, ATTRIBUTES_MAX - ours.len());
        attributes.append(&mut ours);
        Self { body, attributes }
    }

    /// As it came, with `extras` beside: for what cannot be read. Attributes that are no text, and those for which there is no room, are
    /// left out; which ones is the second.
    pub(super) fn as_it_came(came: &Came, extras: &[(&str, String)]) -> (Self, Vec<String>) {
        let (mut attributes, mut left_out) = (Vec::new(), Vec::new());
        for (name, value) in &came.attributes {
            let is_ours = extras.iter().any(|(extra, _)| extra == name);
            match std::str::from_utf8(value) {
                _ if is_ours => {}
                Ok(text) if is_text(text) && !text.is_empty() && attributes.len() + extras.len() < ATTRIBUTES_MAX => {
                    attributes.push((name.clone(), text.to_owned()));
                }
                _ => left_out.push(name.clone()),
            }
        }
        attributes.extend(extras.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        (Self { body: came.body.clone(), attributes }, left_out)
    }

    /// How many bytes of a message it takes, as the service counts.
    pub(super) fn size(&self) -> usize {
        let attributes: usize =
            self.attributes.iter().map(|(name, value)| name.len() + STRING.len() + value.len()).sum();
        self.body.len() + attributes
    }

    /// As the SDK takes them.
    pub(super) fn message_attributes(&self) -> HashMap<String, MessageAttributeValue> {
        let value = |value: &String| {
            let value = MessageAttributeValue::builder().data_type(STRING).string_value(value);
            // Its type is there, which is all that it must have.
            value.build().ok()
        };
        self.attributes.iter().filter_map(|(name, text)| Some((name.clone(), value(text)?))).collect()
    }
}

/// A body as text, and how it is written if it is none.
fn written(body: &[u8]) -> (String, Option<&'static str>) {
    if body.is_empty() {
        return (EMPTY_BODY.to_owned(), Some(EMPTY));
    }
    match std::str::from_utf8(body) {
        Ok(text) if is_text(text) => (text.to_owned(), None),
        _ => (STANDARD.encode(body), Some(BASE64)),
    }
}

/// A message as the service gives it.
#[derive(Debug, Clone)]
pub(super) struct Came {
    /// The service's own name of it, which is no identity of a message: each sending has another.
    pub(super) id: String,
    pub(super) handle: String,
    pub(super) body: String,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    /// How often it was given, this time included.
    pub(super) given: u32,
    /// When it was given first.
    pub(super) first: Timestamp,
    pub(super) sent: Timestamp,
    /// What it is in order with.
    pub(super) group: Option<String>,
}

impl Came {
    /// `None` for one without a receipt, of which nothing could be said to the service.
    pub(super) fn of(message: Message) -> Option<Self> {
        let system = |name: System| message.attributes.as_ref().and_then(|all| all.get(&name)).map(String::as_str);
        let millis = |name| Timestamp::from_millis(system(name).and_then(|text| text.parse().ok()).unwrap_or_default());
        let given = system(System::ApproximateReceiveCount).and_then(|text| text.parse().ok()).unwrap_or(1);
        let (first, sent) = (millis(System::ApproximateFirstReceiveTimestamp), millis(System::SentTimestamp));
        let group = system(System::MessageGroupId).map(str::to_owned);
        let attributes = message.message_attributes.unwrap_or_default().into_iter().filter_map(|(name, value)| {
            let text = value.string_value.map(String::into_bytes);
            text.or_else(|| value.binary_value.map(|blob| blob.into_inner())).map(|value| (name, value))
        });
        Some(Self {
            attributes: attributes.collect(),
            handle: message.receipt_handle?,
            id: message.message_id.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            given,
            first,
            sent,
            group,
        })
    }

    /// What it says beside its message.
    pub(super) fn mark(&self, name: &str) -> Option<&str> {
        let (_, value) = self.attributes.iter().find(|(attribute, _)| attribute == name)?;
        std::str::from_utf8(value).ok()
    }

    fn number(&self, mark: &str) -> Option<u64> {
        self.mark(mark)?.parse().ok()
    }

    /// The time before which `envelope` is not to be given.
    pub(super) fn not_before(&self, envelope: &Envelope) -> Option<Timestamp> {
        let until = self.number(UNTIL).map(Timestamp::from_millis);
        // A message that is sent again keeps its due time, and is put off for longer than that.
        until.max(envelope.due)
    }

    /// How often `envelope` was given, as far as it counts; this time is in it. What was given before its time was given to nobody.
    pub(super) fn attempts(&self, not_before: Option<Timestamp>, early: std::time::Duration) -> u32 {
        let before = u32::try_from(self.number(GIVEN).unwrap_or_default()).unwrap_or(u32::MAX);
        let put_off = u32::from(not_before.is_some_and(|time| self.first.after(early) < time));
        self.given.saturating_sub(put_off).max(1).saturating_add(before)
    }

    /// The envelope: plain, or a CloudEvent in binary or structured mode.
    pub(super) fn envelope(&self) -> Result<Envelope, ReadError> {
        let headers = unpacked(&self.attributes);
        let has = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let is_ours = has("hapax-message-id").is_some();
        let is_event = has("ce-specversion").or_else(|| has("ce-id")).is_some();
        let is_structured =
            has(CONTENT_TYPE).is_some_and(|(_, kind)| kind.starts_with(STRUCTURED_CONTENT_TYPE.as_bytes()));
        let body = match self.mark(ENCODING) {
            Some(EMPTY) => Vec::new(),
            // What says so and is not is some other program's, and its body is what it is.
            Some(BASE64) => STANDARD.decode(&self.body).unwrap_or_else(|_| self.body.clone().into_bytes()),
            _ => self.body.clone().into_bytes(),
        };
        if is_structured && !is_ours && !is_event {
            cloudevents::from_structured(&body)
        } else if is_event && !is_ours {
            cloudevents::from_binary(headers, body)
        } else {
            plain::from_headers(headers, body, &plain::Defaults::default())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use hapax_core::{
        envelope::cloudevents::Source,
        ids::{MessageId, TypeName},
    };

    use super::*;

    fn envelope(body: &[u8]) -> Envelope {
        let kind = TypeName::parse("shop.added").unwrap();
        Envelope::new(MessageId::parse("order 7").unwrap(), kind, body.to_vec())
    }

    fn forms() -> [WrittenAs; 3] {
        let source = Source::parse("/shop").unwrap();
        [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
    }

    /// As the service gives it back: attributes in any order.
    fn came(parcel: &Parcel) -> Came {
        let mut attributes: Vec<_> =
            parcel.attributes.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        attributes.reverse();
        Came {
            id: "i".into(),
            handle: "h".into(),
            body: parcel.body.clone(),
            attributes,
            given: 1,
            first: Timestamp::from_millis(7),
            sent: Timestamp::from_millis(5),
            group: None,
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was_in_every_form_and_fits_whatever_it_has() {
        for body in [
            &b""[..],
            b"{\"n\": 7}",
            b"-",
            "ü\u{1F600}\t\r\n".as_bytes(),
            b"\0\x01",
            b"\xff\xfe",
            "\u{FFFF}".as_bytes(),
        ] {
            for headers in [0, 3, 60] {
                let mut sent = envelope(body);
                sent.due = Some(Timestamp::from_millis(1_700_000_000_123));
                sent.tenant = Some("tenant".parse().unwrap());
                sent.partition_key = Some("a key".parse().unwrap());
                for n in 0..headers {
                    let name = ["x-hapax-more", "content-type", "b", "a"]
                        .get(n)
                        .map_or_else(|| format!("h{}", 99 - n), ToString::to_string);
                    sent.headers.set(&name, if n % 7 == 2 { "" } else { "ü value" }).unwrap();
                }
                for written_as in forms() {
                    for extras in [&[][..], &[("x-hapax-letter", "a".to_owned()), (GIVEN, "3".to_owned())]] {
                        let parcel = Parcel::of(&sent, &written_as, extras);
                        assert!(parcel.attributes.len() <= ATTRIBUTES_MAX && !parcel.body.is_empty());
                        assert!(
                            is_text(&parcel.body) && parcel.attributes.iter().all(|(_, v)| is_text(v) && !v.is_empty())
                        );
                        assert_eq!(came(&parcel).envelope().unwrap(), sent, "{written_as:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_plain_message_of_few_headers_is_what_any_program_would_send() {
        let parcel = Parcel::of(&envelope(b"{}"), &WrittenAs::Plain, &[]);
        let names: Vec<&str> = parcel.attributes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, parcel.body.as_str()), (vec!["content-type", "hapax-message-id", "hapax-type"], "{}"));
    }

    #[test]
    fn a_foreign_message_is_read_by_what_it_has() {
        let foreign = |attributes: &[(&str, &str)], body: &str| {
            let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            came(&Parcel { body: body.to_owned(), attributes }).envelope()
        };
        let plain = [("hapax-message-id", "7"), ("hapax-type", "shop.added"), ("Shop", "corner")];
        let read = foreign(&plain, "{}").unwrap();
        assert_eq!((read.message_id.to_string().as_str(), read.headers.value("shop")), ("7", Some("corner")));
        let event = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/x"), ("ce-type", "shop.added")];
        assert_eq!(foreign(&event, "{}").unwrap().message_id.to_string(), "/x 7");
        let json = r#"{"specversion":"1.0","id":"7","source":"/x","type":"shop.added","data":{}}"#;
        let structured = [("content-type", "application/cloudevents+json; charset=utf-8")];
        assert_eq!(foreign(&structured, json).unwrap().message_id.to_string(), "/x 7");
        assert!(foreign(&[], "{}").is_err());
    }

    #[test]
    fn what_was_given_before_its_time_does_not_count() {
        let sent = envelope(b"{}");
        let mut came = came(&Parcel::of(&sent, &WrittenAs::Plain, &[(GIVEN, "2".into()), (UNTIL, "1000".into())]));
        let early = Duration::from_millis(10);
        let not_before = came.not_before(&sent);
        assert_eq!(not_before, Some(Timestamp::from_millis(1000)));
        came.given = 2;
        assert_eq!(came.attempts(not_before, early), 3);
        came.first = Timestamp::from_millis(995);
        assert_eq!(came.attempts(not_before, early), 4, "it was not put off then");
        assert_eq!(came.attempts(None, early), 4);
    }
}
