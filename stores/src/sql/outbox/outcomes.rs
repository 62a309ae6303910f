//! What becomes of a row, as it is stored.

use std::collections::HashMap;

use hapax_core::ports::{Ended, Outcome};
use uuid::Uuid;

/// As in the column `status`.
pub(in crate::sql) mod status {
    pub(in crate::sql) const WAITS: i16 = 0;
    pub(in crate::sql) const FAILED: i16 = 2;
    pub(in crate::sql) const EXPIRED: i16 = 3;
}

/// What is stored of a reason, in bytes: thousands of them are told in one call.
const REASON_BYTES_MAX: usize = 4096;

/// Of a row that was not sent.
#[derive(Debug)]
pub(in crate::sql) struct NotSent {
    pub(in crate::sql) id: Uuid,
    pub(in crate::sql) token: i64,
    pub(in crate::sql) status: i16,
    /// Until it may be claimed again, in milliseconds.
    pub(in crate::sql) delay: i64,
    /// Attempts that do not count.
    pub(in crate::sql) uncounted: i32,
    pub(in crate::sql) error: Option<String>,
}

/// Those of `ended` that were not sent, each row once, in the order of their ids: so relays do not lock each other out.
pub(in crate::sql) fn not_sent(ended: &[&Ended]) -> Vec<NotSent> {
    let by_id: HashMap<Uuid, &&Ended> =
        ended.iter().filter_map(|ended| Some((ended.claim.id.as_uuid()?, ended))).collect();
    let mut rows: Vec<NotSent> = by_id.into_iter().map(|(id, ended)| row(id, ended)).collect();
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

/// As much of a reason as is stored.
pub(in crate::sql) fn cut_reason(reason: &str) -> String {
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    reason[..end].replace('\0', "\u{fffd}")
}

fn row(id: Uuid, ended: &Ended) -> NotSent {
    let (status, delay, uncounted, error) = match &ended.outcome {
        Outcome::Later(after, reason) => (status::WAITS, super::millis(*after), 0, Some(cut_reason(reason))),
        Outcome::GivenBack => (status::WAITS, 0, 1, None),
        Outcome::Failed(reason) => (status::FAILED, 0, 0, Some(cut_reason(reason))),
        Outcome::Expired | Outcome::Sent => (status::EXPIRED, 0, 0, None),
    };
    NotSent { id, token: ended.claim.token, status, delay, uncounted, error }
}
