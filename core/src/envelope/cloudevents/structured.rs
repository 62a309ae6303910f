//! The JSON event format: attributes and body in one JSON object.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use bytes::Bytes;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Source, attributes, event::Event};
use crate::envelope::{ContentType, Envelope, ReadError, fields::Field};

/// Content type of the messages that [`to_structured`] makes.
pub const STRUCTURED_CONTENT_TYPE: &str = "application/cloudevents+json";

/// As foreign producers write it, with or without padding.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `envelope` as one JSON document of type [`STRUCTURED_CONTENT_TYPE`].
///
/// A body that is a JSON text by its content type and in fact stands in `data` byte for byte, any other (also JSON with
/// blanks around it) in `data_base64`: fingerprints are over the bytes of the body, so these must not change. A gateway
/// that writes the JSON anew on the way changes them; two copies of one message, one through such a gateway and one not,
/// are then reported as a reused id. Use binary mode there.
#[must_use]
pub fn to_structured(envelope: &Envelope, source: &Source) -> Vec<u8> {
    const ATTRIBUTES_BYTES: usize = 512;
    let mut json = Vec::with_capacity(envelope.body.len() + ATTRIBUTES_BYTES);
    for (name, value) in attributes(envelope, source) {
        member(&mut json, name);
        // Integers and Booleans have JSON types of their own in this format; no header can have these names.
        if name == Field::Schema.attribute() || name == Field::Timeout.attribute() {
            json.extend(value.as_bytes());
        } else {
            string(&mut json, &value);
        }
    }
    member(&mut json, "datacontenttype");
    string(&mut json, envelope.content_type.as_str());
    if is_json(&envelope.content_type) && is_json_text(&envelope.body) {
        member(&mut json, "data");
        json.extend(&envelope.body);
    } else {
        member(&mut json, "data_base64");
        string(&mut json, &STANDARD.encode(&envelope.body));
    }
    json.push(b'}');
    json
}

fn member(json: &mut Vec<u8>, name: &str) {
    json.push(if json.is_empty() { b'{' } else { b',' });
    string(json, name);
    json.push(b':');
}

fn string(json: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(json, text).expect("text can be written to memory as JSON");
}

/// Whether the bytes come back as they are when they stand inside a JSON document.
fn is_json_text(body: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(body).is_ok_and(|raw| raw.get().len() == body.len())
}

/// By the rule of the format, section 3.1.1: `*/json` and `*/*+json`, whatever the parameters.
fn is_json(content_type: &ContentType) -> bool {
    let text = content_type.as_str();
    let media_type = text.split(';').next().unwrap_or(text).trim();
    media_type.split_once('/').is_some_and(|(_, subtype)| {
        let suffix = subtype.rsplit('+').next().unwrap_or(subtype);
        suffix.eq_ignore_ascii_case("json")
    })
}

/// An envelope from a message of type [`STRUCTURED_CONTENT_TYPE`]. What [`to_structured`] was given comes back without
/// loss; foreign events are taken as the [module](super) says. Without `datacontenttype`, `data` is
/// `application/json`; `data_base64` is `application/octet-stream`, which no handler reads. Headers beside the document
/// belong to the hop and are not looked at.
///
/// # Errors
/// As for [`from_binary`](super::from_binary), and [`ReadError::Malformed`] for bytes that are no JSON object, with both
/// kinds of data, or with bad base64.
pub fn from_structured(json: &[u8]) -> Result<Envelope, ReadError> {
    let mut event = Event::default();
    let mut data = None;
    let mut data_base64 = None;
    for (name, value) in members(json)? {
        let slot = match name.as_str() {
            "data" => &mut data,
            "data_base64" => &mut data_base64,
            _ => {
                if let Some(text) = attribute_text(value) {
                    event.put(&name, text)?;
                }
                continue;
            }
        };
        if slot.replace(value).is_some() {
            return Err(ReadError::Repeated { name });
        }
    }
    let data_base64 = data_base64.filter(|value| value.get() != "null");
    let body = match (data, data_base64) {
        (Some(_), Some(_)) => return Err(malformed("it has both `data` and `data_base64`; its sender must choose")),
        (None, Some(base64)) => decode_base64(base64)?,
        (data, None) => {
            let content_type = event.content_type.get_or_insert_with(|| ContentType::JSON.as_str().to_owned());
            let is_json = ContentType::parse(content_type).is_ok_and(|content_type| is_json(&content_type));
            data.map(|data| data_bytes(data, is_json)).unwrap_or_default()
        }
    };
    event.into_envelope(body)
}

fn malformed(problem: impl Into<String>) -> ReadError {
    ReadError::Malformed { problem: problem.into() }
}

/// JSON data as it stands; text of another type without its quotes. A value that should have been text stays JSON.
fn data_bytes(data: &RawValue, is_json: bool) -> Bytes {
    let text = if is_json { None } else { serde_json::from_str::<String>(data.get()).ok() };
    Bytes::from(text.unwrap_or_else(|| data.get().to_owned()))
}

fn decode_base64(value: &RawValue) -> Result<Bytes, ReadError> {
    let text: String = serde_json::from_str(value.get()).map_err(|_| malformed("`data_base64` is no text"))?;
    ANY_PADDING.decode(text).map(Bytes::from).map_err(|e| malformed(format!("`data_base64`: {e}")))
}

/// The canonical text of an attribute; `None` for null, which is the same as none. What is no attribute value in 1.0,
/// such as an object, stays JSON.
fn attribute_text(value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        json if json.starts_with('"') => Some(serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())),
        json => Some(json.to_owned()),
    }
}

/// The members of a JSON object in order, also repeated ones, which a map would hide.
fn members(json: &[u8]) -> Result<Vec<(String, &RawValue)>, ReadError> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    let members = reader.deserialize_map(Members).map_err(|e| malformed(e.to_string()))?;
    reader.end().map_err(|e| malformed(e.to_string()))?;
    Ok(members)
}
