//! What a person is shown of it.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Queue, QueueSurvey, QueuedMessage, TransportError},
};
use hapax_stores::sql::sqlite::ride;
use sqlx::sqlite::{SqliteArguments, SqliteRow};

use super::{
    super::{
        errors::transport_error,
        survey::{self, LOOKING, as_limit},
    },
    SqliteQueue,
    arguments::Bind,
    statements::{QUEUE, QUEUED},
};

impl SqliteQueue {
    async fn surveyed(&self, sql: &'static str, arguments: SqliteArguments) -> Result<Vec<SqliteRow>, TransportError> {
        self.0.file.read_text(LOOKING, sql, arguments).await.map_err(|e| transport_error(LOOKING, e))
    }

    fn unreadable(&self) -> TransportError {
        transport_error(LOOKING, self.damaged(LOOKING, "a message"))
    }
}

#[async_trait]
impl QueueSurvey for SqliteQueue {
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_limit(limit)).bind(ride::now());
        survey::queue(&self.surveyed(QUEUE, arguments).await?, limit, || self.unreadable())
    }

    async fn queued(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        limit: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(as_limit(limit)).bind(id.to_string());
        let rows = self.surveyed(QUEUED, arguments).await?;
        let now = ride::now();
        let queued = |row: &SqliteRow| {
            let [deliveries, place, available, sent] = survey::numbers(row)?;
            Some(survey::message(deliveries, place == 1 && available > now, available, sent))
        };
        survey::each(&rows, queued, || self.unreadable())
    }
}
