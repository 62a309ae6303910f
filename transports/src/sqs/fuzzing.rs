//! A door for the tests of decoders: what is handed over.

use aws_sdk_sqs::{
    primitives::Blob,
    types::{Message, MessageAttributeValue, MessageSystemAttributeName},
};

use super::message::Came;
use crate::fuzzing::parts;

/// What the service may hand over: attributes of text and of bytes, its own, and a body.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let (headers, body) = parts(data);
    let mut message = Message::builder().receipt_handle("handle").body(String::from_utf8_lossy(&body));
    for (name, value) in headers {
        if let Some(name) = name.strip_prefix('@') {
            let name = MessageSystemAttributeName::from(name);
            message = message.attributes(name, String::from_utf8_lossy(&value));
            continue;
        }
        let attribute = MessageAttributeValue::builder();
        let attribute = match String::from_utf8(value) {
            Ok(text) => attribute.data_type("String").string_value(text),
            Err(bytes) => attribute.data_type("Binary").binary_value(Blob::new(bytes.into_bytes())),
        };
        if let Ok(attribute) = attribute.build() {
            message = message.message_attributes(name, attribute);
        }
    }
    let Some(came) = Came::of(message.build()) else { return };
    if let Ok(envelope) = came.envelope() {
        let not_before = came.not_before(&envelope);
        came.attempts(not_before, std::time::Duration::from_secs(1));
    }
}
