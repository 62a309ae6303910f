//! What has to be there, and the commands that make it.

use std::fmt::Write;

use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};

use super::{Broker, ServiceBus, address::Server, names::digest_of};

const CONNECTING: &str = "connecting an endpoint to Service Bus";
/// The most that the service takes. See the [module](super).
const DELIVERIES_MAX: u32 = 2000;
/// Longest name of a subscription, in bytes.
const SUBSCRIPTION_BYTES_MAX: usize = 50;

impl ServiceBus {
    /// The commands of Azure's own tool that make what `endpoint` needs, subscribed to `types`; also what a process needs that only sends to
    /// it. Set `GROUP` to the resource group. Harmless when repeated.
    ///
    /// ```text
    /// az servicebus queue create --resource-group "$GROUP" --namespace-name shop --name hapax.queue.till --lock-duration PT60S --max-delivery-count 2000
    /// ```
    #[must_use]
    pub fn az_commands(&self, endpoint: &EndpointName, types: &[TypeName]) -> String {
        self.0.commands(endpoint, types)
    }
}

impl Broker {
    fn commands(&self, endpoint: &EndpointName, types: &[TypeName]) -> String {
        let (names, options) = (&self.names, &self.options);
        let namespace = self.link.address().namespace();
        let mut commands = String::new();
        let mut command = |what: &str, rest: &str| {
            // Nothing can go wrong in memory.
            let _ = writeln!(
                commands,
                "az servicebus {what} create --resource-group \"$GROUP\" --namespace-name {namespace} {rest}"
            );
        };
        let queue = names.queue(endpoint);
        let settings = format!("--lock-duration PT{}S --max-delivery-count {DELIVERIES_MAX}", options.lock.as_secs());
        let sessions = if options.ordered_keys { " --enable-session true" } else { "" };
        for (name, sessions) in [(&queue, sessions), (&names.dead_letters(endpoint), "")] {
            command("queue", &format!("--name {name} {settings}{sessions}"));
        }
        for topic in types {
            let topic = names.topic(topic);
            command("topic", &format!("--name {topic}"));
            let name = subscription(&queue);
            command(
                "topic subscription",
                &format!(
                    "--topic-name {topic} --name {name} --forward-to {queue} --max-delivery-count {DELIVERIES_MAX}"
                ),
            );
        }
        commands
    }
}

/// The queue's name where it fits. Else its end, which tells more than its beginning, and a digest: two queues whose names end alike would
/// take each other's subscription.
fn subscription(queue: &str) -> String {
    if queue.len() <= SUBSCRIPTION_BYTES_MAX {
        return queue.to_owned();
    }
    let digest = digest_of(queue);
    let room = SUBSCRIPTION_BYTES_MAX.saturating_sub(digest.len() + 1);
    // Names of queues are ASCII.
    let tail: String = queue.chars().skip(queue.len().saturating_sub(room)).collect();
    format!("{}-{digest}", tail.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()))
}

impl Broker {
    /// Looks for the queues of `endpoint`; says what makes them where they are not there.
    pub(super) async fn look_for(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        let looked = self.looked_for(endpoint).await;
        looked.map_err(|e| match (e.kind(), self.names.server()) {
            (ErrorKind::Misconfigured, Server::ServiceBus) => {
                let remedy = format!(
                    "the queue `{}` or `{}` cannot be used; what it needs is made by\n{}",
                    self.names.queue(endpoint),
                    self.names.dead_letters(endpoint),
                    self.commands(endpoint, types)
                );
                TransportError::new(ErrorKind::Misconfigured, CONNECTING, remedy).caused_by(e)
            }
            _ => e,
        })
    }

    async fn looked_for(&self, endpoint: &EndpointName) -> Result<(), TransportError> {
        if self.options.ordered_keys {
            // Who would receive, has to have a session.
            self.look_at(CONNECTING, &self.names.queue_address(endpoint)).await?;
            return self.look_at(CONNECTING, &self.names.letters_address(endpoint)).await;
        }
        // To receive from the one, without any credit, and to send to the other.
        let mut linked = self.link.connect().await?;
        let address = self.names.queue_address(endpoint);
        let receiver = self.link.receiver(CONNECTING, &mut linked.session, &address, None).await?;
        drop(receiver);
        self.look_at(CONNECTING, &self.names.letters_address(endpoint)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_subscription_is_what_the_service_takes() {
        assert_eq!(subscription("hapax.queue.shop"), "hapax.queue.shop");
        let long = |head: &str| subscription(&format!("hapax.queue.{head}._.{}", "b".repeat(48)));
        for name in [long("a"), long(&"a".repeat(60))] {
            assert!(name.len() <= SUBSCRIPTION_BYTES_MAX && name.starts_with('b'), "{name}");
        }
        assert_ne!(long("a"), long("c"));
    }
}
