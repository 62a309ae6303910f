//! The queues and who subscribes to what: declared, or looked for where others declare them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use aws_sdk_sqs::{operation::create_queue::CreateQueueError, types::QueueAttributeName as Attribute};
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};

use super::{
    Broker,
    addresses::Address,
    link::{Asking, Failed},
};

const DECLARING: &str = "declaring queues";
/// Subscribers of a type: the service keeps as many tags on a queue.
const SUBSCRIBERS_MAX: usize = 50;
/// What a tag says whose name is that of a queue that subscribes.
pub(super) const SUBSCRIBED: &str = "subscribed";
/// A name that nobody declares.
const NOBODY: &str = "nobody";

impl Broker {
    /// Asks for a queue that is not there: whether the service answers, and lets this client in.
    pub(super) async fn look_whether_it_is_there(&self) -> Result<(), TransportError> {
        self.queue_named("opening SQS queues", &format!("{}{NOBODY}", self.names.topics())).await.map(drop)
    }

    /// Declares, or looks at, the queue of `endpoint`, and subscribes it to `types`.
    pub(super) async fn subscribe(
        &self,
        endpoint: &EndpointName,
        types: &[TypeName],
    ) -> Result<Arc<Address>, TransportError> {
        let in_order = self.options.ordered_keys;
        let [name, other] = [in_order, !in_order].map(|in_order| self.names.queue(endpoint, in_order));
        if self.queue_named(DECLARING, &other).await?.is_some() {
            return Err(self.misconfigured(format!(
                "has `{other}` already: say the same of SqsOptions::ordered_keys, use another prefix, or delete it once it is empty"
            )));
        }
        let address = match self.queue_named(DECLARING, &name).await? {
            Some(address) => {
                self.check(&address).await?;
                address
            }
            None => self.declare(DECLARING, &name, self.attributes(in_order)).await?,
        };
        for topic in types {
            self.subscribe_to(topic, &address).await?;
        }
        Ok(address)
    }

