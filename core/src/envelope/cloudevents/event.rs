//! A CloudEvent as read, in either mode, on its way to an envelope.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{HEADERS, VERSION};
use crate::{
    envelope::{
        Envelope, HEADERS_MAX, ReadError,
        fields::{Field, Fields, put_once},
        received::{ReceivedHeaders, UNKNOWN_CONTENT, content_type, decode},
    },
    ids::{MessageId, TypeName, hex, prefixed},
};

/// The attributes of an event and, in binary mode, the other headers of its message.
#[derive(Debug, Default)]
pub(super) struct Event {
    version: Option<String>,
    id: Option<String>,
    source: Option<String>,
    pub(super) content_type: Option<String>,
    fields: Fields,
    list: Option<String>,
    /// Extensions and headers, in the order in which they came.
    rest: Vec<(String, String)>,
}

impl Event {
    /// Keeps the attribute `name`.
    pub(super) fn put(&mut self, name: &str, value: String) -> Result<(), ReadError> {
        let slot = match name {
            "specversion" => &mut self.version,
            "id" => &mut self.id,
            "source" => &mut self.source,
            "datacontenttype" => &mut self.content_type,
            HEADERS => &mut self.list,
            _ => match Field::with_attribute(name) {
                Some(field) => return self.fields.put(field, name, value),
                None => {
                    self.rest.push((name.to_owned(), value));
                    return Ok(());
                }
            },
        };
        put_once(slot, name, value)
    }

    /// Keeps a header of the message that is no attribute.
    pub(super) fn put_header(&mut self, name: String, value: String) {
        self.rest.push((name, value));
    }

    pub(super) fn into_envelope(mut self, body: Bytes) -> Result<Envelope, ReadError> {
        self.check_version()?;
        let id = required(self.id.take(), "id")?;
        let source = required(self.source.take(), "source")?;
        let message_type = required(self.fields.take(Field::Type), "type")?;
        let message_type = TypeName::parse(message_type).map_err(|e| ReadError::invalid("type", e))?;
        let ours = self.fields.take(Field::MessageId);
        let mut headers = ReceivedHeaders::default();
        let own = ours.as_deref() == Some(id.as_str());
        let message_id = if own {
            MessageId::parse(&id).map_err(|e| ReadError::invalid("id", e))?
        } else {
            headers.keep("source", &source);
            headers.keep("id", &id);
            foreign_id(&source, &id)
        };
        let content_type = content_type(self.content_type.take(), "datacontenttype", &mut headers);
        let mut envelope = Envelope::new(message_id, message_type, body);
        envelope.content_type = content_type.unwrap_or(UNKNOWN_CONTENT);
        if own {
            let set = self.fields.set_all(&mut envelope, |field, _, e| Err(ReadError::invalid(field.attribute(), e)));
            set?;
            self.rest = in_order(self.list.take(), self.rest, &mut headers);
        } else {
            self.set_foreign(ours, &mut envelope, &mut headers)?;
        }
        for (name, value) in self.rest {
            headers.keep(&name, &value);
        }
        envelope.headers = headers.finish(&envelope.message_id);
        Ok(envelope)
    }

    fn check_version(&self) -> Result<(), ReadError> {
        match self.version.as_deref() {
            Some(VERSION) => Ok(()),
            Some(found) => Err(ReadError::UnknownVersion { found: found.to_owned() }),
            None => Err(missing("specversion")),
        }
    }

    /// Sets what a foreign event says by documented names; what hapax alone would say becomes headers.
    fn set_foreign(
        &mut self,
        ours: Option<String>,
        envelope: &mut Envelope,
        headers: &mut ReceivedHeaders,
    ) -> Result<(), ReadError> {
        let mut fields = std::mem::take(&mut self.fields);
        let mut keep = |name: &str, text: Option<String>| text.map_or((), |text| headers.keep(name, &text));
        keep(Field::MessageId.attribute(), ours);
        for field in Field::ALL.into_iter().filter(|field| field.is_ours()) {
            keep(field.attribute(), fields.take(field));
        }
        keep(HEADERS, self.list.take());
        fields.set_all(envelope, |field, text, _| {
            headers.keep(field.attribute(), &text);
            Ok(())
        })
    }
}

/// The headers of an event that hapax wrote: those of `list` in its order, then what somebody has added.
fn in_order(
    list: Option<String>,
    mut rest: Vec<(String, String)>,
    headers: &mut ReceivedHeaders,
) -> Vec<(String, String)> {
    let Some(list) = list else { return rest };
    for (index, entry) in list.split('&').enumerate() {
        if index >= HEADERS_MAX {
            headers.leave_out(entry);
        } else if let Some((name, value)) = entry.split_once('=') {
            headers.keep(name, &decode(value.as_bytes()).unwrap_or_else(|| value.to_owned()));
        } else if let Some(at) = rest.iter().position(|(name, _)| name == entry) {
            let (name, value) = rest.remove(at);
            headers.keep(&name, &value);
        }
    }
    rest
}

fn required(value: Option<String>, name: &'static str) -> Result<String, ReadError> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| missing(name))
}

const fn missing(name: &'static str) -> ReadError {
    ReadError::Missing { name, remedy: "CloudEvents requires it of every event; its sender must set it" }
}

/// One id for the pair that is unique. A source with a blank could be taken for a shorter one with a longer id, so that
/// such pairs are hashed, each part with its length.
fn foreign_id(source: &str, id: &str) -> MessageId {
    if !source.contains(' ')
        && let Ok(joined) = MessageId::parse(&format!("{source} {id}"))
    {
        return joined;
    }
    let mut hash = Sha256::new_with_prefix(b"hapax cloudevent\0");
    prefixed(&mut hash, source);
    prefixed(&mut hash, id);
    let text = format!("cloudevents-sha256:{}", hex(&hash.finalize()));
    MessageId::parse(&text).expect("83 printable characters are a message id")
}
