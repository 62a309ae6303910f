//! What is rare, or not urgent.

use std::sync::Arc;

use hapax_core::{
    ids::MessageId,
    ports::{Care, Cared, ErrorKind, OutboxState, Page, StoreError},
    time::Timestamp,
};
use sqlx::{
    Row as _,
    postgres::{PgArguments, PgRow},
};
use std::time::Duration;
use uuid::Uuid;

use super::{
    super::{super::outbox::FailedMessage, arguments::Bind},
    Shared, millis, table,
};

pub(super) async fn remove(shared: &Shared, care: &Care) -> Result<Cared, StoreError> {
    const OPERATION: &str = "removing what was sent";
    if let Some(timed) = &shared.timed {
        let mut wire = shared.rare.lock().await;
        let removed = timed.remove(&shared.server, &mut wire, care).await;
        return removed.map_err(|fault| fault.store_error(OPERATION, &shared.name));
    }
    let Care { keep, archive, rows } = *care;
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let mut arguments = PgArguments::default();
    arguments.bind(millis(keep)).bind(rows).bind(archive.is_some());
    let ended = counted(shared, OPERATION, &shared.texts.remove, arguments).await?;
    let mut arguments = PgArguments::default();
    // Counted from when it was sent.
    let age = archive.map_or(Duration::ZERO, |archive| archive.saturating_add(keep));
    arguments.bind(millis(age)).bind(rows);
    let archived = counted(shared, OPERATION, &shared.texts.remove_archived, arguments).await?;
    Ok(Cared { ended, archived })
}

pub(super) async fn state(shared: &Shared) -> Result<OutboxState, StoreError> {
    const OPERATION: &str = "looking at an outbox";
    let rows = run(shared, OPERATION, &shared.texts.state, PgArguments::default()).await?;
    let row = rows.first().ok_or_else(|| malformed(shared, OPERATION, "an answer without rows"))?;
    let number = |at: usize| row.try_get::<Option<i64>, _>(at).ok().flatten().and_then(|n| u64::try_from(n).ok());
    let count = |at: usize| number(at).unwrap_or_default();
    let mut state = OutboxState::new(count(0), count(1), count(4), count(5));
    state.oldest = number(2).map(Duration::from_millis);
    state.lag = number(3).map(Duration::from_millis);
    Ok(state)
}

pub(super) async fn failed(shared: &Shared, page: &Page) -> Result<Vec<FailedMessage>, StoreError> {
    const OPERATION: &str = "listing messages that have failed";
    let Page { skip, limit, message_id } = page;
    let id = message_id.as_ref().map(|id| id.as_uuid());
    if id == Some(None) {
        return Ok(Vec::new()); // What is no UUID is not in the table.
    }
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let mut arguments = PgArguments::default();
    arguments.bind(id.flatten()).bind(number(*limit)).bind(number(*skip));
    let rows = run(shared, OPERATION, &shared.texts.failed, arguments).await?;
    let read = |row: &PgRow| -> Result<FailedMessage, sqlx::Error> {
        let ended_at: Option<i64> = row.try_get(15)?;
        let message = table::message(row, 0)?;
        Ok(FailedMessage {
            message_id: MessageId::from(message.id),
            outgoing: message.outgoing(),
            attempts: u32::try_from(row.try_get::<i32, _>(14)?).unwrap_or_default(),
            failed_at: Timestamp::from_millis(ended_at.and_then(|at| u64::try_from(at).ok()).unwrap_or_default()),
            reason: row.try_get::<Option<String>, _>(16)?.unwrap_or_default(),
        })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| malformed(shared, OPERATION, &error.to_string()))
}

/// Changes those of `messages` that have failed.
pub(super) async fn change(
    shared: &Shared,
    operation: &'static str,
    text: &Arc<str>,
    messages: &[MessageId],
) -> Result<u64, StoreError> {
    let ids: Vec<Uuid> = messages.iter().filter_map(MessageId::as_uuid).collect();
    let mut arguments = PgArguments::default();
    arguments.bind(ids);
    Ok(run(shared, operation, text, arguments).await?.len() as u64)
}

pub(super) async fn counted(
    shared: &Shared,
    operation: &'static str,
    text: &Arc<str>,
    arguments: PgArguments,
) -> Result<usize, StoreError> {
    let rows = run(shared, operation, text, arguments).await?;
    let count =
        rows.first().and_then(|row| row.try_get::<i64, _>(0).ok()).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| malformed(shared, operation, "an answer without a number"))
}

async fn run(
    shared: &Shared,
    operation: &'static str,
    text: &Arc<str>,
    arguments: PgArguments,
) -> Result<Vec<PgRow>, StoreError> {
    let mut wire = shared.rare.lock().await;
    wire.write(text, arguments).await.map_err(|fault| fault.store_error(operation, &shared.name))
}

fn malformed(shared: &Shared, operation: &'static str, why: &str) -> StoreError {
    StoreError::new(ErrorKind::Malformed, operation, format!("{}: {why}", shared.name))
}
