//! Rows as a person sees them.

use async_trait::async_trait;
use hapax_core::{
    ids::MessageId,
    ports::{OutboxRow, OutboxRows, Page, RowStatus, StoreError},
};
use sqlx::{
    Row as _,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::{
        super::{
            columns::Columns as _,
            outbox::{as_i64, time_of},
        },
        arguments::Bind,
        rows,
        wire::Fault,
    },
    MySqlOutbox,
    statements::listed,
    table,
};

#[async_trait]
impl OutboxRows for MySqlOutbox {
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError> {
        let Page { skip, limit, message_id } = page;
        let id = message_id.as_ref().map(MessageId::as_uuid);
        if id == Some(None) {
            return Ok(Vec::new()); // What is no UUID is not in the table.
        }
        let id = id.flatten();
        let mut arguments = MySqlArguments::default();
        if let Some(id) = &id {
            arguments.bind(&id.as_bytes()[..]).bind(&id.as_bytes()[..]);
        }
        arguments.bind(as_i64(*limit)).bind(as_i64(*skip));
        let text = self.0.server.text(&listed(status, id.is_some()));
        let read = self.0.rare.lock().await.read(&text, arguments).await;
        let read = read.and_then(|rows| rows.iter().map(row_of).collect::<Result<_, _>>().map_err(Fault::of_row));
        read.map_err(|fault| fault.store_error("listing an outbox", &self.0.name))
    }

    async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::retry(self, messages).await
    }

    async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::discard(self, messages).await
    }
}

fn row_of(row: &MySqlRow) -> Result<OutboxRow, sqlx::Error> {
    let status = RowStatus::of_number(row.number(14)?).ok_or(sqlx::Error::RowNotFound)?;
    let message = table::message(row, 0)?;
    let last_error = match row.bytes(19)? {
        Some(_) => Some(rows::text(row, 19)?.to_owned()),
        None => None,
    };
    Ok(OutboxRow {
        message_id: MessageId::from(message.id),
        status,
        attempts: u32::try_from(row.number(15)?).unwrap_or_default(),
        stored: time_of(row.number(16)?),
        ended: row.try_get::<Option<i64>, _>(17)?.map(time_of),
        ready: row.try_get::<Option<i64>, _>(18)?.filter(|_| status == RowStatus::Waits).map(time_of),
        last_error,
        archived: row.number(20)? != 0,
        outgoing: message.outgoing(),
    })
}
