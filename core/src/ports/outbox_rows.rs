//! An outbox table for a person: rows are looked at whatever has become of them, and decided about only where the relay has given up.

use async_trait::async_trait;
use serde::Serialize;

use super::{OutboxTable, Page, StoreError};
use crate::{envelope::Outgoing, ids::MessageId, time::Timestamp};

/// The rows of an outbox table, as a person sees them: listed, and decided about where the relay has given up.
///
/// # Promises
/// 1. *Listed:* `rows` shows each row of the table with this status, by pages: those that wait in the order in which they may be claimed,
///    others in that in which they have ended, all together in that of their ids or numbers. With a message id it shows that row alone, in the
///    archive too.
/// 2. *Only the failed:* `retry` and `discard` change rows that have failed and no others.
#[async_trait]
pub trait OutboxRows: OutboxTable {
    /// Rows of `status`; of all where it is `None`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError>;

    /// Failed messages begin with their first attempt again. How many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError>;

    /// Failed messages are given up: they count as expired. How many there were.
    ///
    /// # Errors
    /// [`StoreError`]; harmless when repeated.
    async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError>;
}

/// What has become of a row. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowStatus {
    /// It waits: for a relay, for its time, or for the next attempt.
    Waits,
    /// The transport has confirmed it.
    Sent,
    /// It was tried too often, or cannot be sent: a person decides.
    Failed,
    /// It was no longer worth sending, or was given up.
    Expired,
}

impl RowStatus {
    /// By the number that stands in the table; `None` for any other.
    #[must_use]
    pub const fn of_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::Waits,
            1 => Self::Sent,
            2 => Self::Failed,
            3 => Self::Expired,
            _ => return None,
        })
    }

    /// The number that stands in the table.
    #[must_use]
    pub const fn number(self) -> i64 {
        match self {
            Self::Waits => 0,
            Self::Sent => 1,
            Self::Failed => 2,
            Self::Expired => 3,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}

/// A row of an outbox table.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// Its message's.
    pub message_id: MessageId,
    /// What has become of it.
    pub status: RowStatus,
    /// It is in the archive.
    pub archived: bool,
    /// How often a relay has claimed it, but for what it gave back.
    pub attempts: u32,
    /// When its transaction has stored it, by the table's clock.
    pub stored: Timestamp,
    /// When its status became another one.
    pub ended: Option<Timestamp>,
    /// While it waits: not claimed before.
    pub ready: Option<Timestamp>,
    /// Why the last attempt has failed.
    pub last_error: Option<String>,
    /// The message, or why it cannot be read.
    pub outgoing: Result<Outgoing, String>,
}
