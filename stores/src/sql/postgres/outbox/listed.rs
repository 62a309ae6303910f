//! Rows as a person sees them.

use async_trait::async_trait;
use hapax_core::{
    ids::MessageId,
    ports::{ErrorKind, OutboxRow, OutboxRows, Page, RowStatus, StoreError},
};
use sqlx::{
    Row as _,
    postgres::{PgArguments, PgRow},
};

use super::{
    super::{super::outbox::time_of, arguments::Bind},
    PostgresOutbox,
    statements::listed,
    table,
};

const LISTING: &str = "listing an outbox";

#[async_trait]
impl OutboxRows for PostgresOutbox {
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError> {
        let Page { skip, limit, message_id } = page;
        let id = message_id.as_ref().map(MessageId::as_uuid);
        if id == Some(None) {
            return Ok(Vec::new()); // What is no UUID is not in the table.
        }
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut arguments = PgArguments::default();
        arguments.bind(number(*limit)).bind(number(*skip));
        if let Some(id) = id.flatten() {
            arguments.bind(id);
        }
        let text = self.0.server.text(&listed(status, id.is_some()));
        let rows = self.0.rare.lock().await.read(&text, arguments).await;
        let rows = rows.map_err(|fault| fault.store_error(LISTING, &self.0.name))?;
        rows.iter()
            .map(row_of)
            .collect::<Result<_, _>>()
            .map_err(|error| StoreError::new(ErrorKind::Malformed, LISTING, format!("{}: {error}", self.0.name)))
    }

    async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::retry(self, messages).await
    }

    async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::discard(self, messages).await
    }
}

fn row_of(row: &PgRow) -> Result<OutboxRow, sqlx::Error> {
    let status = i64::from(row.try_get::<i16, _>(14)?);
    let status = RowStatus::of_number(status).ok_or(sqlx::Error::RowNotFound)?;
    let message = table::message(row, 0)?;
    Ok(OutboxRow {
        message_id: MessageId::from(message.id),
        status,
        attempts: u32::try_from(row.try_get::<i32, _>(15)?).unwrap_or_default(),
        stored: time_of(row.try_get(16)?),
        ended: row.try_get::<Option<i64>, _>(17)?.map(time_of),
        ready: row.try_get::<Option<i64>, _>(18)?.filter(|_| status == RowStatus::Waits).map(time_of),
        last_error: row.try_get(19)?,
        archived: row.try_get(20)?,
        outgoing: message.outgoing(),
    })
}
