//! What a person is shown of queues, as far as all databases agree: what rows that a look has read stand for.

use hapax_core::{
    ports::{Answer, Count, Queue, QueuedMessage, TransportError},
    time::Timestamp,
};
use sqlx::{ColumnIndex, Decode, Row, Type};

pub(super) const LOOKING: &str = "looking at a queue";

pub(super) fn as_limit(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The first numbers of a row; none where it does not have them.
pub(super) fn numbers<const N: usize, R>(row: &R) -> Option<[i64; N]>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    let mut numbers = [0; N];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = row.try_get(at).ok()?;
    }
    Some(numbers)
}

/// How many, and how many of them are under a lease, where both have been counted up to `limit`. A row that does not say so is damage, and no
/// zero.
pub(super) fn queue<R>(rows: &[R], limit: u64, damaged: impl Fn() -> TransportError) -> Result<Queue, TransportError>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    let [messages, leased] = rows.first().and_then(numbers).ok_or_else(damaged)?;
    let count = |number: i64| Count::up_to(u64::try_from(number).unwrap_or_default(), limit);
    Ok(Queue { messages: count(messages), leased: Answer::Is(count(leased)) })
}

/// Each row as a message; one that is none is damage.
pub(super) fn each<R>(
    rows: &[R],
    read: impl Fn(&R) -> Option<QueuedMessage>,
    damaged: impl Fn() -> TransportError,
) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
    Ok(Answer::Is(rows.iter().map(|row| read(row).ok_or_else(&damaged)).collect::<Result<_, _>>()?))
}

/// A message; times are milliseconds.
pub(super) fn message(deliveries: i64, leased: bool, available: i64, sent: i64) -> QueuedMessage {
    let time = |millis: i64| Timestamp::from_millis(u64::try_from(millis).unwrap_or_default());
    let attempts = u32::try_from(deliveries).unwrap_or_default();
    QueuedMessage { attempts, leased, available: time(available), sent: time(sent) }
}

/// Of a server's row: deliveries, due, leased until, sent, and the server's time.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn served([deliveries, due, leased_until, sent, now]: [i64; 5]) -> QueuedMessage {
    message(deliveries, leased_until > now, due.max(leased_until), sent)
}
