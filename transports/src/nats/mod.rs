//! Queues on NATS JetStream.
//!
//! What [`Nats`] declares, under a prefix of its own (`hapax` unless told otherwise):
//!
//! | stream | takes | keeps |
//! | --- | --- | --- |
//! | `hapax-queue-ENDPOINT` | `hapax.queue.ENDPOINT`, and behind it `.0` to `.15` | the messages of an endpoint, until they are settled |
//! | `hapax-topics` | `hapax.topic.SLOT.TYPE` | what is published, until every subscriber has settled it |
//! | `hapax-dead-letters` | `hapax.dead-letters.ENDPOINT.LETTER` | what endpoints have set aside |
//! | `hapax-uncounted` | `hapax.uncounted.>` | for a day: how many deliveries of a message do not count |
//!
//! Of the queue's stream an endpoint has one consumer, `receivers`; of `hapax-topics` one for each type that it subscribes to,
//! `ENDPOINT~TYPE`. All of them are durable and pulled from. In names, what is no letter, digit, `-` or `_` is `=` and two hexadecimal digits, so
//! that the queue of `shop.orders` is `hapax-queue-shop=2Eorders` and `hapax.queue.shop=2Eorders`; in subjects, types keep their dots.
//! The slot is that of the message's partition key: the first byte of the key's SHA-256, modulo 16; `-`, or nothing, for a message without one.
//!
//! # What a message looks like
//! The headers are those of [`plain`](hapax_core::envelope::plain), or those of a CloudEvent in binary or structured
//! mode if [asked for](NatsOptions::written_as). What is received may be any of them. `Nats-Msg-Id` is the message's id. A
//! message of another producer needs `Nats-Msg-Id` and `hapax-type`, which on the subject of a type is the type; one without, or one
//! that is malformed, is set aside among the dead letters, with the reason.
//!
//! # Promises and limits
//! * A message is sent once JetStream has confirmed it. One that no stream takes is not. A message to a topic that nobody subscribes goes
//!   nowhere, as in every transport of hapax.
//! * What is sent at the same time goes together, 8 MiB at a time unless one message alone has more. At most 65,536 messages or 256 MiB wait to be
//!   sent; what comes then fails for now. One whose caller has gone while it waits is not sent.
//! * *What a confirmation is worth:* the server has given the message to its operating system, so that it outlives a crash of the server. On the disk it is
//!   after the server's `sync_interval`, two minutes unless configured (one in 2.9): a machine that loses power loses what was confirmed since. Where that must not be, set
//!   `sync_interval: always` (from 2.10 on), or [replicas](NatsOptions::replicas). It is logged when this is opened.
//! * *Repeats:* the server drops a message whose id it has had within the [dedup window](NatsOptions::dedup_window). What it has dropped is looked for:
//!   unless the same message is still in the stream, it is stored again, so that a dead letter that is retried, or another message under the
//!   same id, is not lost.
//! * An acknowledgement is confirmed by the server, and said again on the next connection while the lease lasts. A lease is the consumer's `ack_wait`, and is extended
//!   by `+WPI`. The server would take a settlement from whoever had a message before; so a lease that has run out is refused on this side.
//! * A message with a due time is in its queue from the beginning. It is given to a process when there is room, found not to be due, and put
//!   off (`-NAK` with a delay) until it is. Each costs some hundred bytes of the server's memory meanwhile, and the server looks through all that
//!   wait whenever one is due: with more than some ten thousand, give the endpoint a [`Schedule`](hapax_core::ports::Schedule).
//!   What the server itself can do from 2.12 on (schedules, a time to live for each message) is not used.
//! * Retries are put off in the same way. What does not count as an attempt is written to `hapax-uncounted`, since the server counts each delivery.
//! * *Order:* see [`NatsOptions::ordered_keys`]. Without it, messages are given in the order in which they came, to whichever process asks.
//! * *Evidence:* what was settled is shown by the numbers of the stream ([`Marks`](hapax_core::ports::Marks)), once that is as old as
//!   [`NatsOptions::sync_interval`].
//! * Subscriptions last until they are ended ([`Nats::unsubscribe`]): for an endpoint that no longer names a type, what is published is
//!   kept, and nobody takes it.
//! * A queue that nobody uses any more stays, for the server removes no stream by itself: see [`Nats::remove`].
//!
//! # What a server needs
//! JetStream, and version 2.9 or later. An account needs to publish to `$JS.API.>`, `$JS.ACK.>` and `hapax.>`, and to subscribe to
//! `_INBOX.>`. There is one connection for sending and receiving. Messages with their headers are at most the server's `max_payload`, 1
//! MiB unless configured.
//!
//! # Logs
//! hapax logs no body and no header's value; nor does the driver, above its level `debug`. At that it shows what the server answers, dead letters
//! that are listed among it; a filter spares it: `async_nats::jetstream::context=info`.
//!
//! # Tested
//! nats-server 2.9.10 and 2.15.1: one server, also killed (again and again from 2.10.26 on alone: before, it may give to nobody what it has confirmed); by hand a cluster of three with three replicas, whose servers were killed one after the other.
//! Credentials of accounts that an operator vouches for. Leaf nodes are untested.
//!
//! # Source
//! NATS documentation: JetStream's consumers, its model, and its wire API; ADR-8 and ADR-13 for pull consumers. The server's own
//! `server/consumer.go` of 2.9.10 for what an acknowledgement does whose lease has run out.

mod declared;
mod dispatcher;
mod errors;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod letters;
mod link;
mod marks;
mod message;
mod names;
mod options;
mod publisher;
mod pulls;
mod receiver;
mod topology;
mod uncounted;
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
use link::Link;
use marks::{Offsets, Seen};
use names::Names;
pub use options::NatsOptions;
use receiver::EndpointQueue;

/// Queues on a NATS server with JetStream. Cloning gives another handle to the same connection.
#[derive(Clone)]
pub struct Nats(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: NatsOptions,
    /// As the options and the server say together.
    bytes_max: usize,
    seen: Seen,
    dispatches: Dispatches,
}

impl Nats {
    /// How it is opened.
    pub fn options() -> NatsOptions {
        NatsOptions::new()
    }

    /// Queues on the server at `url` (`nats://USER:PASSWORD@HOST:PORT`, or several with commas between). What it needs is declared.
    ///
    /// # Errors
    /// See [`NatsOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, TransportError> {
        Self::options().open(url).await
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it, and what it has not settled is gone.
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
impl Transport for Nats {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        TransportCapabilities {
            name: "nats",
            lease: Some(options.lease),
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys: options.ordered_keys,
            message_bytes_max: self.0.bytes_max,
            durable: true,
            redelivery_max: options.redelivery_max,
            offsets: false,
            marks: true,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.subscribe(endpoint, types).await?;
        Ok(Connected {
            receiver: Arc::new(EndpointQueue::new(self.clone(), endpoint.clone(), types)),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: Some(Arc::new(Offsets { nats: self.clone(), endpoint: endpoint.clone() })),
        })
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("server", &self.0.link.place()).finish_non_exhaustive()
    }
}
