//! Queues on RabbitMQ.
//!
//! What [`RabbitMq`] declares, under a prefix of its own (`hapax` unless told otherwise):
//!
//! | name | kind | holds |
//! | --- | --- | --- |
//! | `hapax.queue.ENDPOINT` | quorum queue | the messages of an endpoint |
//! | `hapax.dead-letters.ENDPOINT` | quorum queue, from the first one on | what the endpoint has set aside |
//! | `hapax.topics` | direct exchange, the routing key is the message type | nothing; bound to the queues of subscribers |
//! | `hapax.delay.31` .. `hapax.delay.0` | topic exchange and quorum queue each | messages that are not due yet; see below |
//! | `hapax.due` | topic exchange | nothing; bound to every endpoint's queue |
//! | `hapax.unrouted` | exchange and quorum queue | delayed messages whose queue was gone when they became due, the last 10,000 |
//!
//! Queues are quorum queues because these write a message to the disk before they confirm it, count its deliveries and
//! hand it from one queue to the next without losing it in a crash. A message to an endpoint goes through the default
//! exchange with the queue's name as its routing key, so that any other producer can send one.
//!
//! # What a message looks like
//! AMQP's own fields hold what AMQP has a field for: `message-id`, `correlation-id`, `type`, `content-type`, `timestamp`
//! (in seconds), `reply-to` (the queue of an endpoint), `expiration`, `delivery-mode` 2. The headers are those of
//! [`plain`](hapax_core::envelope::plain), which hold all of it exactly, or those of a CloudEvent in binary mode, whose
//! attributes begin with `cloudEvents:`, or in structured mode (`content-type` `application/cloudevents+json`), if
//! [asked for](RabbitMqOptions::written_as). What is received may be any of them. Another plain message needs a `message-id`
//! and a `type`; one without, or one that is malformed, is set aside among the dead letters, with the reason.
//!
//! # Promises and limits
//! * A message is sent once it is confirmed. One that is refused, or that no queue takes, is not; with two exceptions: a
//!   message to a topic that nobody subscribes goes nowhere, as in every transport of hapax; and whether there is a queue
//!   for a message that is not due yet is seen when it is due. Without one it goes to `hapax.unrouted`.
//! * What is sent at the same time goes together, 8 MiB at a time unless one message alone has more. At most 65,536 messages or 256 MiB wait to be
//!   sent; what comes then fails for now. One whose caller has gone while it waits is not sent.
//! * A lease lasts as long as the connection. RabbitMQ itself ends a channel on which a message was not settled within `consumer_timeout` (30 minutes
//!   unless configured, which the protocol does not tell): a handler that takes longer gets its message twice, and an error says why.
//! * What the server takes less of than it was told here (`max_message_size`) fails for good; what was on its way with it is sent again.
//! * An acknowledgement is not answered by AMQP: one that is lost with its connection brings the message again. What was given first and is settled at
//!   the same time is acknowledged by one word to the server, which writes one entry to its log for it.
//! * Delays are counted in milliseconds and begin at the sender, by its clock. Each is split into powers of two, and the
//!   message waits in one queue after the other, so that a long delay never holds up a short one; a due time is met within
//!   a 2,048th of the delay. Beyond 49 days it is put off again at the endpoint; a
//!   retry is given after 49 days at the latest. What is on its way from one of these queues to the next when the server is
//!   killed may be three minutes late: the server sends it again when nothing has confirmed it for so long
//!   (`dead_letter_worker_publisher_confirm_timeout` of its application `rabbit`).
//! * A message with a due time has no `expiration` of its own while it waits; its endpoint drops it if it has expired.
//! * Subscriptions last until they are ended ([`RabbitMq::unsubscribe`]): an endpoint that no longer names a type still
//!   gets it.
//!
//! # What a server needs
//! Each endpoint has a connection of its own beside the one for publishing, with a thread and 8 MiB of buffers. Each quorum queue takes about three of the file handles that RabbitMQ was started with (`ulimit -n`), and the delays take
//! a hundred: with the 1,024 of many shells a server stops answering at some 270 endpoints. Packages for servers set more.
//!
//! # Logs
//! hapax logs no body and no header's value. The driver does: a message to an address that has no queue is sent back by the
//! server, and the driver warns of it with all that is in it, at each attempt. Filter the target of that line, which says nothing
//! that the error does not: `lapin::returned_messages=off`, behind whatever else your filter says, such as
//! `info,lapin::returned_messages=off`. An event that nobody subscribes is not sent back, and is in no log. The driver's level
//! `trace` is not for production: it shows frames.
//!
//! # Tested
//! RabbitMQ 3.10.8, one node. Clusters and other versions are untested. The chapter `docs/rabbitmq.md` says what is tested, and what to know before it runs.
//!
//! # Source
//! Delays in powers of two: NServiceBus, "Delayed delivery" of its RabbitMQ transport. RabbitMQ's guides to quorum queues,
//! consumer acknowledgements and publisher confirms.

mod dispatcher;
mod endings;
mod errors;
mod events;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod letters;
mod link;
mod message;
mod names;
mod options;
mod publisher;
mod receiver;
mod topology;
mod upkeep;

use std::{fmt, sync::Arc};

pub use crate::written_as::WrittenAs;
use async_trait::async_trait;
use dispatcher::Dispatches;
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
pub use options::RabbitMqOptions;
use publisher::Publisher;
use receiver::EndpointQueue;

/// Queues on a RabbitMQ server. Cloning gives another handle to the same connection.
#[derive(Clone)]
pub struct RabbitMq(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: RabbitMqOptions,
    publisher: Publisher,
    letters: Letters,
    dispatches: Dispatches,
}

impl RabbitMq {
    /// How it is opened.
    pub fn options() -> RabbitMqOptions {
        RabbitMqOptions::new()
    }

    /// Queues on the server at `url` (`amqp://USER:PASSWORD@HOST:PORT/VHOST`; the virtual host `/` is written `%2f`, or
    /// not at all). What it needs is declared.
    ///
    /// # Errors
    /// See [`RabbitMqOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, TransportError> {
        Self::options().open(url).await
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it.
    ///
    /// # Errors
    /// [`TransportError`]; harmless when repeated.
    pub async fn unsubscribe(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<(), TransportError> {
        self.0.unsubscribe(endpoint, types).await
    }

    /// Sends messages from outside any handler. A message to an endpoint that has never connected fails for now.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Transport for RabbitMq {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        TransportCapabilities {
            name: "rabbitmq",
            lease: None,
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            durable: true,
            redelivery_max: options.redelivery_max,
            offsets: false,
            marks: false,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.subscribe(endpoint, types).await?;
        Ok(Connected {
            receiver: Arc::new(EndpointQueue::new(self.clone(), endpoint.clone(), types)),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: None,
        })
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq").field("server", &self.0.link.place()).finish_non_exhaustive()
    }
}
