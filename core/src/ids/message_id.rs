//! What a message is known by for ever. The ids of what a message causes are computed from it, so that another attempt sends the same ones.

use std::{fmt, sync::Arc};

use uuid::Uuid;

use super::{
    CorrelationId, EndpointName, Fingerprint, ID_BYTES_MAX, IdempotencyKey, InvalidId, check_text,
    hashed::{DedupKey, Preimage},
};
use crate::time::Timestamp;

/// Identity of one message for ever, given by its sender and kept through every copy and redelivery. Never the
/// broker's own delivery id (S62).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(IdText);

/// Most ids are UUIDs; those need no allocation. Only the canonical lower-case form is taken for one, so that text
/// and value stay one to one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum IdText {
    Uuid(Uuid),
    Text(Arc<str>),
}

impl MessageId {
    /// A new random id, ordered by time (UUIDv7), for a message that is sent for the first time.
    #[must_use]
    pub fn random() -> Self {
        Self(IdText::Uuid(Uuid::now_v7()))
    }

    /// Takes any text of 1 to [`ID_BYTES_MAX`] bytes without control characters.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        check_text("message id", text, ID_BYTES_MAX)?;
        if let Ok(uuid) = Uuid::try_parse(text)
            && uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text
        {
            return Ok(Self(IdText::Uuid(uuid)));
        }
        Ok(Self(IdText::Text(text.into())))
    }

    /// The id of the `index`-th outgoing message of the message with `dedup`: the same on every attempt and for every
    /// copy, so that the receiver drops repeats (S60, S61). Its first 48 bits are `time`, so that ids stay nearly in
    /// order; without a time that all copies share, they are hashed like the rest. A UUIDv8 (RFC 9562, section 5.8).
    pub(crate) fn derived(dedup: &DedupKey, index: usize, time: Option<Timestamp>) -> Self {
        let mut preimage = Preimage::new(b"hapax outgoing\0");
        preimage.push(dedup.as_bytes());
        preimage.push(&(index as u64).to_be_bytes());
        let hash = preimage.hash();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        if let Some(time) = time {
            bytes[..6].copy_from_slice(&time.as_millis().to_be_bytes()[2..]);
        }
        Self(IdText::Uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid()))
    }

    /// The id of a request to `to` under `key`: the same for whoever asks it again, and another for another body, so that an answer
    /// to one is never taken for the answer to the other. A UUIDv8.
    pub(crate) fn of_request(to: &EndpointName, key: &IdempotencyKey, says: &Fingerprint) -> Self {
        let mut preimage = Preimage::new(b"hapax request\0");
        preimage.prefixed(to.as_str());
        preimage.prefixed(key.as_str());
        preimage.push(says.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&preimage.hash()[..16]);
        Self(IdText::Uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid()))
    }

    /// The UUID that it is, if it is one in its canonical form.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<Uuid> {
        match &self.0 {
            IdText::Uuid(uuid) => Some(*uuid),
            IdText::Text(_) => None,
        }
    }

    /// The id for a stored record: sixteen bytes for a UUID, else text.
    pub(crate) fn wire(&self) -> WireId<'_> {
        match &self.0 {
            IdText::Uuid(uuid) => WireId::Uuid(*uuid.as_bytes()),
            IdText::Text(text) => WireId::Text(text),
        }
    }

    pub(crate) fn from_wire(wire: WireId<'_>) -> Result<Self, InvalidId> {
        match wire {
            WireId::Uuid(bytes) => Ok(Uuid::from_bytes(bytes).into()),
            WireId::Text(text) => Self::parse(text),
        }
    }

    /// Time-ordered ids keep their order in the dedup store: the first six bytes of a UUIDv7 or UUIDv8.
    pub(super) fn time_prefix(&self) -> Option<[u8; 6]> {
        match &self.0 {
            IdText::Uuid(uuid) if matches!(uuid.get_version_num(), 7 | 8) => uuid.as_bytes()[..6].try_into().ok(),
            _ => None,
        }
    }

    pub(super) fn add_to(&self, preimage: &mut Preimage) {
        match &self.0 {
            IdText::Uuid(uuid) => preimage.prefixed(uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            IdText::Text(text) => preimage.prefixed(text),
        }
    }
}

/// A message id as stored records hold it.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) enum WireId<'a> {
    Uuid([u8; 16]),
    Text(&'a str),
}

impl From<Uuid> for MessageId {
    fn from(uuid: Uuid) -> Self {
        Self(IdText::Uuid(uuid))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IdText::Uuid(uuid) => uuid.as_hyphenated().fmt(f),
            IdText::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As text, so that a saga can keep the id of a timeout in its state.
impl serde::Serialize for MessageId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for MessageId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str> as serde::Deserialize>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for MessageId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

/// Message id of the message whose handling sent this one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CausationId(pub MessageId);

impl fmt::Display for CausationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&MessageId> for CorrelationId {
    fn from(id: &MessageId) -> Self {
        Self(match &id.0 {
            IdText::Uuid(uuid) => (&*uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())).into(),
            IdText::Text(text) => text.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored and in flight for as long as messages are: a change of these values doubles effects during an upgrade.
    #[test]
    fn derived_ids_keep_their_bytes() {
        let dedup = DedupKey::from_bytes([7; DedupKey::BYTES]);
        let timed =
            |index| MessageId::derived(&dedup, index, Some(Timestamp::from_millis(0x0123_4567_89ab))).to_string();
        assert_eq!(timed(0), "01234567-89ab-869c-9583-170169612366");
        assert_eq!(timed(1), "01234567-89ab-8969-bb40-067c0785d8ae");
        assert_eq!(MessageId::derived(&dedup, 0, None).to_string(), "2de9724f-05de-869c-9583-170169612366");
    }

    /// Whoever asks again after an upgrade must be known by the answer that is kept.
    #[test]
    fn the_id_of_a_request_keeps_its_bytes_and_differs_with_each_part() {
        let says = Fingerprint::from_bytes([7; Fingerprint::BYTES]);
        let of = |to, key, says| {
            let (to, key) = (EndpointName::parse(to).expect("a name"), IdempotencyKey::parse(key).expect("a key"));
            MessageId::of_request(&to, &key, &says).to_string()
        };
        assert_eq!(of("shop", "order-1", says), "00534d28-afcc-8f18-9066-c85854ad37e4");
        let other = Fingerprint::from_bytes([8; Fingerprint::BYTES]);
        let ids = [
            of("shop", "order-1", says),
            of("shop", "order-2", says),
            of("sho", "porder-1", says),
            of("bank", "order-1", says),
            of("shop", "order-1", other),
        ];
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{index}: {ids:?}");
        }
    }
}
