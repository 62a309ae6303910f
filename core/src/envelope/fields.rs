//! The envelope's own fields as text: one list for all formats that carry them by name.

use std::borrow::Cow;

use super::{Destination, Envelope, ReadError};
use crate::{
    ids::{CausationId, InvalidId},
    time::Timestamp,
};

/// A field that travels as text. Content type, headers and body have places of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    MessageId,
    Type,
    IdempotencyKey,
    CorrelationId,
    CausationId,
    PartitionKey,
    Schema,
    OccurredAt,
    Due,
    Expires,
    Tenant,
    TraceParent,
    ReplyTo,
    Timeout,
    Sequence,
}

impl Field {
    /// In the order in which they are written.
    pub(super) const ALL: [Self; 15] = [
        Self::MessageId,
        Self::Type,
        Self::IdempotencyKey,
        Self::CorrelationId,
        Self::CausationId,
        Self::PartitionKey,
        Self::Schema,
        Self::OccurredAt,
        Self::Due,
        Self::Expires,
        Self::Tenant,
        Self::TraceParent,
        Self::ReplyTo,
        Self::Timeout,
        Self::Sequence,
    ];

    /// The field's text; `None` where it says nothing beyond its default.
    pub(super) fn text(self, envelope: &Envelope) -> Option<Cow<'_, str>> {
        let time = |time: Option<Timestamp>| time.map(|t| t.to_string().into());
        match self {
            Self::MessageId => Some(envelope.message_id.to_string().into()),
            Self::Type => Some(envelope.message_type.as_str().into()),
            Self::IdempotencyKey => envelope.idempotency_key.as_ref().map(|v| v.as_str().into()),
            Self::CorrelationId => envelope.correlation_id.as_ref().map(|v| v.as_str().into()),
            Self::CausationId => envelope.causation_id.as_ref().map(|v| v.to_string().into()),
            Self::PartitionKey => envelope.partition_key.as_ref().map(|v| v.as_str().into()),
            Self::Schema => (envelope.schema != 1).then(|| envelope.schema.to_string().into()),
            Self::OccurredAt => time(envelope.occurred_at),
            Self::Due => time(envelope.due),
            Self::Expires => time(envelope.expires),
            Self::Tenant => envelope.tenant.as_ref().map(|v| v.as_str().into()),
            Self::TraceParent => envelope.traceparent.as_ref().map(|v| v.as_str().into()),
            Self::ReplyTo => envelope.reply_to.as_ref().map(|v| v.to_string().into()),
            Self::Timeout => envelope.timeout.then(|| "true".into()),
            Self::Sequence => envelope.sequence.map(|number| number.to_string().into()),
        }
    }

    /// Puts what [`Field::text`] wrote in its place.
    pub(super) fn set(self, envelope: &mut Envelope, text: &str) -> Result<(), InvalidId> {
        match self {
            Self::MessageId => envelope.message_id = text.parse()?,
            Self::Type => envelope.message_type = text.parse()?,
            Self::IdempotencyKey => envelope.idempotency_key = Some(text.parse()?),
            Self::CorrelationId => envelope.correlation_id = Some(text.parse()?),
            Self::CausationId => envelope.causation_id = Some(CausationId(text.parse()?)),
            Self::PartitionKey => envelope.partition_key = Some(text.parse()?),
            Self::Schema => envelope.schema = parse_schema(text)?,
            Self::OccurredAt => envelope.occurred_at = Some(Timestamp::parse(text)?),
            Self::Due => envelope.due = Some(Timestamp::parse(text)?),
            Self::Expires => envelope.expires = Some(Timestamp::parse(text)?),
            Self::Tenant => envelope.tenant = Some(text.parse()?),
            Self::TraceParent => envelope.traceparent = Some(text.parse()?),
            Self::ReplyTo => envelope.reply_to = Some(Destination::parse(text)?),
            Self::Timeout => envelope.timeout = parse_flag(text)?,
            Self::Sequence => envelope.sequence = Some(text.parse()?),
        }
        Ok(())
    }
}

fn parse_schema(text: &str) -> Result<u8, InvalidId> {
    text.parse().map_err(|_| InvalidId::new("schema version", format!("`{}` is not 0 to 255", text.escape_debug())))
}

fn parse_flag(text: &str) -> Result<bool, InvalidId> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(InvalidId::new("timeout flag", format!("`{}` is neither true nor false", text.escape_debug()))),
    }
}

/// Fields as they were read, before an envelope can be made of them.
#[derive(Debug, Default)]
pub(super) struct Fields([Option<String>; Field::ALL.len()]);

impl Fields {
    /// Keeps `text` for `field`; `name` is what the sender called it.
    pub(super) fn put(&mut self, field: Field, name: &str, text: String) -> Result<(), ReadError> {
        put_once(&mut self.0[field as usize], name, text)
    }

    pub(super) fn take(&mut self, field: Field) -> Option<String> {
        self.0[field as usize].take()
    }

    /// Sets all that is left in `envelope`; what is malformed goes to `refused`, which may keep it or fail.
    pub(super) fn set_all(
        mut self,
        envelope: &mut Envelope,
        mut refused: impl FnMut(Field, String, InvalidId) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        for field in Field::ALL {
            if let Some(text) = self.take(field)
                && let Err(invalid) = field.set(envelope, &text)
            {
                refused(field, text, invalid)?;
            }
        }
        Ok(())
    }
}

/// Fills `slot`. Saying the same twice is harmless; of two different values nobody knows which one is meant.
pub(super) fn put_once(slot: &mut Option<String>, name: &str, text: String) -> Result<(), ReadError> {
    match slot {
        Some(there) if *there != text => Err(ReadError::Repeated { name: name.to_owned() }),
        _ => {
            *slot = Some(text);
            Ok(())
        }
    }
}
