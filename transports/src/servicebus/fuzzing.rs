//! A door for the tests of decoders: what is handed over, and URLs.

use fe2o3_amqp::types::{
    messaging::{ApplicationProperties, Batch, Body, Data, MessageId as Id, Properties},
    primitives::{Binary, SimpleValue, Symbol, Timestamp},
};

use super::{
    address::{Address, Server},
    message::{Carried, as_letter, attempts_of, envelope_of},
    names::Names,
};
use crate::fuzzing::parts;

/// What a service may hand over: application properties of several types, properties, and a body.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Ok(names) = Names::new("hapax", Server::ServiceBus, "", "") else { return };
    let (headers, body) = parts(data);
    let (mut application, mut properties) = (ApplicationProperties::default(), Properties::default());
    for (name, value) in headers {
        let text = String::from_utf8_lossy(&value).into_owned();
        let Some(property) = name.strip_prefix('@') else {
            let value = match (name.starts_with('#'), String::from_utf8(value)) {
                (true, _) => text.parse().map_or(SimpleValue::Null, SimpleValue::Long),
                (false, Ok(text)) => SimpleValue::String(text),
                (false, Err(bytes)) => SimpleValue::Binary(Binary::from(bytes.into_bytes())),
            };
            application.insert(name.trim_start_matches('#').to_owned(), value);
            continue;
        };
        match property {
            "message-id" => properties.message_id = Some(Id::String(text)),
            "correlation-id" => properties.correlation_id = Some(Id::Binary(Binary::from(value))),
            "subject" => properties.subject = Some(text),
            "reply-to" => properties.reply_to = Some(text),
            "content-type" => properties.content_type = Some(Symbol::from(text)),
            "group-id" => properties.group_id = Some(text),
            "creation-time" => {
                properties.creation_time = Some(Timestamp::from_milliseconds(text.parse().unwrap_or_default()));
            }
            _ => {}
        }
    }
    let message = Carried {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: Some(properties),
        application_properties: Some(application),
        body: Body::Data(Batch::new(vec![Data(Binary::from(body))])),
        footer: None,
    };
    drop(envelope_of(&message, &names));
    attempts_of(&message);
    drop(as_letter(message, &[]));
}

/// A URL, as a user may write it; and what is said of it.
#[doc(hidden)]
#[must_use]
pub fn fuzz_url(url: &str) -> String {
    match Address::parse(url) {
        Ok(address) => address.host,
        Err(why) => why.to_owned(),
    }
}
