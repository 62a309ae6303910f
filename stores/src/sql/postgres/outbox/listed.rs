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
    super::{
        super::outbox::{Listed, as_i64, asked},
        arguments::Bind,
    },
    PostgresOutbox,
    statements::listed,
    table,
};

const LISTING: &str = "listing an outbox";

#[async_trait]
impl OutboxRows for PostgresOutbox {
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError> {
        let Some(id) = asked(page) else { return Ok(Vec::new()) };
        let mut arguments = PgArguments::default();
        arguments.bind(as_i64(page.limit)).bind(as_i64(page.skip));
        if let Some(id) = id {
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
    let message = table::message(row, 0)?;
    let listed = Listed {
        id: message.id,
        status: row.try_get::<i16, _>(14)?.into(),
        attempts: row.try_get::<i32, _>(15)?.into(),
        stored: row.try_get(16)?,
        ended: row.try_get(17)?,
        ready: row.try_get(18)?,
        last_error: row.try_get(19)?,
        archived: row.try_get(20)?,
        outgoing: message.outgoing(),
    };
    listed.row()
}
