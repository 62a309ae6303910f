//! Envelopes as AMQP messages.

use std::sync::Arc;

use hapax_core::{
    envelope::{ContentType, Destination, Envelope, ReadError, cloudevents, plain},
    ids::{CorrelationId, MessageId, TypeName},
    time::Timestamp,
};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{events, names::Names};
use crate::{
    header_order::{in_order, order_of},
    written_as::{CONTENT_TYPE, WrittenAs},
};

/// Bytes that headers may take together: all of them travel in one frame, of 128 KiB unless configured.
pub(super) const HEADERS_BYTES_MAX: usize = 100 << 10;
/// Of each header, beside name and value.
const HEADER_BYTES: usize = 8;
/// Ours, beside the envelope's own: they are gone when the message becomes an envelope again.
const OURS: &str = "x-hapax-";
/// How often the message had been given before it was put where it is.
const ATTEMPTS: &str = "x-hapax-attempts";
/// Names of the application headers in their order, which AMQP's table does not keep.
const ORDER: &str = "x-hapax-order";
/// The server's own count of returns, in quorum queues.
const DELIVERY_COUNT: &str = "x-delivery-count";
/// Headers that the server adds on the way.
const SERVERS: [&str; 4] = ["x-death", "x-first-death-", "x-last-death-", DELIVERY_COUNT];
/// Kept by the message, not by AMQP's `delivery-mode` 1.
const PERSISTENT: u8 = 2;
/// Longest `expiration` that the server takes, in milliseconds.
const EXPIRATION_MAX: u128 = u32::MAX as u128;
/// Headers that send further copies elsewhere.
const COPIES: [&str; 2] = ["CC", "BCC"];
/// Longest reason that is written, in bytes.
const REASON_BYTES_MAX: usize = 16 << 10;

/// What else goes with a message.
#[derive(Debug, Default)]
pub(super) struct Extras {
    /// How often it has been given so far.
    pub(super) attempts: u32,
    /// It waits somewhere before it is given, where no `expiration` may end it.
    pub(super) waits: bool,
    /// Headers of a dead letter.
    pub(super) letter: Vec<(&'static str, String)>,
}

/// The headers of `envelope`, the content type among them.
fn headers_of(envelope: &Envelope, written_as: &WrittenAs) -> Vec<(String, String)> {
    match written_as {
        WrittenAs::CloudEvents(source) => events::headers_of(envelope, source),
        WrittenAs::Plain | WrittenAs::StructuredCloudEvents(_) => written_as.headers(envelope),
    }
}

/// How many bytes the headers of `envelope` take.
pub(super) fn headers_bytes(envelope: &Envelope, written_as: &WrittenAs) -> usize {
    let all = headers_of(envelope, written_as);
    all.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES).sum()
}

/// The properties of `envelope`, which is sent at `now`.
pub(super) fn properties_of(
    envelope: &Envelope,
    extras: &Extras,
    names: &Names,
    written_as: &WrittenAs,
    now: Timestamp,
) -> BasicProperties {
    let mut table = FieldTable::default();
    let mut put = |name: &str, value: AMQPValue| {
        if let Ok(name) = ShortString::try_new(name) {
            table.insert(name, value);
        }
    };
    let mut content_type = envelope.content_type.as_str().to_owned();
    for (name, value) in headers_of(envelope, written_as) {
        match name == CONTENT_TYPE {
            true => content_type = value,
            false => put(&name, AMQPValue::LongString(value.into())),
        }
    }
    if *written_as == WrittenAs::Plain
        && let Some(order) = order_of(envelope)
    {
        put(ORDER, AMQPValue::LongString(order.into()));
    }
    if extras.attempts > 0 {
        put(ATTEMPTS, AMQPValue::LongLongInt(extras.attempts.into()));
    }
    for (name, value) in &extras.letter {
        put(name, AMQPValue::LongString(cut(value).into()));
    }

    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(table);
    let short = |text: &str| ShortString::try_new(text).ok();
    if let Some(text) = short(&content_type) {
        properties = properties.with_content_type(text);
    }
    if let Some(text) = short(&envelope.message_id.to_string()) {
        properties = properties.with_message_id(text);
    }
    if let Some(text) = short(envelope.message_type.as_str()) {
        properties = properties.with_type(text);
    }
    if let Some(text) = envelope.correlation_id.as_ref().and_then(|id| short(id.as_str())) {
        properties = properties.with_correlation_id(text);
    }
    if let Some(Destination::Endpoint(endpoint)) = &envelope.reply_to
        && let Some(text) = short(&names.queue(endpoint))
    {
        properties = properties.with_reply_to(text);
    }
    if let Some(time) = envelope.occurred_at {
        properties = properties.with_timestamp(time.as_millis() / 1000);
    }
    // One that has expired already, or will after longer than the server counts, is left to its endpoint.
    let left = envelope.expires.filter(|_| !extras.waits).map(|expires| expires.since(now).as_millis());
    if let Some(left) = left.filter(|left| (1..=EXPIRATION_MAX).contains(left))
        && let Some(text) = short(&left.to_string())
    {
        properties = properties.with_expiration(text);
    }
    properties
}

