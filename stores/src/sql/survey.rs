//! What a person is shown of a store, as far as all databases agree: what rows that a look has read stand for.

use std::time::Duration;

use hapax_core::{
    envelope::Destination,
    ids::Scope,
    ports::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, StoreError},
    time::Timestamp,
};
use sqlx::{ColumnIndex, Decode, Row, Type};

pub(super) const LOOKING: &str = "looking at a store";

pub(super) fn as_limit(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The numbers of the one row that counting answers. Where there is no such row, that is damage, and no zero.
pub(super) fn numbers<const N: usize, R>(rows: &[R]) -> Result<[Option<u64>; N], sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let mut numbers = [None; N];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = row.try_get::<Option<i64>, _>(at)?.and_then(|number| u64::try_from(number).ok());
    }
    Ok(numbers)
}

/// Each row as what it stands for; one that stands for nothing is damage.
pub(super) fn each<R, T>(
    rows: &[R],
    read: impl Fn(&R) -> Option<T>,
    damaged: impl Fn() -> StoreError,
) -> Result<Answer<Vec<T>>, StoreError> {
    Ok(Answer::Is(rows.iter().map(|row| read(row).ok_or_else(&damaged)).collect::<Result<_, _>>()?))
}

pub(super) fn scope(endpoint: &str, saga: &str) -> Option<Scope> {
    Some(Scope { endpoint: endpoint.parse().ok()?, saga: saga.parse().ok()? })
}

pub(super) fn count([number]: [Option<u64>; 1], limit: u64) -> Count {
    // A database may count to the limit in each of several generations.
    Count::up_to(number.unwrap_or_default().min(limit), limit)
}

/// How many, since when at least, and the retention in milliseconds.
pub(super) fn dedup_entries([number, none_before, retention]: [Option<u64>; 3], limit: u64) -> DedupEntries {
    let count = count([number], limit);
    DedupEntries {
        count,
        none_before: none_before.filter(|_| count.number > 0).map(Timestamp::from_millis),
        retention: retention.map(Duration::from_millis),
    }
}

/// How many, and how many of them are overdue.
pub(super) fn scheduled([messages, overdue]: [Option<u64>; 2], limit: u64) -> Scheduled {
    Scheduled { messages: count([messages], limit), overdue: count([overdue], limit) }
}

pub(super) fn scheduled_message(destination: &str, due: i64) -> Option<ScheduledMessage> {
    let destination = Destination::parse(destination).ok()?;
    Some(ScheduledMessage { destination, due: Timestamp::from_millis(u64::try_from(due).ok()?) })
}
