//! What people and programs ask of queues, beside sending and receiving.

use aws_sdk_sqs::{operation::delete_queue::DeleteQueueError, types::QueueAttributeName as Attribute};
use hapax_core::{ids::EndpointName, ports::TransportError};

use super::{
    Broker, Sqs,
    addresses::Address,
    link::{Asking, Failed},
};

const COUNTING: &str = "counting messages";
const REMOVING: &str = "removing queues";

impl Sqs {
    /// About how many messages wait for `endpoint` or are being handled there, those that are not due included. The service counts
    /// within a minute.
    ///
    /// # Errors
    /// [`TransportError`]. Of an endpoint that has never connected it is none.
    pub async fn backlog(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        match self.0.queue_of(COUNTING, endpoint).await? {
            Some(address) => self.0.count(COUNTING, &address).await,
            None => Ok(0),
        }
    }

    /// About how many messages of `endpoint` are held back by the service until they are due. Those that are put off are counted among
    /// those that are being handled.
    ///
    /// # Errors
    /// [`TransportError`].
    pub async fn delayed(&self, endpoint: &EndpointName) -> Result<u64, TransportError> {
        match self.0.queue_of(COUNTING, endpoint).await? {
            Some(address) => self.0.counts(COUNTING, &address, &[Attribute::ApproximateNumberOfMessagesDelayed]).await,
            None => Ok(0),
        }
    }

    /// Removes all that was declared under this prefix, with every message in it: what waits for `endpoints` and their dead letters,
    /// and topics. For programs that had a [prefix](super::SqsOptions::prefix) to themselves, once all of them have ended. The service
    /// takes a minute for it, and takes no queue of the same name for as long.
    ///
    /// # Errors
    /// [`TransportError`]; some may be gone. Harmless when repeated.
    pub async fn remove(&self, endpoints: &[EndpointName]) -> Result<(), TransportError> {
        let broker = &self.0;
        for endpoint in endpoints {
            let names = &broker.names;
            for name in [names.queue(endpoint, false), names.queue(endpoint, true), names.dead_letters(endpoint)] {
                if let Some(address) = broker.queue_named(REMOVING, &name).await? {
                    broker.remove(&address.url).await?;
                    broker.addresses.forget(&address);
                }
            }
        }
        let mut next = None;
        loop {
            let request = broker.link.client.list_queues().queue_name_prefix(broker.names.topics());
            let request = request.max_results(1000).set_next_token(next);
            let listed = broker.link.plainly(Asking::reading(REMOVING), || request.clone().send()).await?;
            for url in listed.queue_urls() {
                broker.remove(url).await?;
            }
            next = listed.next_token;
            if next.is_none() {
                return Ok(());
            }
        }
    }
}

impl Broker {
    /// Whatever is in a queue.
    pub(super) async fn count(&self, operation: &'static str, address: &Address) -> Result<u64, TransportError> {
        let all = [
            Attribute::ApproximateNumberOfMessages,
            Attribute::ApproximateNumberOfMessagesNotVisible,
            Attribute::ApproximateNumberOfMessagesDelayed,
        ];
        self.counts(operation, address, &all).await
    }

    async fn counts(
        &self,
        operation: &'static str,
        address: &Address,
        which: &[Attribute],
    ) -> Result<u64, TransportError> {
        let request = self.link.client.get_queue_attributes().queue_url(&address.url);
        let request = request.set_attribute_names(Some(which.to_vec()));
        let found = self.link.plainly(Asking::reading(operation), || request.clone().send()).await?;
        let found = found.attributes.unwrap_or_default();
        Ok(which.iter().filter_map(|name| found.get(name)?.parse::<u64>().ok()).sum())
    }

    async fn remove(&self, url: &str) -> Result<(), TransportError> {
        let request = self.link.client.delete_queue().queue_url(url);
        match self.link.ask(Asking::repeatable(REMOVING), || request.clone().send()).await {
            Ok(_) | Err(Failed::Refused(DeleteQueueError::QueueDoesNotExist(_))) => Ok(()),
            Err(failed) => Err(self.link.failed(REMOVING, failed)),
        }
    }
}
