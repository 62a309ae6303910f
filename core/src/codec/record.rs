//! hapax's own records, for adapters: what an entity keeps beside the state, envelopes in a queue, replies.
//!
//! Each record is a frame (codec id 0x70, `p` for postcard; record version) and a postcard message of hand-versioned
//! structs, so that a change of a type in this crate cannot change the format unseen. Golden bytes in `core/tests` hold
//! it still. Postcard's wire format is specified at postcard.jamesmunns.com.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::CodecError;
use crate::{
    entity::{Entity, LiveTimeout, OutboxEntry},
    envelope::{ContentType, Destination, Envelope, Headers, Outgoing},
    ids::{AttemptId, CausationId, DedupKey, Fingerprint, InvalidId, MessageId, WireId},
    time::Timestamp,
};

const POSTCARD: u8 = 0x70;
const VERSION: u8 = 1;
/// Among the headers of a stored envelope: its number in its sender's sequence.
const SEQUENCE: &str = "hapax-sequence";

/// Beside the number of an entry's answer: it has been sent. A program that does not know it finds no answer of that number, so that it
/// sends it again and keeps none for duplicates; it can go on with the entity otherwise.
const REPLY_SENT: u32 = 1 << 31;

/// All of `entity` but its state: completed, commits, timeouts, outbox.
///
/// # Errors
/// None in practice; the codec's own type is kept for the day a version has limits.
pub fn encode_outbox(entity: &Entity) -> Result<Vec<u8>, CodecError> {
    let record = OutboxV1 {
        completed: entity.completed,
        commits: entity.commits,
        timeouts: entity.timeouts.iter().map(|t| (t.message_id.wire(), t.due.as_millis())).collect(),
        entries: entity.outbox.iter().map(|entry| EntryV1::of(entry)).collect(),
    };
    write(&record, entity.size() - entity.state.len())
}

/// An entity from its state and what [`encode_outbox`] wrote.
///
/// # Errors
/// [`CodecError`] for a record of another version or damaged bytes.
pub fn decode_outbox(state: Bytes, record: &[u8]) -> Result<Entity, CodecError> {
    let OutboxV1 { completed, commits, timeouts, entries } = read(record)?;
    let timeouts = timeouts
        .into_iter()
        .map(|(id, due)| Ok(LiveTimeout { message_id: MessageId::from_wire(id)?, due: Timestamp::from_millis(due) }));
    Ok(Entity {
        state,
        completed,
        commits,
        timeouts: timeouts.collect::<Result<_, InvalidId>>().map_err(damaged)?,
        outbox: entries
            .into_iter()
            .map(|entry| entry.into_entry().map(Arc::new))
            .collect::<Result<_, InvalidId>>()
            .map_err(damaged)?,
    })
}

/// One outgoing message, for example a kept reply.
///
/// # Errors
/// None in practice, see [`encode_outbox`].
pub fn encode_outgoing(outgoing: &Outgoing) -> Result<Vec<u8>, CodecError> {
    write(&OutgoingV1::of(outgoing), outgoing.envelope.size())
}

/// What [`encode_outgoing`] wrote.
///
/// # Errors
/// [`CodecError`] for a record of another version or damaged bytes.
pub fn decode_outgoing(record: &[u8]) -> Result<Outgoing, CodecError> {
    read::<OutgoingV1<'_>>(record)?.into_outgoing().map_err(damaged)
}

/// One envelope, for example in a queue's row.
///
/// # Errors
/// None in practice, see [`encode_outbox`].
pub fn encode_envelope(envelope: &Envelope) -> Result<Vec<u8>, CodecError> {
    write(&EnvelopeV1::of(envelope), envelope.size())
}

/// What [`encode_envelope`] wrote.
///
/// # Errors
/// [`CodecError`] for a record of another version or damaged bytes.
pub fn decode_envelope(record: &[u8]) -> Result<Envelope, CodecError> {
    read::<EnvelopeV1<'_>>(record)?.into_envelope().map_err(damaged)
}

/// Whether a record that begins with `frame`, its first two bytes, can be read by this program.
///
/// # Errors
/// [`CodecError`] for a record of another version, and for what is no record.
pub fn check_frame(frame: &[u8]) -> Result<(), CodecError> {
    message_of(frame).map(drop)
}

