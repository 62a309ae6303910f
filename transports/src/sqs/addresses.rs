//! Where queues are, and who subscribes to a type.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use aws_sdk_sqs::operation::{get_queue_url::GetQueueUrlError, list_queue_tags::ListQueueTagsError};
use futures_util::future::try_join_all;
use hapax_core::{
    envelope::Destination,
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};

use super::{
    Broker,
    link::{Asking, Failed},
    names::FIFO,
    topology::SUBSCRIBED,
};

/// Queues and types that are remembered, each: beyond them all are asked for anew.
const KNOWN_MAX: usize = 10_000;

/// A queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) name: String,
    pub(super) url: String,
}

impl Address {
    /// Whether it keeps the order of groups.
    pub(super) fn is_fifo(&self) -> bool {
        self.name.ends_with(FIFO)
    }
}

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    queues: HashMap<String, Arc<Address>>,
    /// By type: names of queues, and since when.
    subscribers: HashMap<TypeName, (Instant, Arc<[String]>)>,
}

impl Addresses {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That queue is there no more, for all that is known.
    pub(super) fn forget(&self, address: &Address) {
        self.known().queues.remove(&address.name);
    }

    /// Somebody here subscribes, or does so no more.
    pub(super) fn forget_subscribers(&self, topic: &TypeName) {
        self.known().subscribers.remove(topic);
    }

    pub(super) fn learn(&self, name: &str, url: &str) -> Arc<Address> {
        let address = Arc::new(Address { name: name.to_owned(), url: url.to_owned() });
        let mut known = self.known();
        if known.queues.len() >= KNOWN_MAX {
            known.queues.clear();
        }
        known.queues.insert(name.to_owned(), address.clone());
        address
    }
}

impl Broker {
    /// The queue of this name, if there is one.
    pub(super) async fn queue_named(
        &self,
        operation: &'static str,
        name: &str,
    ) -> Result<Option<Arc<Address>>, TransportError> {
        if let Some(address) = self.addresses.known().queues.get(name) {
            return Ok(Some(address.clone()));
        }
        let request = self.link.client.get_queue_url().queue_name(name);
        match self.link.ask(Asking::reading(operation), || request.clone().send()).await {
            Ok(found) => Ok(found.queue_url().map(|url| self.addresses.learn(name, url))),
            Err(Failed::Refused(GetQueueUrlError::QueueDoesNotExist(_))) => Ok(None),
            Err(failed) => Err(self.link.failed(operation, failed)),
        }
    }

    /// The queue of an endpoint, of whichever kind it is.
    pub(super) async fn queue_of(
        &self,
        operation: &'static str,
        endpoint: &EndpointName,
    ) -> Result<Option<Arc<Address>>, TransportError> {
        let in_order = self.options.ordered_keys;
        let [usual, other] = [in_order, !in_order].map(|in_order| self.names.queue(endpoint, in_order));
        {
            let known = self.addresses.known();
            if let Some(address) = known.queues.get(&usual).or_else(|| known.queues.get(&other)) {
                return Ok(Some(address.clone()));
            }
        }
        match self.queue_named(operation, &usual).await? {
            Some(address) => Ok(Some(address)),
            None => self.queue_named(operation, &other).await,
        }
    }

    /// The queues that a message for `destination` goes to. None for a type that nobody subscribes to.
    pub(super) async fn addresses_of(
        &self,
        operation: &'static str,
        destination: &Destination,
    ) -> Result<Vec<Arc<Address>>, TransportError> {
        match destination {
            Destination::Endpoint(endpoint) => {
                let found = self.queue_of(operation, endpoint).await?;
                found.map(|address| vec![address]).ok_or_else(|| self.nowhere(operation, destination))
            }
            Destination::Topic(topic) => {
                let names = self.subscribers(operation, topic).await?;
                let mut looking = Vec::with_capacity(names.len());
                for name in names.iter() {
                    looking.push(self.queue_named(operation, name));
                }
                let found = try_join_all(looking).await?;
                for (name, found) in names.iter().zip(&found) {
                    if found.is_none() {
                        tracing::warn!(queue = name, %topic, "a queue that subscribes is not there, and gets nothing: remove its tag, or start its endpoint");
                    }
                }
                Ok(found.into_iter().flatten().collect())
            }
        }
    }

    /// Names of queues.
    async fn subscribers(&self, operation: &'static str, topic: &TypeName) -> Result<Arc<[String]>, TransportError> {
        if let Some((since, names)) = self.addresses.known().subscribers.get(topic)
            && since.elapsed() < self.options.subscribers_known
        {
            return Ok(names.clone());
        }
        let since = Instant::now();
        let names: Arc<[String]> = match self.queue_named(operation, &self.names.topic(topic)).await? {
            Some(address) => self.tags(operation, &address).await?.into(),
            None => Arc::default(),
        };
        let mut known = self.addresses.known();
        if known.subscribers.len() >= KNOWN_MAX {
            known.subscribers.clear();
        }
        known.subscribers.insert(topic.clone(), (since, names.clone()));
        Ok(names)
    }

    /// The names of a queue's tags that say [`SUBSCRIBED`], in order; none of one that is not there. Others may be somebody's who counts costs.
    pub(super) async fn tags(&self, operation: &'static str, address: &Address) -> Result<Vec<String>, TransportError> {
        let request = self.link.client.list_queue_tags().queue_url(&address.url);
        match self.link.ask(Asking::reading(operation), || request.clone().send()).await {
            Ok(found) => {
                let tags = found.tags.unwrap_or_default().into_iter();
                let mut names: Vec<String> =
                    tags.filter(|(_, says)| says == SUBSCRIBED).map(|(name, _)| name).collect();
                names.sort();
                Ok(names)
            }
            Err(Failed::Refused(ListQueueTagsError::QueueDoesNotExist(_))) => {
                self.addresses.forget(address);
                Ok(Vec::new())
            }
            Err(failed) => Err(self.link.failed(operation, failed)),
        }
    }

    pub(super) fn nowhere(&self, operation: &'static str, destination: &Destination) -> TransportError {
        let why = format!(
            "{} has no queue `{}`: start its endpoint once, or correct the address",
            self.link.place(),
            self.names.address(destination, self.options.ordered_keys)
        );
        TransportError::new(ErrorKind::Unavailable, operation, why)
    }
}
