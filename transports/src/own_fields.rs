//! How large the headers of a message may be that has none of its application's.

use hapax_core::envelope::Envelope;

/// Bytes that the envelope's own fields take as headers, names and escapes included, and what brokers count for each: some 15 fields, ids of
/// at most 255 bytes that may take three times as many.
pub(crate) const OWN_FIELDS_BYTES_MAX: usize = 16 << 10;

/// Whether `envelope` has nothing but its own fields, so that its headers need not be written down to be measured.
pub(crate) fn has_own_fields_only(envelope: &Envelope) -> bool {
    envelope.headers.iter().next().is_none()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hapax_core::{
        envelope::{ContentType, Destination, plain},
        ids::{
            CausationId, CorrelationId, EndpointName, ID_BYTES_MAX, IdempotencyKey, MessageId, NAME_BYTES_MAX,
            PartitionKey, TenantId, TypeName,
        },
        time::Timestamp,
    };

    use super::*;

    /// Beyond what any broker counts for a header beside name and value.
    const EACH: usize = 16;

    #[test]
    fn the_largest_fields_have_room() {
        let (id, name) = ("%".repeat(ID_BYTES_MAX), "n".repeat(NAME_BYTES_MAX));
        let message_id = MessageId::parse(&id).unwrap();
        let kind = TypeName::parse(&*name).unwrap();
        let mut envelope = Envelope::new(message_id.clone(), kind, &b""[..]);
        assert!(has_own_fields_only(&envelope));
        envelope.causation_id = Some(CausationId(message_id));
        envelope.correlation_id = Some(CorrelationId::parse(&*id).unwrap());
        envelope.partition_key = Some(PartitionKey::parse(&*id).unwrap());
        envelope.idempotency_key = Some(IdempotencyKey::parse(&*id).unwrap());
        envelope.tenant = Some(TenantId::parse(&*id).unwrap());
        envelope.content_type = ContentType::parse(&format!("a/{}", "b".repeat(98))).unwrap();
        envelope.reply_to = Some(Destination::Endpoint(EndpointName::parse(&*name).unwrap()));
        for time in [&mut envelope.due, &mut envelope.expires, &mut envelope.occurred_at] {
            *time = Some(Timestamp::MAX);
        }
        let headers = plain::to_headers(&envelope);
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len() + EACH).sum();
        assert!(bytes < OWN_FIELDS_BYTES_MAX / 2, "{bytes}: what is not set here has its room");
        envelope.headers.set("a", "b").unwrap();
        assert!(!has_own_fields_only(&envelope));
    }
}
