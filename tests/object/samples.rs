//! What the tests insert.

use hapax::{
    entity::DedupEntry,
    ids::{DedupKey, Fingerprint},
    time::Timestamp,
};
use hapax_tests::samples::{attempt, dedup_key};

/// An entry that nobody else uses.
pub(crate) fn entry() -> DedupEntry {
    entry_of(dedup_key())
}

/// An entry of `key`, by another attempt each time.
pub(crate) fn entry_of(key: DedupKey) -> DedupEntry {
    DedupEntry {
        key,
        attempt: attempt(),
        fingerprint: Fingerprint::from_bytes([7; Fingerprint::BYTES]),
        reply: None,
        time: Timestamp::from_millis(1_700_000_000_000),
    }
}

pub(crate) fn entries(count: usize) -> Vec<DedupEntry> {
    (0..count).map(|_| entry()).collect()
}

pub(crate) fn keys(entries: &[DedupEntry]) -> Vec<DedupKey> {
    entries.iter().map(|entry| entry.key).collect()
}
