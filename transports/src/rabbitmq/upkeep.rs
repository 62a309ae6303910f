//! What people and programs ask of queues, beside sending and receiving.

use hapax_core::{ids::EndpointName, ports::TransportError};
use lapin::{
    Channel,
    options::{ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use tokio::time::timeout;

use super::{
    RabbitMq,
    errors::{error_of, late},
    names::DELAY_LEVELS,
    topology::short,
};

impl RabbitMq {
    /// How many messages wait for `endpoint` that no process has: those under way and those that are not due are not counted.
    ///
    /// # Errors
    /// [`TransportError`]; also when the endpoint has never connected.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        let name = self.0.names.queue(endpoint);
        self.within("counting messages", async |channel: &Channel| waiting_in(channel, &name).await).await
    }

    /// How many messages wait until they are due, for whichever endpoint of this [prefix](super::RabbitMqOptions::prefix):
    /// timeouts, what was sent with a delay, and what is to be tried again later. One that is just being passed on from one
    /// of the queues of the delays to the next may be missed.
    ///
    /// # Errors
    /// [`TransportError`]; also when no endpoint has ever connected.
    pub async fn delayed(&self) -> Result<u64, TransportError> {
        self.within("counting what is not due", async |channel: &Channel| {
            let mut sum = 0;
            for level in 0..DELAY_LEVELS {
                sum += waiting_in(channel, &self.0.names.delay(level)).await?;
            }
            Ok(sum)
        })
        .await
    }

    /// Removes all that was declared under this prefix, with every message in it: what waits for `endpoints` and their dead
    /// letters, delays and topics. For programs that had a [prefix](super::RabbitMqOptions::prefix) to themselves, once all of
    /// them have ended.
    ///
    /// # Errors
    /// [`TransportError`]; some may be gone. Harmless when repeated.
    pub async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        let names = &self.0.names;
        let delays = || (0..DELAY_LEVELS).map(|level| names.delay(level));
        let of_endpoints = endpoints.iter().flat_map(|endpoint| [names.queue(endpoint), names.dead_letters(endpoint)]);
        let queues: Vec<String> = of_endpoints.chain(delays()).chain([names.unrouted()]).collect();
        let exchanges: Vec<String> = delays().chain([names.topics(), names.due(), names.unrouted()]).collect();
        self.within("removing queues", async |channel: &Channel| {
            for queue in &queues {
                channel.queue_delete(short(queue)?, QueueDeleteOptions::default()).await?;
            }
            for exchange in &exchanges {
                channel.exchange_delete(short(exchange)?, ExchangeDeleteOptions::default()).await?;
            }
            Ok(())
        })
        .await
    }

    /// Does something on a channel of its own, which ends with it.
    async fn within<T>(
        &self,
        operation: &'static str,
        work: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> Result<T, TransportError> {
        let (place, patience) = (self.0.link.place(), self.0.options.patience);
        let done = async {
            let open = self.0.publisher.open(&self.0.link).await?;
            let failed = |e| error_of(operation, place, e, false);
            let channel = open.connection.create_channel().await.map_err(failed)?;
            work(&channel).await.map_err(failed)
        };
        match timeout(patience, done).await {
            Ok(done) => done,
            Err(_) => Err(late(operation, place, patience, false)),
        }
    }
}

/// What is in a queue and with nobody.
async fn waiting_in(channel: &Channel, name: &str) -> lapin::Result<u64> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(short(name)?, options, FieldTable::default()).await?;
    Ok(u64::from(queue.message_count()))
}
