//! Shows which messages of a queue are gone.

use async_trait::async_trait;
use hapax_core::ports::{Mark, Marks, TransportError};
use hapax_stores::sql::sqlite::ride;
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::{
        errors::transport_error,
        marks::{ASKING, MARKING, mark, number},
    },
    arguments::Bind,
    receiver::EndpointQueue,
    statements,
};

/// A message keeps its number for as long as it is in the queue: while it is leased, when it is put off or retried. SQLite gives the
/// highest number plus one, and so that of a message which is gone once more; a row that is no message, of a queue that does not
/// exist, keeps numbers up to the last mark from being given again.
#[async_trait]
impl Marks for EndpointQueue {
    async fn end(&self) -> Result<Mark, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(ride::now());
        let statements = statements::MARK_STATEMENTS;
        let marked = self.queue.0.file.write_text(MARKING, statements::MARK, statements, arguments).await;
        let (rows, _) = marked.map_err(|e| transport_error(MARKING, e))?;
        Ok(mark(self.only(MARKING, &rows)?))
    }

    async fn passed(&self, mark: &Mark) -> Result<bool, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(self.signal.queue).bind(number(mark)?);
        let rows = self.queue.0.file.read_text(ASKING, statements::IS_LEFT, arguments).await;
        let rows = rows.map_err(|e| transport_error(ASKING, e))?;
        Ok(self.only(ASKING, &rows)? == 0)
    }
}

impl EndpointQueue {
    fn only(&self, operation: &'static str, rows: &[SqliteRow]) -> Result<i64, TransportError> {
        let number = rows.first().and_then(|row| row.try_get(0).ok());
        number.ok_or_else(|| transport_error(operation, self.queue.damaged(operation, "a number")))
    }
}