    /// Ends subscriptions of `endpoint`.
    pub(super) async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        const UNSUBSCRIBING: &str = "unsubscribing";
        let names = [false, true].map(|in_order| self.names.queue(endpoint, in_order));
        for topic in types {
            self.addresses.forget_subscribers(topic);
            let Some(address) = self.queue_named(UNSUBSCRIBING, &self.names.topic(topic)).await? else { continue };
            let request = self.link.client.untag_queue().queue_url(&address.url).set_tag_keys(Some(names.to_vec()));
            self.link.plainly(Asking::repeatable(UNSUBSCRIBING), || request.clone().send()).await?;
        }
        Ok(())
    }

    /// The queue of dead letters called `name`, declared.
    pub(super) async fn declare_letters(
        &self,
        operation: &'static str,
        name: &str,
    ) -> Result<Arc<Address>, TransportError> {
        self.declare(operation, name, self.attributes(false)).await
    }

    async fn subscribe_to(&self, topic: &TypeName, address: &Address) -> Result<(), TransportError> {
        let name = self.names.topic(topic);
        let found = self.queue_named(DECLARING, &name).await?;
        let tags = match &found {
            Some(topic) => self.tags(DECLARING, topic).await?,
            None => Vec::new(),
        };
        if tags.contains(&address.name) {
            return Ok(());
        }
        if !self.options.declare {
            return Err(self.misconfigured(format!(
                "does not know that `{}` subscribes to {topic}: let it be declared (SqsOptions::declare), or tag the queue `{name}` with it",
                address.name
            )));
        }
        if tags.len() >= SUBSCRIBERS_MAX {
            return Err(self.misconfigured(format!(
                "has {SUBSCRIBERS_MAX} subscribers of {topic} already, which is as many as it keeps: end some (Sqs::unsubscribe)"
            )));
        }
        let found = match found {
            Some(found) => found,
            None => self.declare(DECLARING, &name, HashMap::new()).await?,
        };
        let request = self.link.client.tag_queue().queue_url(&found.url).tags(&address.name, SUBSCRIBED);
        self.link.plainly(Asking::repeatable(DECLARING), || request.clone().send()).await?;
        self.addresses.forget_subscribers(topic);
        Ok(())
    }

    async fn declare(
        &self,
        operation: &'static str,
        name: &str,
        attributes: HashMap<Attribute, String>,
    ) -> Result<Arc<Address>, TransportError> {
        if !self.options.declare {
            return Err(self.misconfigured(format!(
                "does not have `{name}`: let it be declared (SqsOptions::declare), or declare it"
            )));
        }
        let request = self.link.client.create_queue().queue_name(name);
        let request = request.set_attributes(Some(attributes).filter(|attributes| !attributes.is_empty()));
        match self.link.ask(Asking::repeatable(operation), || request.clone().send()).await {
            Ok(made) => {
                let url = made.queue_url().ok_or_else(|| super::errors::untold(operation, self.link.place()))?;
                Ok(self.addresses.learn(name, url))
            }
            // Somebody else makes it at this moment, with other options.
            Err(Failed::Refused(CreateQueueError::QueueNameExists(_))) => {
                let found = self.queue_named(operation, name).await?;
                let address = found.ok_or_else(|| super::errors::untold(operation, self.link.place()))?;
                self.check(&address).await?;
                Ok(address)
            }
            Err(failed) => Err(self.link.failed(operation, failed)),
        }
    }

    /// What the queue of an endpoint is declared with.
    fn attributes(&self, in_order: bool) -> HashMap<Attribute, String> {
        let options = &self.options;
        let mut attributes = HashMap::from([
            (Attribute::MaximumMessageSize, options.queue_bytes_max().to_string()),
            (Attribute::MessageRetentionPeriod, options.retention.as_secs().to_string()),
            (Attribute::ReceiveMessageWaitTimeSeconds, options.wait.as_secs().to_string()),
            // For other consumers: hapax says it with each call.
            (Attribute::VisibilityTimeout, options.lease.as_secs().to_string()),
        ]);
        if in_order {
            // Groups are told apart and limited by themselves, which is what the service calls high throughput.
            attributes.extend([
                (Attribute::FifoQueue, "true".to_owned()),
                (Attribute::DeduplicationScope, "messageGroup".to_owned()),
                (Attribute::FifoThroughputLimit, "perMessageGroupId".to_owned()),
            ]);
        }
        attributes.extend(options.kms_key.clone().map(|key| (Attribute::KmsMasterKeyId, key)));
        attributes
    }

    /// Refuses a queue that loses what it is given sooner than is said, or takes less of it.
    async fn check(&self, address: &Address) -> Result<(), TransportError> {
        let request = self.link.client.get_queue_attributes().queue_url(&address.url).attribute_names(Attribute::All);
        let found = self.link.plainly(Asking::reading(DECLARING), || request.clone().send()).await?;
        let found = found.attributes.unwrap_or_default();
        let number = |name| found.get(&name).and_then(|text| text.parse::<u64>().ok());
        let (name, options) = (&address.name, &self.options);
        let needed = options.queue_bytes_max() as u64;
        if let Some(bytes) = number(Attribute::MaximumMessageSize).filter(|bytes| *bytes < needed) {
            return Err(self.misconfigured(format!(
                "has `{name}` that takes messages of {bytes} bytes, and {needed} are needed: set its MaximumMessageSize, or say less in SqsOptions::message_bytes_max"
            )));
        }
        let kept = number(Attribute::MessageRetentionPeriod).map(Duration::from_secs);
        if let Some(kept) = kept.filter(|kept| *kept < options.retention) {
            let wanted = options.retention;
            return Err(self.misconfigured(format!(
                "has `{name}` that loses messages after {kept:?}, and {wanted:?} are wanted: set its MessageRetentionPeriod, or say less in SqsOptions::retention"
            )));
        }
        let policy = found.get(&Attribute::RedrivePolicy).map(String::as_str).unwrap_or_default();
        if let Some(deliveries) = redriven_after(policy).filter(|deliveries| *deliveries < options.redrive_min) {
            return Err(self.misconfigured(format!(
                "has `{name}` whose redrive policy takes a message away after {deliveries} deliveries: remove the policy, since hapax sets aside what is no good with the reason; or let it take {} (maxReceiveCount, SqsOptions::redrive_min)",
                options.redrive_min
            )));
        }
        Ok(())
    }

    fn misconfigured(&self, why: String) -> TransportError {
        TransportError::new(ErrorKind::Misconfigured, DECLARING, format!("{} {why}", self.link.place()))
    }
}

/// The number in a redrive policy, as text or not.
fn redriven_after(policy: &str) -> Option<u32> {
    let (_, rest) = policy.split_once("\"maxReceiveCount\"")?;
    let digits: String = rest.trim_start_matches([' ', ':', '"']).chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_a_redrive_policy_is_found() {
        let policy =
            |count: &str| format!(r#"{{"deadLetterTargetArn": "arn:aws:sqs:x:1:y", "maxReceiveCount": {count}}}"#);
        assert_eq!(redriven_after(&policy("3")), Some(3));
        assert_eq!(redriven_after(&policy("\"1000\"")), Some(1000));
        assert_eq!(redriven_after(r#"{"maxReceiveCount":5}"#), Some(5));
        assert_eq!((redriven_after(""), redriven_after("{}")), (None, None));
    }
}
