//! Rows as a person sees them.

use async_trait::async_trait;
use hapax_core::{
    ids::MessageId,
    ports::{OutboxRow, OutboxRows, Page, RowStatus, StoreError},
};
use sqlx::{
    AssertSqlSafe, Row as _,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{
        super::outbox::{Listed, as_i64, asked},
        arguments::Bind,
        error::Failure,
    },
    SqliteOutbox,
    statements::listed,
    table,
};

#[async_trait]
impl OutboxRows for SqliteOutbox {
    async fn rows(&self, status: Option<RowStatus>, page: &Page) -> Result<Vec<OutboxRow>, StoreError> {
        let Some(id) = asked(page) else { return Ok(Vec::new()) };
        let mut arguments = SqliteArguments::default();
        arguments.bind(as_i64(page.limit)).bind(as_i64(page.skip)).bind(id.as_ref().map(|id| &id.as_bytes()[..]));
        let text = listed(status, id.is_some());
        let read = self.0.rare.lock().await.read(AssertSqlSafe(text), arguments).await;
        let read = read.and_then(|rows| rows.iter().map(row_of).collect::<Result<_, _>>().map_err(Failure::from));
        read.map_err(|failure| failure.store_error("listing an outbox", &self.0.name))
    }

    async fn retry(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::retry(self, messages).await
    }

    async fn discard(&self, messages: &[MessageId]) -> Result<u64, StoreError> {
        Self::discard(self, messages).await
    }
}

fn row_of(row: &SqliteRow) -> Result<OutboxRow, sqlx::Error> {
    let listed = Listed {
        id: table::id(row, 0)?,
        status: row.try_get(14)?,
        attempts: row.try_get(15)?,
        stored: row.try_get(16)?,
        ended: row.try_get(17)?,
        ready: row.try_get(18)?,
        last_error: row.try_get(19)?,
        archived: row.try_get::<i64, _>(20)? != 0,
        outgoing: table::message(row, 0).map_err(|error| error.to_string()).and_then(|message| message.outgoing()),
    };
    listed.row()
}
