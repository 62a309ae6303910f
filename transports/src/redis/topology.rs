//! The streams and their groups: made, or looked for.

use ::redis::cmd;
use hapax_core::{
    ids::{EndpointName, TypeName},
    ports::{ErrorKind, TransportError},
};

use super::{Broker, answer::text, errors::malformed, scripts::Script};

/// The consumer group of a queue.
const GROUP: &str = "hapax";
/// The same where one process at a time receives: what a queue was declared as is seen by its group.
const GROUP_IN_ORDER: &str = "hapax-in-order";

const DECLARING: &str = "declaring queues";

impl Broker {
    pub(super) const fn group(&self) -> &'static str {
        if self.options.ordered_keys { GROUP_IN_ORDER } else { GROUP }
    }

    const fn other_group(&self) -> &'static str {
        if self.options.ordered_keys { GROUP } else { GROUP_IN_ORDER }
    }

    /// Declares, or looks for, the queue of `endpoint`, and subscribes it to `types`.
    pub(super) async fn subscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        let queue = self.names.queue(endpoint);
        let topics: Vec<String> = types.iter().map(|topic| self.names.topic(topic)).collect();
        let keys: Vec<&str> = [&queue].into_iter().chain(&topics).map(String::as_str).collect();
        let declared = self.link.ask(&self.lane, DECLARING, true, |scripts| {
            let mut call = scripts.call(Script::Declare, &keys);
            call.arg(endpoint.as_str()).arg(self.group()).arg(self.other_group());
            call.arg(u8::from(self.options.declare)).arg(self.options.unused_millis());
            call
        });
        let place = self.link.place();
        let why = match text(declared.await?).ok_or_else(|| malformed(DECLARING, place))?.as_str() {
            "" => return Ok(()),
            "kind" => format!("{place} has a key `{queue}` that is no stream: use another prefix"),
            "other" => format!(
                "{place} has `{queue}` already, declared in another way: say the same of RedisStreamsOptions::ordered_keys, use another prefix, or delete it once it is empty"
            ),
            "unsubscribed" => format!(
                "{place} does not know that {endpoint} subscribes: let it be declared (RedisStreamsOptions::declare), or declare it"
            ),
            _ => format!(
                "{place} does not have `{queue}`: let it be declared (RedisStreamsOptions::declare), or declare it"
            ),
        };
        Err(TransportError::new(ErrorKind::Misconfigured, DECLARING, why))
    }

    /// Ends subscriptions of `endpoint`.
    pub(super) async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        for topic in types {
            let topic = self.names.topic(topic);
            let asked = self.link.ask(&self.lane, "unsubscribing", true, |_| {
                let mut remove = cmd("SREM");
                remove.arg(topic).arg(endpoint.as_str());
                remove
            });
            asked.await?;
        }
        Ok(())
    }
}
