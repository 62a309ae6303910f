//! What the outboxes of all databases share: how a message becomes a row, whose it is, what becomes of it, and what may go
//! wrong with it.

mod births;
mod commit;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod deadlocks;
mod import;
mod imported;
pub(super) mod lanes;
mod listed;
mod looked;
mod options;
mod outcomes;
mod row;
mod storing;
mod write;

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use std::fmt::Write as _;
use std::time::Duration;

#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) use births::ids;
pub(super) use births::{Births, attach, claim, detach};
pub use commit::CommitError;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) use deadlocks::Deadlocks;
pub(super) use import::Dialect;
pub use import::{Import, Source};
pub use imported::Imported;
pub(super) use imported::{Batch, Importing, Read};
pub(super) use listed::{Listed, asked};
pub(super) use looked::{Looked, cut};
pub(super) use options::{Settings, decided, settings};
#[cfg(feature = "postgres-log")]
pub(super) use outcomes::cut_reason;
pub(super) use outcomes::not_sent;
#[cfg(any(feature = "mysql", feature = "sqlite", feature = "postgres-log"))]
pub(super) use outcomes::status;
pub(super) use row::Row;
pub(super) use storing::storing;
pub(super) use write::Writes;
pub use write::{EnqueueError, FailedMessage, Routes};

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Bytes as a literal of SQL. Whatever they are, nothing of them can leave its place.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(2 * bytes.len() + 3);
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // Writing into a text cannot fail.
    }
    text.push('\'');
    text
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
