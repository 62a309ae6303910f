//! Queues on Amazon SQS.
//!
//! What [`Sqs`] declares in the account and region of its client, under a prefix of its own (`hapax` unless told otherwise):
//!
//! | queue | holds |
//! | --- | --- |
//! | `hapax_queue_ENDPOINT`, with [`ordered_keys`](SqsOptions::ordered_keys) `hapax_queue_ENDPOINT.fifo` | the messages of an endpoint, each until it is settled |
//! | `hapax_topic_TYPE` | no message: its tags are the names of the queues that subscribe to a message type |
//! | `hapax_dead-letters_ENDPOINT`, from the first one on | what the endpoint has set aside |
//!
//! In names, what is no letter, digit or `-` is `_` and two hexadecimal digits, so that the queue of `shop.orders` is
//! `hapax_queue_shop_2Eorders`; one that would be longer than 80 characters ends in `__` and a part of its SHA-256.
//!
//! A lease is the visibility time-out of the receipt handle that came with the message. The service would take an acknowledgement from
//! whoever had a message before; so a lease that has run out is refused on this side, and the service hides a message a second longer.
//!
//! # What a message looks like
//! An attribute for each header of [`plain`](hapax_core::envelope::plain), and the body as it is. The service takes ten attributes: what
//! does not fit, and what cannot be one (an empty value), is in the attribute `x-hapax-more`, a line `name: value` for each; a line with a name
//! alone keeps the order. The service takes text: a body that is none is in base64, with the attribute `x-hapax-encoding`. CloudEvents are
//! read as well, in binary mode (`ce-id` and so on) and in structured mode (`content-type: application/cloudevents+json`), and
//! written if [asked for](SqsOptions::written_as). A message that is malformed, or has no id or no type, is set aside among the dead
//! letters, with the reason. The service's own message id is another for each sending, so it is nobody's identity here.
//!
//! # Promises and limits
//! * A message is sent once the service has confirmed it by the id of its entry. Messages go in calls of ten, eight calls at a time to a queue
//!   without order.
//! * An event goes to the queue of each subscriber, and counts as sent once all of them have it: else it is sent to all again, under its id.
//!   A process that publishes knows of a new subscriber after [`subscribers_known`](SqsOptions::subscribers_known). A type has at most
//!   50 subscribers, since a queue has as many tags. SNS is not used; what it forwards to a queue with raw message delivery is read.
//! * A message to an endpoint that has never connected fails for now, and to a topic that nobody subscribes goes nowhere, as in every
//!   transport of hapax.
//! * *Retention:* the service drops what nobody has settled within 14 days at most, and tells nobody. That is so for dead letters too: keep
//!   them in a store, which is what `.store(..)` does.
//! * *Delays:* up to 15 minutes; for longer ones give the endpoint a [`Schedule`](hapax_core::ports::Schedule). A FIFO queue cannot hold one message
//!   back: there it is given, found not to be due, and hidden until it is.
//! * *Counting:* the service counts each delivery, and takes none back. What does not count is sent again by its receiver, with the
//!   count of before in `x-hapax-given`, and then deleted: it loses its place. What was given to a receiver that is let go of counts.
//! * *Order:* with [`ordered_keys`](SqsOptions::ordered_keys) the partition key is the message group. Each sending has a deduplication id of
//!   its own, which begins with the message's id and is repeated by the tries of one call alone. It is not the message id itself, for then the
//!   service would take a dead letter that is retried within five minutes for a copy, and drop it unheard. A message without a partition key
//!   is in order with none.
//! * Retries are put off in whole seconds, and extensions end after 12 hours, as the service counts both.
//! * Subscriptions last until they are ended ([`Sqs::unsubscribe`]): an endpoint that no longer names a type still gets it.
//! * There are no [`Marks`](hapax_core::ports::Marks): the service tells nobody what is left of a queue's past.
//!
//! # What a client needs
//! Region, credentials and TLS are the client's. [`Sqs::policy_json`] is what its role has to be allowed.
//!
//! # Logs
//! hapax logs no body. Of headers it logs names and ids that cannot be read as what they should be.
//!
//! # Tested
//! An emulator in memory (moto 5.2.5 behind a lock, with the five minutes of FIFO deduplication that it lacks), also behind a proxy that loses
//! answers, and killed. The service itself where the tests are asked for it; tags that are read right after they were written, and
//! KMS, are untested.
//!
//! # Source
//! Amazon SQS Developer Guide and API Reference, of 2025-08 or later for the largest message (1 MiB).

mod addresses;
mod apart;
mod attributes;
mod batches;
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
mod policy;
mod publisher;
mod receiver;
mod settle;
mod stock;
mod topology;
mod upkeep;

use std::{fmt, sync::Arc};

pub use crate::written_as::WrittenAs;
use addresses::Addresses;
use async_trait::async_trait;
use aws_sdk_sqs::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region},
};
#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz;
use hapax_core::{
    Sender,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Transport, TransportCapabilities, TransportError},
};
use letters::Looks;
use link::Link;
use names::Names;
pub use options::SqsOptions;
use publisher::DELAY_MAX;
use receiver::EndpointQueue;

/// Queues on Amazon SQS. Cloning gives another handle to the same client.
#[derive(Clone)]
pub struct Sqs(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: SqsOptions,
    addresses: Addresses,
    looks: Looks,
}

impl Sqs {
    /// How it is opened.
    pub fn options() -> SqsOptions {
        SqsOptions::new()
    }

    /// Queues in the account and region of `client`. What they need is declared.
    ///
    /// # Errors
    /// See [`SqsOptions::open`].
    pub async fn open(client: &Client) -> Result<Self, TransportError> {
        Self::options().open(client).await
    }

    /// A client for an emulator at `endpoint_url`: plain HTTP, credentials that mean nothing.
    #[must_use]
    pub fn local_client(endpoint_url: &str) -> Client {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "hapax local client"))
            .endpoint_url(endpoint_url)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .build();
        Client::from_conf(config)
    }

    /// What a role needs to be allowed to use the queues with these ARNs, as an IAM policy:
    /// `arn:aws:sqs:REGION:ACCOUNT:hapax_*`. [`remove`](Self::remove) needs `sqs:DeleteQueue` and `sqs:ListQueues` besides.
    #[must_use]
    pub fn policy_json(queues_arn: &str) -> String {
        policy::json(queues_arn)
    }

    /// Ends subscriptions of `endpoint`: what is published from now on does not go to it, once those who publish know.
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
impl Transport for Sqs {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        TransportCapabilities {
            name: "sqs",
            lease: Some(options.lease),
            counts_deliveries: true,
            delays: Delays::UpTo(DELAY_MAX),
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            durable: true,
            redelivery_max: options.redelivery_max,
            offsets: false,
            marks: false,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let address = self.0.subscribe(endpoint, types).await?;
        Ok(Connected {
            receiver: Arc::new(EndpointQueue::new(self, endpoint.clone(), types, address)),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: None,
        })
    }
}

impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs").field("service", &self.0.link.place()).finish_non_exhaustive()
    }
}
