//! Between the port's types and columns, as far as servers agree: which outbox entries wait, and what a load shows.

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
use sqlx::{ColumnIndex, Decode, Row, Type};

use super::{clean_ups::Over, rows::malformed};

/// What one write does to an entity; what waits is 40 bytes of each entry.
pub(super) type EntityRow = super::rows::EntityRow<Vec<u8>>;

/// Key and attempt of an entry that waits, as they are given.
pub(super) const GIVEN_BYTES: usize = DedupKey::BYTES + AttemptId::BYTES;
/// And with its time, as they are stored.
pub(super) const STORED_BYTES: usize = GIVEN_BYTES + 8;

/// The outbox's entries for the sweeper and for the check. The server adds when it has seen each of them first.
pub(super) fn pending(entity: &Entity) -> Option<Vec<u8>> {
    if entity.outbox.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(entity.outbox.len() * GIVEN_BYTES);
    for entry in &entity.outbox {
        bytes.extend_from_slice(entry.key.as_bytes());
        bytes.extend_from_slice(entry.attempt.as_bytes());
    }
    Some(bytes)
}

/// The entries of a `pending` column that have waited for `age` or longer.
pub(super) fn pending_entries(stored: &[u8], now: i64, age: i64) -> Option<Vec<PendingEntry>> {
    if !stored.len().is_multiple_of(STORED_BYTES) {
        return None;
    }
    let mut old = Vec::new();
    for entry in stored.chunks_exact(STORED_BYTES) {
        let (attempt, saved_at) = entry[DedupKey::BYTES..].split_at(AttemptId::BYTES);
        let waited = now.saturating_sub(i64::from_be_bytes(saved_at.try_into().ok()?));
        if waited >= age {
            let age = Duration::from_millis(u64::try_from(waited).unwrap_or_default());
            old.push(PendingEntry { attempt: AttemptId::from_bytes(attempt.try_into().ok()?), age });
        }
    }
    Some(old)
}

/// A row of a server whose numbers and bytes are these types.
pub(super) trait Columns {
    fn number(&self, at: usize) -> Result<i64, sqlx::Error>;
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error>;
}

impl<R> Columns for R
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
    for<'r> &'r [u8]: Decode<'r, R::Database> + Type<R::Database>,
{
    fn number(&self, at: usize) -> Result<i64, sqlx::Error> {
        self.try_get(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        self.try_get(at)
    }
}

fn some(bytes: Option<&[u8]>) -> Result<&[u8], sqlx::Error> {
    bytes.ok_or_else(|| sqlx::Error::Decode(Box::new(sqlx::error::UnexpectedNullError)))
}

/// The dedup entries found for anybody in a group of loads.
#[derive(Debug, Default)]
pub(super) struct Found(HashMap<DedupKey, (i64, DedupEntry)>);

const LOADING: &str = "loading an entity";

impl Found {
    /// Takes the row of a dedup entry of `generation`.
    pub(super) fn add(&mut self, generation: i64, row: &impl Columns, place: &str) -> Result<(), StoreError> {
        let entry = dedup_entry(row, place)?;
        match self.0.entry(entry.key) {
            Entry::Occupied(known) if known.get().0 <= generation => {}
            Entry::Occupied(mut known) => drop(known.insert((generation, entry))),
            Entry::Vacant(place) => {
                place.insert((generation, entry));
            }
        }
        Ok(())
    }

    /// Takes what else was found.
    pub(super) fn take(&mut self, other: Self) {
        for (key, entry) in other.0 {
            self.0.entry(key).or_insert(entry);
        }
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

/// `over`: how the entity is shown if it still has the version at which its outbox was done with; its own may be missing then.
pub(super) fn stored(row: &impl Columns, over: Option<&Over>, place: &str) -> Result<Stored, StoreError> {
    let column = |e: sqlx::Error| malformed(LOADING, place, "an entity's row").caused_by(e);
    let version = row.number(1).map_err(column)?;
    let outbox = match over.filter(|over| over.version == version) {
        Some(over) => &over.outbox[..],
        None => row.bytes(2).and_then(some).map_err(column)?,
    };
    let state = row.bytes(3).and_then(some).map_err(column)?;
    let entity = record::decode_outbox(Bytes::copy_from_slice(state), outbox)
        .map_err(|e| malformed(LOADING, place, "an entity's outbox").caused_by(e))?;
    Ok(Stored { version: Version::number(version), entity })
}

fn dedup_entry(row: &impl Columns, place: &str) -> Result<DedupEntry, StoreError> {
    let damaged = || malformed(LOADING, place, "a dedup entry");
    let column = |e: sqlx::Error| damaged().caused_by(e);
    let key = row.bytes(2).and_then(some).map_err(column)?;
    let attempt = row.bytes(3).and_then(some).map_err(column)?;
    let fingerprint = row.bytes(4).and_then(some).map_err(column)?;
    let time = row.number(5).map_err(column)?;
    let reply = row.bytes(6).map_err(column)?;
    Ok(DedupEntry {
        key: DedupKey::from_bytes(key.try_into().map_err(|_| damaged())?),
        attempt: AttemptId::from_bytes(attempt.try_into().map_err(|_| damaged())?),
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| damaged())?),
        reply: reply.map(record::decode_outgoing).transpose().map_err(|e| damaged().caused_by(e))?,
        time: Timestamp::from_millis(u64::try_from(time).map_err(|_| damaged())?),
    })
}
