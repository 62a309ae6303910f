//! What stands in the object of a dedup entry.
//!
//! A frame (codec id 0x6f, `o` for object; version), then key, attempt, fingerprint and time at fixed places, then the reply as
//! a record of its own, or nothing. The key is in there too, so that a copied or renamed object is not taken for an entry.

use hapax_core::{
    codec::{CodecError, FRAME_BYTES, record},
    entity::DedupEntry,
    ids::{AttemptId, DedupKey, Fingerprint},
    time::Timestamp,
};

const OBJECT: u8 = 0x6f;
const VERSION: u8 = 1;

const TIME_BYTES: usize = 8;
/// All but the reply.
const HEAD_BYTES: usize = FRAME_BYTES + DedupKey::BYTES + AttemptId::BYTES + Fingerprint::BYTES + TIME_BYTES;

pub(super) fn encode(entry: &DedupEntry) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES);
    bytes.extend([OBJECT, VERSION]);
    bytes.extend(entry.key.as_bytes());
    bytes.extend(entry.attempt.as_bytes());
    bytes.extend(entry.fingerprint.as_bytes());
    bytes.extend(entry.time.as_millis().to_be_bytes());
    if let Some(reply) = &entry.reply {
        bytes.extend(record::encode_outgoing(reply)?);
    }
    Ok(bytes)
}

/// The entry of `key`.
pub(super) fn decode(key: &DedupKey, bytes: &[u8]) -> Result<DedupEntry, CodecError> {
    let rest = match bytes {
        [OBJECT, VERSION, rest @ ..] => rest,
        [OBJECT, found, ..] => {
            return Err(CodecError::UnknownSchema { what: "dedup entry in an object", found: *found, known: VERSION });
        }
        [id, _, ..] => return Err(CodecError::UnknownCodec { id: *id }),
        short => return Err(CodecError::Truncated { bytes: short.len() }),
    };
    let short = || CodecError::Invalid(format!("{} bytes are too few for a dedup entry", bytes.len()));
    let (found, rest) = rest.split_first_chunk::<{ DedupKey::BYTES }>().ok_or_else(short)?;
    let (attempt, rest) = rest.split_first_chunk::<{ AttemptId::BYTES }>().ok_or_else(short)?;
    let (fingerprint, rest) = rest.split_first_chunk::<{ Fingerprint::BYTES }>().ok_or_else(short)?;
    let (time, reply) = rest.split_first_chunk::<TIME_BYTES>().ok_or_else(short)?;
    if found != key.as_bytes() {
        return Err(CodecError::Invalid(format!("it is the entry of {}", DedupKey::from_bytes(*found))));
    }
    Ok(DedupEntry {
        key: *key,
        attempt: AttemptId::from_bytes(*attempt),
        fingerprint: Fingerprint::from_bytes(*fingerprint),
        reply: if reply.is_empty() { None } else { Some(record::decode_outgoing(reply)?) },
        time: Timestamp::from_millis(u64::from_be_bytes(*time)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use hapax_core::{
        envelope::{Destination, Envelope, Outgoing},
        ids::MessageId,
    };

    use super::*;

    fn entry(reply: bool) -> DedupEntry {
        let envelope = Envelope::new(MessageId::parse("m-1").unwrap(), "shop.added".parse().unwrap(), "body");
        let to = Destination::Endpoint("shop".parse().unwrap());
        DedupEntry {
            key: DedupKey::from_bytes([1; DedupKey::BYTES]),
            attempt: AttemptId::from_bytes([2; AttemptId::BYTES]),
            fingerprint: Fingerprint::from_bytes([3; Fingerprint::BYTES]),
            reply: reply.then(|| Outgoing { destination: to, envelope: Arc::new(envelope) }),
            time: Timestamp::from_millis(0x0102_0304),
        }
    }

    #[test]
    fn the_bytes_of_an_object_stay_as_they_are() {
        let mut golden = vec![0x6f, 1];
        golden.extend([1; 24]);
        golden.extend([2; 16]);
        golden.extend([3; 16]);
        golden.extend([0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(encode(&entry(false)).unwrap(), golden);
        let with_reply = encode(&entry(true)).unwrap();
        assert_eq!(with_reply[..golden.len()], golden[..]);
        assert_eq!(with_reply[golden.len()..golden.len() + 2], [0x70, 1], "the reply has a frame of its own");
    }

    #[test]
    fn an_entry_comes_back_from_its_object() {
        for entry in [entry(false), entry(true)] {
            assert_eq!(decode(&entry.key, &encode(&entry).unwrap()).unwrap(), entry);
        }
    }

    #[test]
    fn what_is_not_this_entry_in_this_version_is_an_error() {
        let entry = entry(true);
        let bytes = encode(&entry).unwrap();
        for length in 0..bytes.len() {
            // An entry without its reply is one that had none: objects are written whole.
            if length != HEAD_BYTES {
                decode(&entry.key, &bytes[..length]).unwrap_err();
            }
        }
        for (place, name) in [(0, "codec"), (1, "version"), (2, "key")] {
            let mut other = bytes.clone();
            other[place] ^= 1;
            decode(&entry.key, &other).expect_err(name);
        }
    }
}
