//! Messages that are not due yet, as rows: what all databases agree on.

use std::{sync::Arc, time::Duration};

use hapax_core::{
    codec::record,
    envelope::{Destination, Outgoing},
    ports::{Due, ErrorKind, Next, Receipt, StoreError},
};

use super::rows::millis;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::rows::millis_of;

/// Largest message, in bytes: as an entity may hold it.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Messages of one statement: what it locks and holds in memory has an end.
pub(super) const ROWS_MAX: usize = 1000;
/// No lease is longer: by that those are known that were begun while the clock was ahead.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(3600);

pub(super) const PUTTING: &str = "putting messages into the schedule";
pub(super) const CANCELLING: &str = "cancelling messages of the schedule";
pub(super) const TAKING: &str = "taking what is due in the schedule";
pub(super) const ENDING: &str = "removing what was sent from the schedule";
pub(super) const ASKING: &str = "asking for the next message of the schedule";

/// A message to be kept.
pub(super) struct Row {
    pub(super) message_id: String,
    pub(super) destination: String,
    /// In milliseconds since 1970; `None`: at once.
    pub(super) due_at: Option<i64>,
    pub(super) envelope: Vec<u8>,
}

/// All of `messages`, or none of them: where one has more than `bytes_max`.
pub(super) fn rows(messages: &[Outgoing], bytes_max: usize) -> Result<Vec<Row>, StoreError> {
    let row = |message: &Outgoing| {
        let Outgoing { destination, envelope } = message;
        let bytes = envelope.size();
        if bytes > bytes_max {
            let why = format!("it has {bytes} bytes, more than the {bytes_max} that the schedule takes");
            return Err(StoreError::new(ErrorKind::TooLarge, PUTTING, why));
        }
        let encoded = record::encode_envelope(envelope).map_err(|e| {
            StoreError::new(ErrorKind::TooLarge, PUTTING, "its envelope cannot be encoded").caused_by(e)
        })?;
        Ok(Row {
            message_id: envelope.message_id.to_string(),
            destination: destination.to_string(),
            due_at: envelope.due.map(millis),
            envelope: encoded,
        })
    };
    messages.iter().map(row).collect()
}

/// `rows` as they go into one statement each, in order: of `bytes_max` together, or one of more.
pub(super) fn statements(rows: &[Row], bytes_max: usize) -> impl Iterator<Item = &[Row]> {
    let mut left = rows;
    std::iter::from_fn(move || {
        let (mut bytes, mut count) = (0, 0);
        for row in left.iter().take(ROWS_MAX) {
            bytes += row.envelope.len();
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        let (these, rest) = left.split_at(count);
        left = rest;
        (!these.is_empty()).then_some(these)
    })
}

/// Sorted by what makes a message the same one: of several that are put at once, as by two processes, none waits for another that
/// waits for it.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn in_one_order(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable_by(|a, b| (&a.message_id, &a.destination).cmp(&(&b.message_id, &b.destination)));
    rows
}

/// In milliseconds, so many that the server can still add them to its time.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn within(within: Duration) -> i64 {
    millis_of(within).min(i64::MAX / 2)
}

/// Of a lease; never [`NOBODY`].
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn token() -> i64 {
    fastrand::i64(NOBODY + 1..)
}

/// What stands for a lease in the row of a message that was given to nobody yet.
const NOBODY: i64 = 0;

/// A row that was taken: its place in the order, and the message under its lease.
pub(super) type Taken = ((i64, i64), Due);

/// `taken`: what its lease is known by. `None`: it cannot be read.
pub(super) fn taken(id: i64, taken: i64, due_at: i64, destination: &str, envelope: &[u8]) -> Option<Taken> {
    let outgoing = Outgoing {
        destination: Destination::parse(destination).ok()?,
        envelope: Arc::new(record::decode_envelope(envelope).ok()?),
    };
    Some(((due_at, id), Due { outgoing, receipt: Receipt::text(format!("{id}:{taken}")) }))
}

/// In the order in which they are due, whatever the order in which they were returned.
pub(super) fn in_order(mut taken: Vec<Taken>) -> Vec<Due> {
    taken.sort_unstable_by_key(|(place, _)| *place);
    taken.into_iter().map(|(_, due)| due).collect()
}

/// Tells of a row that cannot be read. It stays, and is told of again when its lease has run out.
pub(super) fn log_damaged(place: &str, id: i64) {
    tracing::error!(
        place,
        id,
        "a message of the schedule cannot be read by this version of hapax, and is not sent: restore its row of the \
         schedule from a backup"
    );
}

/// Row and lease of each receipt; one that is none of ours stands for nothing.
pub(super) fn places(receipts: &[Receipt]) -> Vec<(i64, i64)> {
    let place = |receipt: &Receipt| {
        let (id, taken) = receipt.as_text()?.split_once(':')?;
        let place: (i64, i64) = (id.parse().ok()?, taken.parse().ok()?);
        (place.1 != NOBODY).then_some(place)
    };
    receipts.iter().filter_map(place).collect()
}

pub(super) fn next(due_at: i64, now: i64) -> Next {
    let apart = Duration::from_millis(due_at.abs_diff(now));
    if due_at > now { Next::In(apart) } else { Next::Overdue(apart) }
}
