//! What a person is shown of it.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, TransportError},
    time::Timestamp,
};
use hapax_stores::sql::sqlite::ride;
use sqlx::{
    Row,
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{
    super::errors::transport_error,
    SqliteQueue,
    arguments::Bind,
    statements::{QUEUE, QUEUED},
};

const LOOKING: &str = "looking at a queue";

fn limit_of(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl QueueSurvey for SqliteQueue {
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(limit_of(limit)).bind(ride::now());
        let rows = self.0.file.read_text(LOOKING, QUEUE, arguments).await.map_err(|e| transport_error(LOOKING, e))?;
        let number = |at: usize| rows.first().and_then(|row| row.try_get::<i64, _>(at).ok());
        let count = |at: usize| Count::up_to(number(at).and_then(|n| u64::try_from(n).ok()).unwrap_or_default(), limit);
        Ok(Queue { messages: count(0), leased: Answer::Is(count(1)) })
    }

    async fn queued(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        limit: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        let mut arguments = SqliteArguments::default();
        arguments.bind(endpoint.as_str()).bind(limit_of(limit)).bind(id.to_string());
        let rows = self.0.file.read_text(LOOKING, QUEUED, arguments).await.map_err(|e| transport_error(LOOKING, e))?;
        let now = ride::now();
        let queued = |row: &SqliteRow| {
            let (given, available): (i64, i64) = (row.try_get(1).ok()?, row.try_get(2).ok()?);
            let time = |millis: i64| Timestamp::from_millis(u64::try_from(millis).unwrap_or_default());
            Some(QueuedMessage {
                attempts: u32::try_from(row.try_get::<i64, _>(0).ok()?).unwrap_or_default(),
                leased: given == 1 && available > now,
                available: time(available),
                sent: time(row.try_get(3).ok()?),
            })
        };
        let damaged = || transport_error(LOOKING, self.damaged(LOOKING, "a message"));
        Ok(Answer::Is(rows.iter().map(|row| queued(row).ok_or_else(damaged)).collect::<Result<_, _>>()?))
    }
}
