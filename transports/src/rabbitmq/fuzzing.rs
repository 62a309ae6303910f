//! A door for the tests of decoders: what is handed over, and URLs.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};

use super::{link::Link, message::envelope_of, names::Names, options::RabbitMqOptions};
use crate::fuzzing::parts;

/// What a server may hand over: headers of several types, and properties.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(names) = Names::new("hapax") else { return };
    let (headers, body) = parts(data);
    let (mut table, mut properties) = (FieldTable::default(), BasicProperties::default());
    for (name, value) in &headers {
        // AMQP 0-9-1 has a byte for the length of a name: no server sends a longer one, and the library cannot hold it.
        if name.len() > usize::from(u8::MAX) {
            continue;
        }
        let text = String::from_utf8_lossy(value);
        if let Some(name) = name.strip_prefix('#') {
            let number = text.parse().map_or(AMQPValue::Void, AMQPValue::LongLongInt);
            table.insert(name.into(), number);
            continue;
        }
        // As what is read of it: what is no UTF-8 becomes longer.
        if text.len() <= usize::from(u8::MAX) && name.starts_with('@') {
            properties = match name.as_str() {
                "@content-type" => properties.with_content_type((*text).into()),
                "@message-id" => properties.with_message_id((*text).into()),
                "@type" => properties.with_type((*text).into()),
                "@correlation-id" => properties.with_correlation_id((*text).into()),
                "@reply-to" => properties.with_reply_to((*text).into()),
                "@expiration" => properties.with_expiration((*text).into()),
                "@timestamp" => properties.with_timestamp(text.parse().unwrap_or_default()),
                _ => properties,
            };
            continue;
        }
        table.insert(name.as_str().into(), AMQPValue::LongString(value.clone().into()));
    }
    drop(envelope_of(&properties.with_headers(table), body, &names));
}

/// A URL, as a user may write it; and what is said of it.
#[doc(hidden)]
#[must_use]
pub fn fuzz_url(url: &str) -> String {
    match Link::new(url, &RabbitMqOptions::new()) {
        Ok(link) => link.place().to_owned(),
        Err(error) => format!("{error} {error:?}"),
    }
}
