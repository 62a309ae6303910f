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
            outbox::{Listed, as_i64, asked},
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
        let Some(id) = asked(page) else { return Ok(Vec::new()) };
        let mut arguments = MySqlArguments::default();
        if let Some(id) = &id {
            arguments.bind(&id.as_bytes()[..]).bind(&id.as_bytes()[..]);
        }
        arguments.bind(as_i64(page.limit)).bind(as_i64(page.skip));
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
    let message = table::message(row, 0)?;
    let last_error = match row.bytes(19)? {
        Some(_) => Some(rows::text(row, 19)?.to_owned()),
        None => None,
    };
    let listed = Listed {
        id: message.id,
        status: row.number(14)?,
        attempts: row.number(15)?,
        stored: row.number(16)?,
        ended: row.try_get(17)?,
        ready: row.try_get(18)?,
        last_error,
        archived: row.number(20)? != 0,
        outgoing: message.outgoing(),
    };
    listed.row()
}
