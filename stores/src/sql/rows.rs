//! Between the port's types and columns, as far as all databases agree.

use std::time::Duration;

use bytes::Bytes;
use hapax_core::{
    codec::{CodecError, record},
    entity::{DedupEntry, Entity},
    ids::{AttemptId, DedupKey, Fingerprint, SagaKey},
    ports::{ErrorKind, StoreError},
    time::Timestamp,
};

/// How many entries of a generation are counted when it goes: that is told, and nothing depends on it, so that a large one is not
/// gone through for it. It takes a fraction of a second.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const COUNTED_MAX: u32 = 1_000_000;

/// What one write does to an entity. `P` is how a database is told which outbox entries wait.
#[derive(Debug, Clone)]
pub(super) struct EntityRow<P> {
    pub(super) scope: i64,
    pub(super) key: SagaKey,
    /// `None`: it must not be there.
    pub(super) expected: Option<i64>,
    pub(super) completed: bool,
    /// `None`: the outbox is empty.
    pub(super) pending: Option<P>,
    pub(super) outbox: Vec<u8>,
    pub(super) state: Bytes,
}

impl<P: AsRef<[u8]>> EntityRow<P> {
    pub(super) fn new(
        scope: i64,
        key: &SagaKey,
        expected: Option<i64>,
        entity: &Entity,
        pending: Option<P>,
    ) -> Result<Self, StoreError> {
        let outbox = record::encode_outbox(entity).map_err(unencodable)?;
        let (completed, state) = (entity.completed, entity.state.clone());
        Ok(Self { scope, key: key.clone(), expected, completed, pending, outbox, state })
    }

    /// What it adds to a group, in bytes.
    pub(super) fn size(&self) -> usize {
        self.outbox.len() + self.state.len() + self.pending.as_ref().map_or(0, |pending| pending.as_ref().len())
    }
}

/// A dedup entry and its reply, encoded.
#[derive(Debug, Clone)]
pub(super) struct DedupRow {
    pub(super) key: DedupKey,
    pub(super) attempt: AttemptId,
    pub(super) fingerprint: Fingerprint,
    pub(super) time: i64,
    pub(super) reply: Option<Vec<u8>>,
}

impl DedupRow {
    pub(super) fn of(entry: &DedupEntry) -> Result<Self, StoreError> {
        let reply = entry.reply.as_ref().map(record::encode_outgoing).transpose().map_err(unencodable)?;
        let DedupEntry { key, attempt, fingerprint, time, .. } = *entry;
        Ok(Self { key, attempt, fingerprint, time: millis(time), reply })
    }

    pub(super) fn all(entries: &[DedupEntry]) -> Result<Vec<Self>, StoreError> {
        entries.iter().map(Self::of).collect()
    }

    /// What it adds to a group, in bytes.
    pub(super) fn size(&self) -> usize {
        DedupKey::BYTES + AttemptId::BYTES + Fingerprint::BYTES + self.reply.as_ref().map_or(0, Vec::len)
    }
}

fn unencodable(error: CodecError) -> StoreError {
    StoreError::new(ErrorKind::TooLarge, "encoding a record", "it cannot be encoded").caused_by(error)
}

pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).expect("the end of the year 9999 is far below 2^63")
}

/// `duration` in whole milliseconds, and one more for what is left.
pub(super) fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A stored value that this program cannot read.
pub(super) fn malformed(operation: &'static str, place: &str, what: &str) -> StoreError {
    StoreError::new(ErrorKind::Malformed, operation, format!("{place}: {what} cannot be read by this version of hapax"))
}
