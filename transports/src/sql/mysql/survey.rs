//! What a person is shown of it.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, StoreError, TransportError},
    time::Timestamp,
};
use sqlx::{
    Row,
    mysql::{MySqlArguments, MySqlRow},
};

use super::{
    super::errors::transport_error,
    MySqlQueue,
    arguments::Bind,
    statements::{queue, queued},
};

const LOOKING: &str = "looking at a queue";

impl MySqlQueue {
    async fn surveyed(&self, sql: &str, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, TransportError> {
        let rows = self.read(LOOKING, &self.0.server.text(sql), arguments).await;
        rows.map_err(|e| transport_error(LOOKING, e))
    }

    fn unreadable(&self) -> StoreError {
        self.0.hub.damaged(LOOKING, "a message")
    }
}

fn limit_of(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[async_trait]
impl QueueSurvey for MySqlQueue {
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(limit_of(limit));
        let rows = self.surveyed(&queue(), arguments).await?;
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
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(limit_of(limit)).bind(id.to_string().into_bytes());
        let rows = self.surveyed(&queued(), arguments).await?;
        let time = |millis: i64| Timestamp::from_millis(u64::try_from(millis).unwrap_or_default());
        let queued = |row: &MySqlRow| {
            let (due, leased_until): (i64, i64) = (row.try_get(1).ok()?, row.try_get(2).ok()?);
            Some(QueuedMessage {
                attempts: u32::try_from(row.try_get::<i64, _>(0).ok()?).unwrap_or_default(),
                leased: leased_until > row.try_get(4).ok()?,
                available: time(due.max(leased_until)),
                sent: time(row.try_get(3).ok()?),
            })
        };
        let damaged = || transport_error(LOOKING, self.unreadable());
        Ok(Answer::Is(rows.iter().map(|row| queued(row).ok_or_else(damaged)).collect::<Result<_, _>>()?))
    }
}