/// A reason, or as much of it as a frame has room for.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The envelope of a message that came, and how often it was given, this time included. It may be plain, or a CloudEvent in binary or in
/// structured mode.
pub(super) fn envelope_of(
    properties: &BasicProperties,
    body: Vec<u8>,
    names: &Names,
) -> Result<(Arc<Envelope>, u32), ReadError> {
    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    let (mut before, mut returned, mut order) = (0_i64, 0_i64, None);
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        match name.as_str() {
            ATTEMPTS => before = number(value),
            DELIVERY_COUNT => returned = number(value),
            ORDER => order = value_text(value),
            name if name.starts_with(OURS) || SERVERS.iter().any(|of_server| name.starts_with(of_server)) => {}
            name => headers.extend(header_text(name, value).map(|value| (name.to_owned(), value))),
        }
    }
    if let Some(text) = properties.content_type() {
        headers.push((CONTENT_TYPE.into(), text.as_str().as_bytes().to_vec()));
    }
    let foreign = !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("hapax-message-id"));
    let is_structured = properties.content_type().as_ref().is_some_and(|kind| {
        let kind = kind.as_str().get(..cloudevents::STRUCTURED_CONTENT_TYPE.len());
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(cloudevents::STRUCTURED_CONTENT_TYPE))
    });
    let is_event = foreign && (is_structured || events::is_event(&headers));
    let text_of = |property: &Option<ShortString>| property.as_ref().map(|text| text.as_str().to_owned());
    let defaults = plain::Defaults {
        message_id: text_of(properties.message_id()).and_then(|id| MessageId::parse(&id).ok()),
        message_type: text_of(properties.kind()).and_then(|name| TypeName::parse(name).ok()),
        content_type: text_of(properties.content_type()).and_then(|text| ContentType::parse(&text).ok()),
    };
    let mut envelope = match is_event {
        true if is_structured => cloudevents::from_structured(&body)?,
        true => events::envelope_of(headers, body)?,
        false => plain::from_headers(headers, body, &defaults)?,
    };
    // An event says these itself where it says them, and always when it happened: the server may stamp what is sent.
    if foreign && envelope.correlation_id.is_none() {
        envelope.correlation_id = text_of(properties.correlation_id()).and_then(|id| CorrelationId::parse(id).ok());
    }
    if foreign && envelope.reply_to.is_none() {
        let queue = text_of(properties.reply_to());
        envelope.reply_to = queue.and_then(|queue| names.endpoint(&queue)).map(Destination::Endpoint);
    }
    if foreign && !is_event {
        envelope.occurred_at = properties.timestamp().map(time_of);
    }
    if let Some(order) = order.filter(|_| !is_event) {
        envelope.headers = in_order(&envelope.headers, &String::from_utf8_lossy(&order));
    }
    let attempts = before.saturating_add(returned).saturating_add(1);
    Ok((Arc::new(envelope), u32::try_from(attempts).unwrap_or(u32::MAX)))
}

