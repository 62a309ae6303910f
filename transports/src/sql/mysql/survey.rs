//! What a person is shown of it.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Queue, QueueSurvey, QueuedMessage, TransportError},
};
use sqlx::mysql::{MySqlArguments, MySqlRow};

use super::{
    super::{
        errors::transport_error,
        survey::{self, LOOKING, as_limit},
    },
    MySqlQueue,
    arguments::Bind,
    statements::{queue, queued},
};

impl MySqlQueue {
    async fn surveyed(&self, sql: &str, arguments: MySqlArguments) -> Result<Vec<MySqlRow>, TransportError> {
        let rows = self.read(LOOKING, &self.0.server.text(sql), arguments).await;
        rows.map_err(|e| transport_error(LOOKING, e))
    }

    fn unreadable(&self) -> TransportError {
        transport_error(LOOKING, self.0.hub.damaged(LOOKING, "a message"))
    }
}

#[async_trait]
impl QueueSurvey for MySqlQueue {
    async fn queue(&self, endpoint: &EndpointName, limit: u64) -> Result<Queue, TransportError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(as_limit(limit));
        survey::queue(&self.surveyed(&queue(), arguments).await?, limit, || self.unreadable())
    }

    async fn queued(
        &self,
        endpoint: &EndpointName,
        id: &MessageId,
        limit: u64,
    ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
        let mut arguments = MySqlArguments::default();
        arguments.bind(endpoint.as_str().as_bytes()).bind(as_limit(limit)).bind(id.to_string().into_bytes());
        let rows = self.surveyed(&queued(), arguments).await?;
        survey::each(&rows, |row| Some(survey::served(survey::numbers(row)?)), || self.unreadable())
    }
}
