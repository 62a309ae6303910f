//! Between the port's types and columns.

use hapax_core::{entity::Entity, ids::DedupKey};
use sqlx::mysql::MySqlRow;

use super::super::columns::STORED_BYTES;
pub(super) use super::super::columns::{Columns, EntityRow, Found, GIVEN_BYTES, pending, pending_entries, stored};

/// The entries that are given, with the times since when they wait: new ones as of now, those that waited before as they were.
pub(super) fn waiting(given: &[u8], before: &[u8], now: i64) -> Vec<u8> {
    let mut list = Vec::with_capacity(given.len() / GIVEN_BYTES * STORED_BYTES);
    for entry in given.chunks_exact(GIVEN_BYTES) {
        let known = before.chunks_exact(STORED_BYTES).find(|known| &known[..GIVEN_BYTES] == entry);
        list.extend_from_slice(entry);
        match known {
            Some(known) => list.extend_from_slice(&known[GIVEN_BYTES..]),
            None => list.extend_from_slice(&now.to_be_bytes()),
        }
    }
    list
}

/// The dedup keys of the entries that wait.
pub(super) fn keys(entity: &Entity) -> impl Iterator<Item = DedupKey> {
    entity.outbox.iter().map(|entry| entry.key)
}

/// A column of bytes that are text.
pub(super) fn text(row: &MySqlRow, at: usize) -> Result<&str, sqlx::Error> {
    let bytes = row.bytes(at)?.unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|e| sqlx::Error::Decode(Box::new(e)))
}
