//! What a person is shown of queues whose broker counts them and tells no more.

use async_trait::async_trait;
use hapax_core::{
    ids::{EndpointName, MessageId},
    ports::{Answer, Count, Queue, QueueSurvey, QueuedMessage, TransportError},
};

const NO_MESSAGES: &str = "this broker shows no single messages of a queue";

macro_rules! counted {
    ($transport:ty, $leases:literal) => {
        #[async_trait]
        impl QueueSurvey for $transport {
            async fn queue(&self, endpoint: &EndpointName, _: u64) -> Result<Queue, TransportError> {
                let messages = Count::exactly(self.backlog(endpoint).await?);
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

#[cfg(feature = "rabbitmq")]
counted!(crate::RabbitMq, "RabbitMQ counts what is unacknowledged in its management interface alone");
#[cfg(feature = "nats")]
counted!(crate::Nats, "see `num_ack_pending` of the consumer: `nats consumer info`");
#[cfg(feature = "redis")]
counted!(crate::RedisStreams, "see the group's pending entries: `XPENDING`");
#[cfg(feature = "kafka")]
counted!(crate::Kafka, "Kafka has no leases: a partition is one member's");
#[cfg(feature = "sqs")]
counted!(crate::Sqs, "SQS counts messages in flight about right, in the queue's attributes");