/// `bytes` is about how many there will be.
fn write(record: &impl Serialize, bytes: usize) -> Result<Vec<u8>, CodecError> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend([POSTCARD, VERSION]);
    postcard::to_extend(record, frame).map_err(super::invalid)
}

fn read<'a, T: Deserialize<'a>>(record: &'a [u8]) -> Result<T, CodecError> {
    let (value, rest) = postcard::take_from_bytes(message_of(record)?).map_err(super::invalid)?;
    if !rest.is_empty() {
        return Err(CodecError::Invalid(format!("{} bytes are left over", rest.len())));
    }
    Ok(value)
}

/// What stands behind the frame.
fn message_of(record: &[u8]) -> Result<&[u8], CodecError> {
    match record {
        [POSTCARD, VERSION, bytes @ ..] => Ok(bytes),
        [POSTCARD, found, ..] => Err(CodecError::UnknownSchema { what: "hapax record", found: *found, known: VERSION }),
        [id, _, ..] => Err(CodecError::UnknownCodec { id: *id }),
        short => Err(CodecError::Truncated { bytes: short.len() }),
    }
}

fn damaged(error: InvalidId) -> CodecError {
    CodecError::Invalid(error.to_string())
}

#[derive(Serialize, Deserialize)]
struct OutboxV1<'a> {
    completed: bool,
    commits: u64,
    #[serde(borrow)]
    timeouts: Vec<(WireId<'a>, u64)>,
    #[serde(borrow)]
    entries: Vec<EntryV1<'a>>,
}

#[derive(Serialize, Deserialize)]
struct EntryV1<'a> {
    key: [u8; DedupKey::BYTES],
    attempt: [u8; AttemptId::BYTES],
    fingerprint: [u8; Fingerprint::BYTES],
    commit: u64,
    saved_at: u64,
    #[serde(borrow)]
    outgoing: Vec<OutgoingV1<'a>>,
    reply: Option<u32>,
}

impl<'a> EntryV1<'a> {
    fn of(entry: &'a OutboxEntry) -> Self {
        Self {
            key: *entry.key.as_bytes(),
            attempt: *entry.attempt.as_bytes(),
            fingerprint: *entry.fingerprint.as_bytes(),
            commit: entry.commit,
            saved_at: entry.saved_at.as_millis(),
            outgoing: entry.outgoing.iter().map(OutgoingV1::of).collect(),
            reply: entry.reply.map(|index| if entry.reply_sent { index | REPLY_SENT } else { index }),
        }
    }

