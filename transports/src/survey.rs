//! What a person is shown of queues whose broker counts them and tells no more.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, TransportError},
};

const NO_MESSAGES: &str = "this broker shows no single messages of a queue";

macro_rules! counted {
    ($transport:ty, $count:expr, $leases:literal) => {
        #[async_trait]
        impl QueueSurvey for $transport {
            async fn queue(&self, endpoint: &EndpointName, _: u64) -> Result<Queue, TransportError> {
                let messages = ($count)(self, endpoint).await?;
                Ok(Queue { messages, leased: Answer::unknown($leases) })
            }

            async fn queued(
                &self,
                _: &EndpointName,
                _: &MessageId,
                _: u64,
            ) -> Result<Answer<Vec<QueuedMessage>>, TransportError> {
                Ok(Answer::unknown(NO_MESSAGES))
            }
        }
    };
}

/// All that is counted in one question.
#[cfg(any(feature = "redis", feature = "kafka", feature = "sqs"))]
macro_rules! exactly {
    () => {
        async |queues: &Self, endpoint| queues.backlog(endpoint).await.map(Count::exactly)
    };
}

#[cfg(feature = "rabbitmq")]
counted!(
    crate::RabbitMq,
    // Without what a process has, and what is not due.
    async |queues: &Self, endpoint| queues.backlog(endpoint).await.map(|number| Count { number, at_least: true }),
    "RabbitMQ counts what is unacknowledged in its management interface alone"
);
#[cfg(feature = "nats")]
counted!(
    crate::Nats,
    // At two moments: what is given between them counts twice, and is not missed.
    async |queues: &Self, endpoint| {
        Ok::<_, TransportError>(Count::exactly(queues.backlog(endpoint).await? + queues.unsettled(endpoint).await?))
    },
    "see `num_ack_pending` of the consumer: `nats consumer info`"
);
#[cfg(feature = "redis")]
counted!(crate::RedisStreams, exactly!(), "see the group's pending entries: `XPENDING`");
#[cfg(feature = "kafka")]
counted!(crate::Kafka, exactly!(), "Kafka has no leases: a partition is one member's");
#[cfg(feature = "sqs")]
counted!(crate::Sqs, exactly!(), "SQS counts messages in flight about right, in the queue's attributes");
