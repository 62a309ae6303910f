//! What is rare, or not urgent.

use std::time::Duration;

use hapax_core::{
    ids::MessageId,
    ports::{Care, Cared, OutboxState, Page, StoreError},
    time::Timestamp,
};
use sqlx::{
    AssertSqlSafe, Row as _,
    sqlite::{SqliteArguments, SqliteRow},
};
use uuid::Uuid;

use super::{
    super::{
        super::outbox::{FailedMessage, as_i64},
        arguments::Bind,
        error::Failure,
        rows::{before, now},
    },
    Shared, statements, table, write,
};

pub(super) async fn remove(shared: &Shared, care: &Care) -> Result<Cared, StoreError> {
    let Care { keep, archive, rows } = *care;
    let now = now();
    // Counted from when it was sent.
    let age = archive.map_or(Duration::ZERO, |archive| archive.saturating_add(keep));
    let script = statements::remove(before(now, keep), before(now, age), rows, archive.is_some());
    let counts = counts(shared, "removing what was sent", script).await?;
    Ok(Cared { ended: counts[0], archived: counts[1] })
}

/// The numbers that the statements of `script` tell, by what they are of.
pub(super) async fn counts(
    shared: &Shared,
    operation: &'static str,
    script: statements::Script,
) -> Result<[usize; 2], StoreError> {
    let (text, statements) = script.end();
    let ran = write(&shared.rare, text, statements).await;
    let mut counts = [0, 0];
    for row in ran.map_err(|failure| failure.store_error(operation, &shared.name))?.rows {
        let (of, count): (i64, i64) = (row.try_get(0).unwrap_or_default(), row.try_get(1).unwrap_or_default());
        counts[usize::from(of == 1)] = usize::try_from(count).unwrap_or_default();
    }
    Ok(counts)
}

pub(super) async fn state(shared: &Shared) -> Result<OutboxState, StoreError> {
    const OPERATION: &str = "looking at an outbox";
    let mut arguments = SqliteArguments::default();
    arguments.bind(now());
    let read = shared.rare.lock().await.read(AssertSqlSafe(statements::STATE), arguments).await;
    let told = |row: &SqliteRow| -> Result<OutboxState, sqlx::Error> {
        let number =
            |at: usize| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(at)?.and_then(|n| u64::try_from(n).ok()));
        let count = |at: usize| number(at).map(Option::unwrap_or_default);
        let mut state = OutboxState::new(count(0)?, count(1)?, count(4)?, count(5)?);
        state.oldest = number(2)?.map(Duration::from_millis);
        state.lag = number(3)?.map(Duration::from_millis);
        Ok(state)
    };
    let read = read.and_then(|rows| rows.first().ok_or(sqlx::Error::RowNotFound).and_then(told).map_err(Failure::from));
    read.map_err(|failure| failure.store_error(OPERATION, &shared.name))
}

pub(super) async fn failed(shared: &Shared, page: &Page) -> Result<Vec<FailedMessage>, StoreError> {
    let Page { skip, limit, message_id } = page;
    let id = message_id.as_ref().map(MessageId::as_uuid);
    if id == Some(None) {
        return Ok(Vec::new()); // What is no UUID is not in the table.
    }
    let id = id.flatten();
    let mut arguments = SqliteArguments::default();
    arguments.bind(id.as_ref().map(|id| &id.as_bytes()[..])).bind(as_i64(*limit)).bind(as_i64(*skip));
    let read = shared.rare.lock().await.read(AssertSqlSafe(statements::failed()), arguments).await;
    let told = |row: &SqliteRow| -> Result<FailedMessage, sqlx::Error> {
        let ended_at: Option<i64> = row.try_get(15)?;
        Ok(FailedMessage {
            message_id: MessageId::from(table::id(row, 0)?),
            outgoing: table::message(row, 0).map_err(|error| error.to_string()).and_then(|message| message.outgoing()),
            attempts: u32::try_from(row.try_get::<i64, _>(14)?).unwrap_or_default(),
            failed_at: Timestamp::from_millis(ended_at.and_then(|at| u64::try_from(at).ok()).unwrap_or_default()),
            reason: row.try_get::<Option<String>, _>(16)?.unwrap_or_default(),
        })
    };
    let read = read.and_then(|rows| rows.iter().map(told).collect::<Result<_, _>>().map_err(Failure::from));
    read.map_err(|failure| failure.store_error("listing messages that have failed", &shared.name))
}

/// Changes those of `messages` that have failed.
pub(super) async fn change(
    shared: &Shared,
    operation: &'static str,
    set: &str,
    messages: &[MessageId],
) -> Result<u64, StoreError> {
    let ids: Vec<Uuid> = messages.iter().filter_map(MessageId::as_uuid).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(counts(shared, operation, statements::change(&ids, set)).await?[0] as u64)
}
