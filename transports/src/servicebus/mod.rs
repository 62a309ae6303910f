//! Queues on Azure Service Bus, over AMQP 1.0. **A preview: never run against the service itself.**
//!
//! What a namespace needs, under a prefix (`hapax` unless told otherwise); AMQP cannot create it, so it has to be there.
//! [`ServiceBus::az_commands`] writes the commands down.
//!
//! | entity | holds |
//! | --- | --- |
//! | queue `hapax.queue.ENDPOINT` | the messages of an endpoint |
//! | its sub-queue `hapax.queue.ENDPOINT/$DeadLetterQueue` | what the endpoint has set aside, and what the service has |
//! | queue `hapax.dead-letters.ENDPOINT` | what could not be sent: nobody may send to a sub-queue |
//! | topic `hapax.topic.TYPE` | nothing; each subscriber has a subscription that forwards to its queue |
//!
//! In names, what is no lower-case letter, digit, `.` or `-` is `_` and two hexadecimal digits.
//!
//! # What a message looks like
//! AMQP's own fields hold what AMQP has a field for: `message-id`, `correlation-id`, `subject` (the type), `content-type`, `creation-time`,
//! `reply-to` (the queue of an endpoint), `group-id` (the partition key, which is the session id), the header's `durable` and `ttl`. The
//! application properties are the headers of [`plain`](hapax_core::envelope::plain), which hold all of it exactly, or those of a
//! [CloudEvent](WrittenAs). A message of another producer needs a `message-id` and a `subject`; one without, or one that is malformed, is set
//! aside among the dead letters, with the reason.
//!
//! # Promises and limits
//! * A message is sent once the server has settled it as accepted. Many are on their way at a time, each with its own outcome; of those that
//!   are when a link ends, it is not known, whatever the server says of the link.
//! * A lease is a lock of the service ([`ServiceBusOptions::lock_duration`]), and is renewed by the queue's management node. A settlement is not
//!   answered by AMQP as it is used here: one that is lost with its connection brings the message again, and one for a lock that was lost
//!   changes nothing. By the clock of this side it is refused before.
//! * Dead letters are looked at under a lock too, 10,000 of a queue at most, and within one lock.
//! * The service counts deliveries and takes none back. What does not count, and what is to be given later, is **sent again by its receiver**,
//!   scheduled, with the count of before, confirmed, and then completed: a crash in between leaves two copies, and never none.
//! * What is not due is held back by the service itself, by its clock (`x-opt-scheduled-enqueue-time`).
//! * With [`ServiceBusOptions::ordered_keys`] a partition key is a session of the service, which one process has at a time; of each session one message
//!   is given at a time. Queues have to have sessions then, and refuse messages of processes that do not keep order and send none. What is retried
//!   comes behind what was sent meanwhile.
//! * **Queues must not detect duplicates** (`--enable-duplicate-detection false`, as is usual). The service drops within its window what has the
//!   id of a message that was there, whatever became of that one, and says that it has it: a dead letter that is retried soon would be lost
//!   unheard. hapax drops repeats itself. What a receiver sends again has another id for the service for that reason.
//! * Each queue has to have `--max-delivery-count 2000`, the most there is: with fewer the service sets messages aside before the endpoint does,
//!   since what an outage gave back counts for the service.
//!
//! # Another server
//! With `amqp://` this speaks to any server of AMQP 1.0, without what is Service Bus's own: it was written against one. Leases last as long as the
//! connection there, deliveries are not counted, what is to be tried later waits with its receiver and takes room of its prefetch, and dead
//! letters are all in `hapax.dead-letters.ENDPOINT`.
//!
//! # Logs
//! hapax logs no body and no header's value, and the driver logs nothing as hapax builds it.
//!
//! # Tested
//! Against RabbitMQ 3.10.8 with its plugin `rabbitmq_amqp1_0`, which shows the core of AMQP 1.0. What is Service Bus's own was seen on a peer of the
//! tests' own alone, written after its documents; the chapter `docs/servicebus.md` has the table.
//!
//! # Source
//! OASIS AMQP 1.0, parts 2, 3 and 5; Microsoft, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide" and "Request/response-based
//! operations"; the CloudEvents AMQP Protocol Binding 1.0.2.

mod address;
mod commands;
mod dispatcher;
mod errors;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod letters;
mod link;
mod message;
mod names;
mod options;
mod pump;
mod receiver;
mod renewal;
mod sessions;
mod tls;

use std::{fmt, sync::Arc};

pub use crate::written_as::WrittenAs;
use address::Server;
use async_trait::async_trait;
use dispatcher::Publisher;
#[cfg(feature = "fuzzing")]
pub use fuzzing::{fuzz, fuzz_url};
use hapax_core::{
    Sender,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Transport, TransportCapabilities, TransportError},
};
use letters::Letters;
use link::Link;
use names::Names;
pub use options::ServiceBusOptions;
use receiver::EndpointQueue;

/// Queues in a namespace of Azure Service Bus. Cloning gives another handle to the same connection.
#[derive(Clone)]
pub struct ServiceBus(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: ServiceBusOptions,
    publisher: Publisher,
    letters: Letters,
}

impl ServiceBus {
    /// How it is opened.
    pub fn options() -> ServiceBusOptions {
        ServiceBusOptions::new()
    }

    /// Queues of the namespace at `at`, a connection string or a URL.
    ///
    /// # Errors
    /// See [`ServiceBusOptions::open`].
    pub async fn open(at: impl AsRef<str>) -> Result<Self, TransportError> {
        Self::options().open(at).await
    }

    /// Sends messages from outside any handler. A message to an endpoint that has no queue fails for now.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Transport for ServiceBus {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        let is_service = self.0.names.server() == Server::ServiceBus;
        TransportCapabilities {
            name: "servicebus",
            lease: is_service.then(|| options.lease()),
            counts_deliveries: is_service,
            delays: if is_service { Delays::Any } else { Delays::Never },
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            durable: true,
            redelivery_max: options.redelivery_max,
            offsets: false,
            marks: false,
        }
    }

    /// Looks whether its queues are there. Whether a subscription forwards to them cannot be asked over AMQP, nor what they are like.
    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.look_for(endpoint, types).await?;
        Ok(Connected {
            receiver: Arc::new(EndpointQueue::new(self.clone(), endpoint.clone())),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: None,
        })
    }
}

impl fmt::Debug for ServiceBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceBus").field("server", &self.0.link.place()).finish_non_exhaustive()
    }
}