/// The properties of a message that is no envelope, as a dead letter: what says who it is, and nothing that would end it
/// (`expiration`), copy it (`CC`) or have it refused (`user-id`).
pub(super) fn as_letter(properties: &BasicProperties, letter: &[(&'static str, String)]) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        let of_server = SERVERS.iter().any(|of_server| name.as_str().starts_with(of_server));
        if !of_server && !COPIES.contains(&name.as_str()) {
            table.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in letter {
        if let Ok(name) = ShortString::try_new(*name) {
            table.insert(name, AMQPValue::LongString(cut(value).into()));
        }
    }
    let mut kept = BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(table);
    if let Some(text) = properties.content_type() {
        kept = kept.with_content_type(text.clone());
    }
    if let Some(text) = properties.message_id() {
        kept = kept.with_message_id(text.clone());
    }
    if let Some(text) = properties.kind() {
        kept = kept.with_type(text.clone());
    }
    if let Some(text) = properties.correlation_id() {
        kept = kept.with_correlation_id(text.clone());
    }
    if let Some(text) = properties.reply_to() {
        kept = kept.with_reply_to(text.clone());
    }
    if let Some(seconds) = properties.timestamp() {
        kept = kept.with_timestamp(*seconds);
    }
    kept
}

/// How often a message had been given when it was put where it is.
pub(super) fn attempts_of(properties: &BasicProperties) -> u32 {
    let value = properties.headers().as_ref().and_then(|headers| headers.inner().get(ATTEMPTS));
    value.map_or(0, |value| u32::try_from(number(value)).unwrap_or_default())
}

/// What a dead letter says beside its message.
pub(super) fn text_of(properties: &BasicProperties, name: &str) -> Option<String> {
    let value = properties.headers().as_ref()?.inner().get(name)?;
    value_text(value).and_then(|bytes| String::from_utf8(bytes).ok())
}

fn number(value: &AMQPValue) -> i64 {
    match *value {
        AMQPValue::ShortShortInt(n) => n.into(),
        AMQPValue::ShortShortUInt(n) => n.into(),
        AMQPValue::ShortInt(n) => n.into(),
        AMQPValue::ShortUInt(n) => n.into(),
        AMQPValue::LongInt(n) => n.into(),
        AMQPValue::LongUInt(n) => n.into(),
        AMQPValue::LongLongInt(n) => n,
        _ => 0,
    }
}

/// AMQP counts in seconds.
const fn time_of(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

/// The value of the header `name` as text; a time as an attribute of an event has it is written as events write it.
fn header_text(name: &str, value: &AMQPValue) -> Option<Vec<u8>> {
    match value {
        AMQPValue::Timestamp(seconds) if events::attribute(name).is_some() => {
            Some(time_of(*seconds).to_string().into_bytes())
        }
        value => value_text(value),
    }
}

/// A header's value as text; `None` for what is no single value.
fn value_text(value: &AMQPValue) -> Option<Vec<u8>> {
    Some(match value {
        AMQPValue::LongString(text) => text.as_bytes().to_vec(),
        AMQPValue::ShortString(text) => text.as_str().as_bytes().to_vec(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().to_vec(),
        AMQPValue::Boolean(value) => value.to_string().into_bytes(),
        AMQPValue::Float(value) => value.to_string().into_bytes(),
        AMQPValue::Double(value) => value.to_string().into_bytes(),
        AMQPValue::Timestamp(seconds) => seconds.to_string().into_bytes(),
        AMQPValue::DecimalValue(_) | AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) | AMQPValue::Void => {
            return None;
        }
        whole => number(whole).to_string().into_bytes(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::envelope::cloudevents::Source;

    use super::*;

    fn envelope() -> Envelope {
        let kind = TypeName::parse("shop.added").unwrap();
        let mut envelope = Envelope::new(MessageId::parse("Order 7/ü %41").unwrap(), kind, br#"{"n":1}"#.to_vec());
        envelope.correlation_id = Some(CorrelationId::parse("process 1").unwrap());
        envelope.occurred_at = Some(Timestamp::from_millis(1_700_000_000_999));
        envelope.reply_to = Some(Destination::parse("endpoint:billing").unwrap());
        for (name, value) in [("zebra", "first"), ("apple", " second, \"100 %\" "), ("content-type", "taken")] {
            envelope.headers.set(name, value).unwrap();
        }
        envelope
    }

    fn names() -> Names {
        Names::new("hapax").unwrap()
    }

    #[test]
    fn what_is_sent_in_any_form_comes_back_as_it_was() {
        let source = Source::parse("/shop").unwrap();
        for (written_as, bytes_min) in [
            (WrittenAs::Plain, 100),
            (WrittenAs::CloudEvents(source.clone()), 100),
            (WrittenAs::StructuredCloudEvents(source), 20),
        ] {
            let sent = envelope();
            let extras = Extras { attempts: 2, ..Extras::default() };
            let properties = properties_of(&sent, &extras, &names(), &written_as, Timestamp::now());
            let (came, attempts) = envelope_of(&properties, written_as.body(&sent).to_vec(), &names()).unwrap();
            assert_eq!((&*came, attempts), (&sent, 3), "{written_as:?}");
            assert!(headers_bytes(&sent, &written_as) > bytes_min);
        }
    }

    #[test]
    fn attributes_of_an_event_may_have_types_of_amqp() {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut table = FieldTable::default();
        for (name, value) in [
            ("cloudEvents_specversion", text("1.0")),
            ("cloudEvents_id", text("7")),
            ("cloudEvents_source", text("/shop")),
            ("cloudEvents_type", text("shop.added")),
            ("cloudEvents_time", AMQPValue::Timestamp(1_700_000_000)),
            ("cloudEvents_count", AMQPValue::LongInt(3)),
            ("sent", AMQPValue::Timestamp(1_700_000_000)),
        ] {
            table.insert(name.into(), value);
        }
        let properties = BasicProperties::default().with_headers(table).with_timestamp(5);
        let (came, _) = envelope_of(&properties, Vec::new(), &names()).unwrap();
        assert_eq!(came.occurred_at, Some(Timestamp::from_millis(1_700_000_000_000)));
        assert_eq!((came.headers.value("count"), came.headers.value("sent")), (Some("3"), Some("1700000000")));
    }
}
