//! Between the port's types and columns.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use bytes::Bytes;
use hapax_core::{
    codec::record,
    entity::{DedupEntry, Entity, Version},
    ids::{AttemptId, DedupKey, Fingerprint},
    ports::{Known, PendingEntry, StoreError, Stored},
    time::Timestamp,
};
use serde::Serialize;
use sqlx::{Row, sqlite::SqliteRow};

use super::{super::rows::millis, error::malformed};

/// What one write does to an entity; what waits is JSON.
pub(super) type EntityRow = super::super::rows::EntityRow<String>;

/// The outbox's entries for the sweeper and for the check: `{attempt: [dedup key, saved at]}`.
pub(super) fn pending(entity: &Entity, now: i64) -> Option<String> {
    use std::fmt::Write;
    const ENTRY_BYTES: usize = 2 * (AttemptId::BYTES + DedupKey::BYTES) + 24;
    if entity.outbox.is_empty() {
        return None;
    }
    let mut json = String::with_capacity(entity.outbox.len() * ENTRY_BYTES + 1);
    for entry in &entity.outbox {
        json.push(if json.is_empty() { '{' } else { ',' });
        // Hex digits need no escape.
        let _ = write!(json, r#""{}":["{}",{now}]"#, entry.attempt, entry.key);
    }
    json.push('}');
    Some(json)
}

/// The entries of a `pending` column that were saved at `before` or earlier.
pub(super) fn pending_entries(json: &str, now: i64, before: i64) -> Option<Vec<PendingEntry>> {
    let entries: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    let mut old = Vec::new();
    for (attempt, entry) in entries {
        let saved_at = entry.get(1)?.as_i64()?;
        if saved_at <= before {
            let attempt = AttemptId::from_hex(&attempt)?;
            let age = Duration::from_millis(u64::try_from(now.saturating_sub(saved_at)).unwrap_or_default());
            old.push(PendingEntry { attempt, age });
        }
    }
    Some(old)
}

/// Rows of an array statement: JSON for what `json_each` reads, and beside it what needs no escaping.
#[derive(Debug)]
pub(super) struct Array {
    json: Vec<u8>,
    pub(super) blob: Vec<u8>,
    pub(super) len: usize,
}

impl Array {
    pub(super) fn with_room(rows: usize, row_bytes: usize, blob_bytes: usize) -> Self {
        let mut json = Vec::with_capacity(rows * row_bytes + 2);
        json.push(b'[');
        Self { json, blob: Vec::with_capacity(blob_bytes), len: 0 }
    }

    pub(super) fn push(&mut self, row: &impl Serialize) {
        if self.len > 0 {
            self.json.push(b',');
        }
        self.len += 1;
        serde_json::to_writer(&mut self.json, row).expect("numbers and text into memory, nothing can fail");
    }

    /// The JSON and the blob; null when there is no row.
    pub(super) fn close(mut self) -> (Option<String>, Vec<u8>) {
        if self.len == 0 {
            return (None, self.blob);
        }
        self.json.push(b']');
        (Some(String::from_utf8(self.json).expect("serde_json writes UTF-8")), self.blob)
    }
}

/// SQLite runs on this host, so its clock is this one. Asked for by the writer, since a test clock at a port is not the
/// store's own.
pub(super) fn now() -> i64 {
    millis(Timestamp::now())
}

/// `age` before `now`; an age longer than all time is before any time.
pub(super) fn before(now: i64, age: Duration) -> i64 {
    i64::try_from(age.as_millis()).map_or(i64::MIN, |age| now.saturating_sub(age))
}

/// The dedup entries found for anybody in a group of loads.
#[derive(Debug, Default)]
pub(super) struct Found(HashMap<DedupKey, (i64, DedupEntry)>);

const LOADING: &str = "loading an entity";

impl Found {
    /// Takes a row of [`LOAD_ONE`](super::statements::LOAD_ONE) or of its sibling: keeps a dedup entry, hands out an
    /// entity with the number of its request. An entity that cannot be read is the error of its request alone.
    #[allow(clippy::type_complexity, reason = "a name for it would have to be looked up, for one place")]
    pub(super) fn add(
        &mut self,
        row: &SqliteRow,
        file: &str,
    ) -> Result<Option<(usize, Result<Stored, StoreError>)>, StoreError> {
        let column = |e: sqlx::Error| malformed(LOADING, file, "a row").caused_by(e);
        let request: Option<i64> = row.try_get(0).map_err(column)?;
        if let Some(request) = request {
            let request = usize::try_from(request).map_err(|_| malformed(LOADING, file, "a row"))?;
            return Ok(Some((request, stored(row, file))));
        }
        let generation: i64 = row.try_get(1).map_err(column)?;
        let entry = dedup_entry(row, file)?;
        match self.0.entry(entry.key) {
            Entry::Occupied(known) if known.get().0 <= generation => {}
            Entry::Occupied(mut known) => drop(known.insert((generation, entry))),
            Entry::Vacant(place) => {
                place.insert((generation, entry));
            }
        }
        Ok(None)
    }

    /// What is known of `ids` and of the entries of `stored`. An id in two generations counts with its older entry: the
    /// later insert changed nothing.
    pub(super) fn known(&self, ids: &[DedupKey], stored: Option<&Stored>) -> Known {
        if self.0.is_empty() {
            return Known::default();
        }
        let entries = stored.into_iter().flat_map(|stored| &stored.entity.outbox).map(|entry| &entry.key);
        let entry = |key: &DedupKey| self.0.get(key).map(|(_, entry)| entry.clone());
        Known::new(ids.iter().chain(entries).filter_map(entry).collect())
    }
}

fn stored(row: &SqliteRow, file: &str) -> Result<Stored, StoreError> {
    let column = |e: sqlx::Error| malformed(LOADING, file, "an entity's row").caused_by(e);
    let version = row.try_get(2).map_err(column)?;
    let outbox: &[u8] = row.try_get(3).map_err(column)?;
    let state: &[u8] = row.try_get(4).map_err(column)?;
    let entity = record::decode_outbox(Bytes::copy_from_slice(state), outbox)
        .map_err(|e| malformed(LOADING, file, "an entity's outbox").caused_by(e))?;
    Ok(Stored { version: Version::number(version), entity })
}

fn dedup_entry(row: &SqliteRow, file: &str) -> Result<DedupEntry, StoreError> {
    let damaged = || malformed(LOADING, file, "a dedup entry");
    let column = |e: sqlx::Error| damaged().caused_by(e);
    let time: i64 = row.try_get(2).map_err(column)?;
    let key: &[u8] = row.try_get(3).map_err(column)?;
    let attempt: &[u8] = row.try_get(4).map_err(column)?;
    let fingerprint: &[u8] = row.try_get(5).map_err(column)?;
    let reply: Option<&[u8]> = row.try_get(6).map_err(column)?;
    Ok(DedupEntry {
        key: DedupKey::from_bytes(key.try_into().map_err(|_| damaged())?),
        attempt: AttemptId::from_bytes(attempt.try_into().map_err(|_| damaged())?),
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| damaged())?),
        reply: reply.map(record::decode_outgoing).transpose().map_err(|e| damaged().caused_by(e))?,
        time: Timestamp::from_millis(u64::try_from(time).map_err(|_| damaged())?),
    })
}
