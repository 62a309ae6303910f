//! What is rare, or not urgent.

use std::time::Duration;

use hapax_core::{
    ids::MessageId,
    ports::{Care, Cared, OutboxState, Page, StoreError},
    time::Timestamp,
};
use sqlx::{
    Row as _,
    mysql::{MySqlArguments, MySqlRow},
};
use uuid::Uuid;

use super::{
    super::{
        super::{
            columns::Columns as _,
            outbox::{FailedMessage, as_i64, millis},
            races::Races,
        },
        arguments::{Bind, Text},
        rows,
        wire::{Answer, Fault},
    },
    Shared, table, tick,
};

/// As in the column `status`.
const OVER: [i16; 2] = [1, 3];

pub(super) async fn remove(shared: &Shared, care: &Care) -> Result<Cared, StoreError> {
    const OPERATION: &str = "removing what was sent";
    let Care { keep, archive, rows } = *care;
    let rows = rows.min(table::ROWS_MAX);
    let mut ended = 0;
    for status in OVER {
        let room = rows.saturating_sub(ended);
        if room > 0 {
            let text = || tick::remove(&shared.server, status, millis(keep), room, archive.is_some());
            let removed = run(shared, OPERATION, text).await?;
            ended += removed.last().map_or(0, |answer| usize::try_from(answer.affected).unwrap_or(usize::MAX));
        }
    }
    let mut arguments = MySqlArguments::default();
    // Counted from when it was sent.
    let age = archive.map_or(Duration::ZERO, |archive| archive.saturating_add(keep));
    arguments.bind(millis(age)).bind(as_i64(rows));
    let archived = shared.rare.lock().await.write(&shared.texts.remove_archived, arguments).await;
    let archived = archived.map_err(|fault| fault.store_error(OPERATION, &shared.name))?.affected;
    Ok(Cared { ended, archived: usize::try_from(archived).unwrap_or(usize::MAX) })
}

pub(super) async fn state(shared: &Shared) -> Result<OutboxState, StoreError> {
    const OPERATION: &str = "looking at an outbox";
    let read = shared.rare.lock().await.read(&shared.texts.state, MySqlArguments::default()).await;
    let read = read.map_err(|fault| fault.store_error(OPERATION, &shared.name))?;
    let told = |row: &MySqlRow| -> Result<OutboxState, sqlx::Error> {
        let number =
            |at: usize| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(at)?.and_then(|n| u64::try_from(n).ok()));
        let count = |at: usize| number(at).map(Option::unwrap_or_default);
        let mut state = OutboxState::new(count(0)?, count(1)?, count(4)?, count(5)?);
        state.oldest = number(2)?.map(Duration::from_millis);
        state.lag = number(3)?.map(Duration::from_millis);
        Ok(state)
    };
    let row = read.first().ok_or(sqlx::Error::RowNotFound).and_then(told);
    row.map_err(|error| Fault::of_row(error).store_error(OPERATION, &shared.name))
}

pub(super) async fn failed(shared: &Shared, page: &Page) -> Result<Vec<FailedMessage>, StoreError> {
    const OPERATION: &str = "listing messages that have failed";
    let Page { skip, limit, message_id } = page;
    let id = message_id.as_ref().map(MessageId::as_uuid);
    if id == Some(None) {
        return Ok(Vec::new()); // What is no UUID is not in the table.
    }
    let id = id.flatten();
    let id = id.as_ref().map(|id| &id.as_bytes()[..]);
    let mut arguments = MySqlArguments::default();
    arguments.bind(id).bind(id).bind(as_i64(*limit)).bind(as_i64(*skip));
    let read = shared.rare.lock().await.read(&shared.texts.failed, arguments).await;
    let told = |row: &MySqlRow| -> Result<FailedMessage, sqlx::Error> {
        let ended_at: Option<i64> = row.try_get(15)?;
        let id = Uuid::from_slice(row.bytes(0)?.unwrap_or_default()).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
        Ok(FailedMessage {
            message_id: MessageId::from(id),
            outgoing: table::message(row, 0).map_err(|error| error.to_string()).and_then(|message| message.outgoing()),
            attempts: u32::try_from(row.number(14)?).unwrap_or_default(),
            failed_at: Timestamp::from_millis(ended_at.and_then(|at| u64::try_from(at).ok()).unwrap_or_default()),
            reason: rows::text(row, 16)?.to_owned(),
        })
    };
    let read = read.and_then(|rows| rows.iter().map(told).collect::<Result<_, _>>().map_err(Fault::of_row));
    read.map_err(|fault| fault.store_error(OPERATION, &shared.name))
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
    let changed = run(shared, operation, || tick::change(&shared.server, &ids, set)).await?;
    Ok(changed.last().map_or(0, |answer| answer.affected))
}

/// A transaction of its own, which is repeated after it was lost to another one.
async fn run(shared: &Shared, operation: &'static str, text: impl Fn() -> Text) -> Result<Vec<Answer>, StoreError> {
    let mut wire = shared.rare.lock().await;
    let mut races = Races::default();
    loop {
        match wire.transaction(text()).await {
            Err(fault) if fault.is_of_a_race() && races.allow(fault.is_of_a_wait()) => {}
            done => return done.map_err(|fault| fault.store_error(operation, &shared.name)),
        }
    }
}
