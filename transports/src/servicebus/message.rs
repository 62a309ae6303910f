//! Envelopes as messages of AMQP 1.0.

use std::time::Duration;

use fe2o3_amqp::types::{
    messaging::{
        AmqpValue, ApplicationProperties, Batch, Body, Data, Header, Message, MessageAnnotations, MessageId as Id,
        Properties, annotations::OwnedKey,
    },
    primitives::{Binary, OrderedMap, SimpleValue, Symbol, Timestamp as Millis, Value},
};
use hapax_core::{
    envelope::{
        ContentType, Destination, Envelope,
        cloudevents::{self, STRUCTURED_CONTENT_TYPE},
        plain,
    },
    ids::{CorrelationId, MessageId, PartitionKey, TypeName},
    time::Timestamp,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::names::{FIELD_BYTES_MAX, Names, fitting, group_of};
use crate::{
    header_order::{in_order, order_of},
    reason::reason_of,
    written_as::{CONTENT_TYPE, WrittenAs},
};

/// A message as the driver sends and gives it.
pub(super) type Carried = Message<Body<Value>>;

/// Ours, beside the envelope's own: they are gone when the message becomes an envelope again.
pub(super) const OURS: &str = "x-hapax-";
/// How often the message had been given before it was put where it is.
pub(super) const GIVEN: &str = "x-hapax-given";
/// Names of the application headers in their order, which servers need not keep.
const ORDER: &str = "x-hapax-order";
/// When the service is to let the message into its queue.
pub(super) const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";
/// When the service has.
pub(super) const ENQUEUED: &str = "x-opt-enqueued-time";
/// Why the service has set the message aside, as application properties.
pub(super) const REASONS: [&str; 2] = ["DeadLetterReason", "DeadLetterErrorDescription"];
/// Before the attributes of a CloudEvent, by its binding to AMQP; and what is to be read as well, since names with a colon are none in JMS.
const EVENT: [&str; 2] = ["cloudEvents:", "cloudEvents_"];
/// The same in headers, as the envelope knows them.
const EVENT_HEADER: &str = "ce-";
/// Longest message id that is written as it is: there is room for what tells another sending apart.
const ID_BYTES_MAX: usize = FIELD_BYTES_MAX - 9;
/// Longest time to live that a message can say, in milliseconds.
const TTL_MAX: u128 = u32::MAX as u128;
/// What messages may have of properties, all together: 52 KiB of the 64 that the service takes. The rest is for AMQP's own, and for what is
/// said beside a message that is set aside: the service writes the reason twice.
pub(super) const PROPERTIES_BYTES_MAX: usize = 52 << 10;
/// Of each property beside name and value, with what stands before the name of an event's attribute.
const PROPERTY_BYTES: usize = 20;
/// Longest reason that is written, in bytes: the service takes 4,096 characters.
const REASON_BYTES_MAX: usize = 4000;

/// What else goes with a message.
#[derive(Debug, Default, Clone)]
pub(super) struct Extras {
    /// How often it has been given so far.
    pub(super) given: u32,
    /// It is another sending of a message that was there, which a service that drops repeats is not to take for one.
    pub(super) is_again: bool,
    /// Not to be let in before.
    pub(super) not_before: Option<Timestamp>,
    /// It waits somewhere before it is given, where no time to live may end it.
    pub(super) waits: bool,
    /// Properties of a dead letter.
    pub(super) letter: Vec<(&'static str, String)>,
}

/// How many bytes the properties of `envelope` take at most.
pub(super) fn properties_bytes(envelope: &Envelope, written_as: &WrittenAs) -> usize {
    if matches!(written_as, WrittenAs::StructuredCloudEvents(_)) {
        return 0;
    }
    let headers = written_as.headers(envelope);
    let order = order_of(envelope).map_or(0, |order| ORDER.len() + order.len() + PROPERTY_BYTES);
    headers.iter().map(|(name, value)| name.len() + value.len() + PROPERTY_BYTES).sum::<usize>() + order
}

/// How many bytes its body takes: an event in JSON has all of it there, and what is no JSON a third more.
pub(super) fn body_bytes(envelope: &Envelope, written_as: &WrittenAs) -> usize {
    written_as.body(envelope).len()
}

/// `envelope`, sent at `now`.
pub(super) fn carried(
    envelope: &Envelope,
    written_as: &WrittenAs,
    extras: &Extras,
    names: &Names,
    now: Timestamp,
) -> Carried {
    let (headers, body) = (written_as.headers(envelope), written_as.body(envelope));
    let (mut application, mut content_type) = (ApplicationProperties::default(), None);
    for (name, value) in headers {
        match name.strip_prefix(EVENT_HEADER) {
            _ if name == CONTENT_TYPE => content_type = Some(Symbol::from(value)),
            Some(attribute) if *written_as != WrittenAs::Plain => {
                let value = percent_decode_str(&value).decode_utf8_lossy().into_owned();
                application.insert(format!("{}{attribute}", EVENT[0]), SimpleValue::String(value));
            }
            _ => drop(application.insert(name, SimpleValue::String(value))),
        }
    }
    if let Some(order) = order_of(envelope).filter(|_| *written_as == WrittenAs::Plain) {
        application.insert(ORDER.to_owned(), SimpleValue::String(order));
    }
    if extras.given > 0 {
        application.insert(GIVEN.to_owned(), SimpleValue::Uint(extras.given));
    }
    for (name, value) in &extras.letter {
        application.insert((*name).to_owned(), SimpleValue::String(cut(value).to_owned()));
    }
    let id = fitting(&envelope.message_id.to_string(), ID_BYTES_MAX);
    let id = if extras.is_again { format!("{id}#{:08x}", fastrand::u32(..)) } else { id };
    // What does not fit is in the headers all the same.
    let fits = |text: &String| text.len() <= FIELD_BYTES_MAX;
    let reply_to = envelope.reply_to.as_ref().map(|destination| names.address(destination)).filter(fits);
    let correlation_id = envelope.correlation_id.as_ref().map(|id| id.as_str().to_owned()).filter(fits);
    let properties = Properties {
        message_id: Some(Id::String(id)),
        subject: Some(envelope.message_type.as_str().to_owned()),
        reply_to,
        correlation_id: correlation_id.map(Id::String),
        content_type,
        creation_time: envelope.occurred_at.map(millis),
        group_id: envelope.partition_key.as_ref().map(group_of),
        ..Properties::default()
    };
    // One that has expired already, or will after longer than can be said, is left to its endpoint.
    let left = envelope.expires.filter(|_| !extras.waits).map(|expires| expires.since(now).as_millis());
    let ttl = left.filter(|left| (1..=TTL_MAX).contains(left)).and_then(|left| u32::try_from(left).ok());
    let mut annotations = MessageAnnotations::default();
    if let Some(time) = extras.not_before {
        annotations.insert(OwnedKey::from(SCHEDULED), Value::Timestamp(millis(time)));
    }
    Message {
        header: Some(Header { durable: true, ttl, ..Header::default() }),
        delivery_annotations: None,
        message_annotations: (!annotations.is_empty()).then_some(annotations),
        properties: Some(properties),
        application_properties: Some(application),
        body: Body::Data(Batch::new(vec![Data(Binary::from(body.to_vec()))])),
        footer: None,
    }
}

fn millis(time: Timestamp) -> Millis {
    Millis::from_milliseconds(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// A reason, or as much of it as there is room for.
pub(super) fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The envelope of a message that came: plain, or a CloudEvent in binary or structured mode. Why it is none, else.
pub(super) fn envelope_of(message: &Carried, names: &Names) -> Result<Envelope, String> {
    let body = body_of(message)?;
    let (mut headers, mut order, mut is_event): (Vec<(String, Vec<u8>)>, _, _) = (Vec::new(), None, false);
    for (name, value) in properties_of(message) {
        let Some(value) = text_of(value) else { continue };
        if name == ORDER {
            order = Some(value);
        } else if let Some(attribute) = EVENT.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            is_event = true;
            let value = utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string();
            headers.push((format!("{EVENT_HEADER}{attribute}"), value.into_bytes()));
        } else if !name.starts_with(OURS) && !REASONS.contains(&name.as_str()) {
            headers.push((name.clone(), value.into_bytes()));
        }
    }
    let properties = message.properties.as_ref();
    let content_type = properties.and_then(|it| it.content_type.as_ref()).map(|kind| kind.as_str().to_owned());
    headers.extend(content_type.iter().map(|kind| (CONTENT_TYPE.to_owned(), kind.clone().into_bytes())));
    let is_ours = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("hapax-message-id"));
    let is_structured = content_type.as_ref().is_some_and(|kind| kind.starts_with(STRUCTURED_CONTENT_TYPE));
    let read = if is_structured && !is_ours && !is_event {
        cloudevents::from_structured(&body)
    } else if is_event && !is_ours {
        cloudevents::from_binary(headers, body)
    } else {
        let defaults = plain::Defaults {
            message_id: properties
                .and_then(|it| id_text(it.message_id.as_ref()?))
                .and_then(|id| MessageId::parse(&id).ok()),
            message_type: properties.and_then(|it| TypeName::parse(it.subject.clone()?).ok()),
            content_type: content_type.as_ref().and_then(|text| ContentType::parse(text).ok()),
        };
        plain::from_headers(headers, body, &defaults)
    };
    let mut envelope = read.map_err(|problem| reason_of(&problem))?;
    if let (false, false, false, Some(properties)) = (is_ours, is_event, is_structured, properties) {
        let correlation = properties.correlation_id.as_ref().and_then(id_text);
        envelope.correlation_id = correlation.and_then(|id| CorrelationId::parse(id).ok());
        envelope.partition_key = properties.group_id.as_ref().and_then(|id| PartitionKey::parse(id.as_str()).ok());
        envelope.occurred_at = properties.creation_time.as_ref().map(time_of);
        envelope.reply_to =
            properties.reply_to.as_ref().and_then(|queue| names.endpoint(queue)).map(Destination::Endpoint);
    }
    if let Some(order) = order {
        envelope.headers = in_order(&envelope.headers, &order);
    }
    Ok(envelope)
}

/// One section of data or several, or one value that is bytes or text.
fn body_of(message: &Carried) -> Result<Vec<u8>, String> {
    match &message.body {
        Body::Data(all) => Ok(all.iter().flat_map(|data| data.0.iter().copied()).collect()),
        Body::Value(AmqpValue(Value::Binary(bytes))) => Ok(bytes.to_vec()),
        Body::Value(AmqpValue(Value::String(text))) => Ok(text.clone().into_bytes()),
        Body::Empty | Body::Value(AmqpValue(Value::Null)) => Ok(Vec::new()),
        Body::Value(_) | Body::Sequence(_) => {
            Err("the body is an AMQP value that is neither binary nor a string: its sender must send bytes".to_owned())
        }
    }
}

fn properties_of(message: &Carried) -> impl Iterator<Item = (&String, &SimpleValue)> {
    message.application_properties.iter().flat_map(|properties| properties.0.iter())
}

/// How often `message` was given, this time included.
pub(super) fn attempts_of(message: &Carried) -> u32 {
    let before = message.header.as_ref().map_or(0, |header| header.delivery_count);
    given_before(message).saturating_add(before).saturating_add(1)
}

/// How often it had been given when it was put where it is.
pub(super) fn given_before(message: &Carried) -> u32 {
    text(message, GIVEN).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What it says beside its message.
pub(super) fn text(message: &Carried, name: &str) -> Option<String> {
    let (_, value) = properties_of(message).find(|(property, _)| *property == name)?;
    text_of(value)
}

/// When the service let it in.
pub(super) fn enqueued(message: &Carried) -> Option<Timestamp> {
    let annotations = &message.message_annotations.as_ref()?.0;
    match annotations.iter().find(|(key, _)| matches!(key, OwnedKey::Symbol(name) if name.as_str() == ENQUEUED))?.1 {
        Value::Timestamp(time) => Some(time_of(time)),
        _ => None,
    }
}

/// What is no message of ours, to be put among dead letters: as it came, with `letter` beside, and without what would end it.
pub(super) fn as_letter(mut message: Carried, letter: &[(&'static str, String)]) -> Carried {
    message.header = Some(Header { durable: true, ..Header::default() });
    message.delivery_annotations = None;
    message.message_annotations = None;
    let properties = message.application_properties.get_or_insert_with(Default::default);
    for (name, value) in letter {
        properties.insert((*name).to_owned(), SimpleValue::String(cut(value).to_owned()));
    }
    message
}

fn time_of(time: &Millis) -> Timestamp {
    Timestamp::from_millis(u64::try_from(time.milliseconds()).unwrap_or_default())
}

/// An id as text; one that is bytes only where they are text.
fn id_text(id: &Id) -> Option<String> {
    match id {
        Id::String(text) => Some(text.clone()),
        Id::Ulong(number) => Some(number.to_string()),
        Id::Uuid(uuid) => Some(format!("{uuid:x}")),
        Id::Binary(bytes) => String::from_utf8(bytes.to_vec()).ok(),
    }
}

/// A property's value as text; `None` for what has none.
fn text_of(value: &SimpleValue) -> Option<String> {
    Some(match value {
        SimpleValue::String(text) => text.clone(),
        SimpleValue::Symbol(text) => text.as_str().to_owned(),
        SimpleValue::Binary(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        SimpleValue::Bool(value) => value.to_string(),
        SimpleValue::Ubyte(number) => number.to_string(),
        SimpleValue::Ushort(number) => number.to_string(),
        SimpleValue::Uint(number) => number.to_string(),
        SimpleValue::Ulong(number) => number.to_string(),
        SimpleValue::Byte(number) => number.to_string(),
        SimpleValue::Short(number) => number.to_string(),
        SimpleValue::Int(number) => number.to_string(),
        SimpleValue::Long(number) => number.to_string(),
        SimpleValue::Float(number) => number.to_string(),
        SimpleValue::Double(number) => number.to_string(),
        SimpleValue::Char(character) => character.to_string(),
        SimpleValue::Timestamp(time) => time_of(time).to_string(),
        SimpleValue::Uuid(uuid) => format!("{uuid:x}"),
        SimpleValue::Null
        | SimpleValue::Decimal32(_)
        | SimpleValue::Decimal64(_)
        | SimpleValue::Decimal128(_)
        | SimpleValue::Described(_) => return None,
    })
}

/// How long a message is to wait, if it is to wait at all.
pub(super) fn wait_of(envelope: &Envelope, now: Timestamp) -> Option<Duration> {
    envelope.due.map(|due| due.since(now)).filter(|wait| !wait.is_zero())
}

/// A map of AMQP.
pub(super) fn map<const N: usize>(entries: [(&str, Value); N]) -> OrderedMap<Value, Value> {
    entries.into_iter().map(|(key, value)| (Value::String(key.to_owned()), value)).collect()
}

#[cfg(test)]
mod tests;
