//! Envelopes as entries of a stream.

use std::{borrow::Cow, sync::Arc};

use ::redis::Cmd;
use bytes::Bytes;
use hapax_core::envelope::{
    Envelope, ReadError,
    cloudevents::{self, STRUCTURED_CONTENT_TYPE},
    plain,
};

use super::answer::Field;
use crate::written_as::{CONTENT_TYPE, WrittenAs};

/// The field of a message's body, and the last one of what is written here.
const BODY: &str = "body";
/// Fields that are ours, beside the envelope's own: they are gone when the message becomes an envelope again.
pub(super) const OURS: &str = "x-hapax-";
/// When the message is due, in milliseconds since 1970: the server reads it, where it is the first field.
const DUE: &str = "x-hapax-due";
/// How `plain` writes an application header whose name is taken.
const TAKEN: &str = "hapax-header-";
/// Longest reason that is written, in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// A message as it is written.
pub(super) struct Fields {
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Fields {
    pub(super) fn of(envelope: &Envelope, written_as: &WrittenAs) -> Self {
        let (mut written, body) = (written_as.headers(envelope), written_as.body(envelope));
        if *written_as == WrittenAs::Plain {
            written = written.into_iter().map(|(name, value)| (written_name(name), value)).collect();
        }
        let due = envelope.due.map(|due| (DUE.to_owned(), due.as_millis().to_string()));
        Self { headers: due.into_iter().chain(written).collect(), body }
    }

    /// How many bytes it has, about.
    pub(super) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        headers + self.body.len()
    }

    /// Adds it to the arguments of `command`.
    pub(super) fn write(&self, command: &mut Cmd) {
        for (name, value) in &self.headers {
            command.arg(name).arg(value);
        }
        command.arg(BODY).arg(&self.body[..]);
    }
}

/// A header may be called as a field of ours.
fn written_name(name: String) -> String {
    if name == BODY || name.starts_with(OURS) { format!("{TAKEN}{name}") } else { name }
}

/// The envelope of an entry.
pub(super) fn envelope_of(fields: &[Field]) -> Result<Arc<Envelope>, ReadError> {
    let mut headers: Vec<(Cow<'_, str>, &[u8])> = Vec::with_capacity(fields.len());
    let mut body: &[u8] = &[];
    let (mut is_ours, mut is_event, mut is_structured) = (false, false, false);
    for (name, value) in fields {
        let name = String::from_utf8_lossy(name);
        match name.to_ascii_lowercase().as_str() {
            BODY => {
                body = value;
                continue;
            }
            "hapax-message-id" => is_ours = true,
            "ce-specversion" | "ce-id" => is_event = true,
            CONTENT_TYPE => is_structured = value.starts_with(STRUCTURED_CONTENT_TYPE.as_bytes()),
            name if name.starts_with(OURS) => continue,
            _ => {}
        }
        headers.push((name, value));
    }
    let envelope = if is_structured && !is_ours && !is_event {
        cloudevents::from_structured(body)?
    } else if is_event && !is_ours {
        cloudevents::from_binary(headers, Bytes::copy_from_slice(body))?
    } else {
        plain::from_headers(headers, Bytes::copy_from_slice(body), &plain::Defaults::default())?
    };
    Ok(Arc::new(envelope))
}

/// What an entry says beside its message.
pub(super) fn text_of(fields: &[Field], name: &str) -> Option<String> {
    let (_, value) = fields.iter().find(|(field, _)| field == name.as_bytes())?;
    String::from_utf8(value.clone()).ok()
}

/// A reason, or as much of it as is kept.
pub(super) fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
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
        time::Timestamp,
    };

    use super::*;

    fn envelope() -> Envelope {
        let kind = TypeName::parse("shop.added").unwrap();
        Envelope::new(MessageId::parse("order 7").unwrap(), kind, &b"{\"n\": \xc3\xbc}"[..])
    }

    /// As the server gives it back.
    fn read(fields: &Fields) -> Envelope {
        let mut all: Vec<Field> =
            fields.headers.iter().map(|(name, value)| (name.clone().into(), value.clone().into())).collect();
        all.push((BODY.into(), fields.body.to_vec()));
        (*envelope_of(&all).unwrap()).clone()
    }

    #[test]
    fn what_is_written_is_read_as_it_was_in_every_form() {
        let mut sent = envelope();
        for (name, value) in
            [("body", "a header"), ("x-hapax-due", "7"), ("content-type", "x"), ("b", ""), ("a", "ü\u{1F600}")]
        {
            sent.headers.set(name, value).unwrap();
        }
        sent.due = Some(Timestamp::from_millis(1_700_000_000_123));
        let source = Source::parse("/shop").unwrap();
        for written_as in
            [WrittenAs::Plain, WrittenAs::CloudEvents(source.clone()), WrittenAs::StructuredCloudEvents(source)]
        {
            let fields = Fields::of(&sent, &written_as);
            assert_eq!(fields.headers[0], ("x-hapax-due".to_owned(), "1700000000123".to_owned()));
            assert_eq!(read(&fields), sent, "{written_as:?}");
        }
    }

    #[test]
    fn a_foreign_message_is_read_by_what_it_has() {
        let fields = |fields: &[(&str, &str)]| {
            let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
            envelope_of(&fields.collect::<Vec<_>>())
        };
        let plain = [("hapax-message-id", "7"), ("hapax-type", "shop.added"), ("Shop", "corner"), ("body", "{}")];
        let read = fields(&plain).unwrap();
        assert_eq!((read.message_id.to_string().as_str(), read.headers.value("shop")), ("7", Some("corner")));
        let event =
            [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/x"), ("ce-type", "shop.added"), ("body", "{}")];
        assert_eq!(fields(&event).unwrap().message_id.to_string(), "/x 7");
        let json = r#"{"specversion":"1.0","id":"7","source":"/x","type":"shop.added","data":{}}"#;
        let structured = [("content-type", "application/cloudevents+json; charset=utf-8"), ("body", json)];
        assert_eq!(fields(&structured).unwrap().message_id.to_string(), "/x 7");
        assert!(fields(&[("body", "{}")]).is_err());
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "ü".repeat(REASON_BYTES_MAX);
        assert_eq!(cut(&long).len(), REASON_BYTES_MAX);
        assert_eq!(cut(&format!("a{long}")).len(), REASON_BYTES_MAX - 1);
    }
}