    fn into_entry(self) -> Result<OutboxEntry, InvalidId> {
        Ok(OutboxEntry {
            key: DedupKey::from_bytes(self.key),
            attempt: AttemptId::from_bytes(self.attempt),
            fingerprint: Fingerprint::from_bytes(self.fingerprint),
            commit: self.commit,
            saved_at: Timestamp::from_millis(self.saved_at),
            outgoing: self.outgoing.into_iter().map(OutgoingV1::into_outgoing).collect::<Result<_, _>>()?,
            reply: self.reply.map(|index| index & !REPLY_SENT),
            reply_sent: self.reply.is_some_and(|index| index & REPLY_SENT != 0),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct OutgoingV1<'a> {
    #[serde(borrow)]
    destination: DestinationV1<'a>,
    #[serde(borrow)]
    envelope: EnvelopeV1<'a>,
}

impl<'a> OutgoingV1<'a> {
    fn of(outgoing: &'a Outgoing) -> Self {
        Self { destination: DestinationV1::of(&outgoing.destination), envelope: EnvelopeV1::of(&outgoing.envelope) }
    }

    fn into_outgoing(self) -> Result<Outgoing, InvalidId> {
        Ok(Outgoing {
            destination: self.destination.into_destination()?,
            envelope: Arc::new(self.envelope.into_envelope()?),
        })
    }
}

#[derive(Serialize, Deserialize)]
enum DestinationV1<'a> {
    Endpoint(&'a str),
    Topic(&'a str),
}

impl<'a> DestinationV1<'a> {
    fn of(destination: &'a Destination) -> Self {
        match destination {
            Destination::Endpoint(name) => Self::Endpoint(name.as_str()),
            Destination::Topic(name) => Self::Topic(name.as_str()),
        }
    }

    fn into_destination(self) -> Result<Destination, InvalidId> {
        Ok(match self {
            Self::Endpoint(name) => Destination::Endpoint(name.parse()?),
            Self::Topic(name) => Destination::Topic(name.parse()?),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct EnvelopeV1<'a> {
    #[serde(borrow)]
    message_id: WireId<'a>,
    idempotency_key: Option<&'a str>,
    message_type: &'a str,
    correlation_id: Option<&'a str>,
    #[serde(borrow)]
    causation_id: Option<WireId<'a>>,
    partition_key: Option<&'a str>,
    content_type: &'a str,
    schema: u8,
    #[serde(borrow)]
    headers: Vec<(&'a str, Text<'a>)>,
    body: &'a [u8],
    occurred_at: Option<u64>,
    due: Option<u64>,
    expires: Option<u64>,
    tenant: Option<&'a str>,
    traceparent: Option<&'a str>,
    #[serde(borrow)]
    reply_to: Option<DestinationV1<'a>>,
    timeout: bool,
}

/// Text that may have been made for the record.
#[derive(Serialize, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The headers, and behind them the field that came later, under a name that no header can have: a program that does not know it
/// refuses the record, as it must, since it would know the message by another identity.
fn headers_of(envelope: &Envelope) -> Vec<(&str, Text<'_>)> {
    let headers = envelope.headers.iter().map(|(name, value)| (name, Text(value.into())));
    headers.chain(envelope.sequence.map(|number| (SEQUENCE, Text(number.to_string().into())))).collect()
}

impl<'a> EnvelopeV1<'a> {
    fn of(envelope: &'a Envelope) -> Self {
        Self {
            message_id: envelope.message_id.wire(),
            idempotency_key: envelope.idempotency_key.as_ref().map(|v| v.as_str()),
            message_type: envelope.message_type.as_str(),
            correlation_id: envelope.correlation_id.as_ref().map(|v| v.as_str()),
            causation_id: envelope.causation_id.as_ref().map(|v| v.0.wire()),
            partition_key: envelope.partition_key.as_ref().map(|v| v.as_str()),
            content_type: envelope.content_type.as_str(),
            schema: envelope.schema,
            headers: headers_of(envelope),
            body: &envelope.body,
            occurred_at: envelope.occurred_at.map(Timestamp::as_millis),
            due: envelope.due.map(Timestamp::as_millis),
            expires: envelope.expires.map(Timestamp::as_millis),
            tenant: envelope.tenant.as_ref().map(|v| v.as_str()),
            traceparent: envelope.traceparent.as_ref().map(|v| v.as_str()),
            reply_to: envelope.reply_to.as_ref().map(DestinationV1::of),
            timeout: envelope.timeout,
        }
    }

    fn into_envelope(self) -> Result<Envelope, InvalidId> {
        let (mut headers, mut sequence) = (Headers::default(), None);
        for (name, Text(value)) in self.headers {
            if name == SEQUENCE {
                sequence = Some(value.parse()?);
            } else {
                headers.set(name, &value)?;
            }
        }
        Ok(Envelope {
            message_id: MessageId::from_wire(self.message_id)?,
            idempotency_key: self.idempotency_key.map(str::parse).transpose()?,
            message_type: self.message_type.parse()?,
            correlation_id: self.correlation_id.map(str::parse).transpose()?,
            causation_id: self.causation_id.map(MessageId::from_wire).transpose()?.map(CausationId),
            partition_key: self.partition_key.map(str::parse).transpose()?,
            content_type: ContentType::parse(self.content_type)?,
            schema: self.schema,
            headers,
            body: Bytes::copy_from_slice(self.body),
            occurred_at: self.occurred_at.map(Timestamp::from_millis),
            due: self.due.map(Timestamp::from_millis),
            expires: self.expires.map(Timestamp::from_millis),
            tenant: self.tenant.map(str::parse).transpose()?,
            traceparent: self.traceparent.map(str::parse).transpose()?,
            reply_to: self.reply_to.map(DestinationV1::into_destination).transpose()?,
            timeout: self.timeout,
            sequence,
        })
    }
}
