//! A door for the tests of decoders: objects.

use hapax_core::{codec::FRAME_BYTES, ids::DedupKey};

use super::record;

/// Objects as a bucket may hold them, whoever has written them.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let Some(key) = data.get(FRAME_BYTES..).and_then(|rest| rest.first_chunk::<{ DedupKey::BYTES }>()) else { return };
    if let Ok(entry) = record::decode(&DedupKey::from_bytes(*key), data) {
        let again = record::encode(&entry).and_then(|bytes| record::decode(&entry.key, &bytes));
        assert_eq!(again.ok(), Some(entry));
    }
    drop(record::decode(&DedupKey::from_bytes([0; DedupKey::BYTES]), data));
}
