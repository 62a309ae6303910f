//! Queues on Apache Kafka, or on what speaks its protocol.
//!
//! What [`Kafka`] declares, under a prefix of its own (`hapax` unless told otherwise):
//!
//! | topic | partitions | keeps |
//! | --- | --- | --- |
//! | `hapax.queue.ENDPOINT` | [four](KafkaOptions::partitions) | the messages of an endpoint, for [14 days](KafkaOptions::retention) |
//! | `hapax.topic.TYPE` | the same | what is published of a type, for as long |
//! | `hapax.dead-letters.ENDPOINT` | one, compacted | what the endpoint has set aside, until it is discarded |
//! | `hapax.notes.ENDPOINT` | one, compacted | where its subscriptions begin, and which messages were given how often |
//!
//! An endpoint is the consumer group `hapax.ENDPOINT`. In names, what is no letter, digit, `.` or `-` is `_` and two hexadecimal digits.
//!
//! # What a record looks like
//! The headers are those of [`plain`](hapax_core::envelope::plain), or those of a CloudEvent in binary mode, whose attributes begin
//! with `ce_`, or in structured mode, if [asked for](KafkaOptions::written_as). What is received may be any of them. The
//! key is the message's partition key, if it has one, and of a record in which no header says it the key is it; partitions are chosen as clients in Java do (murmur2). A message of another producer needs
//! `hapax-message-id` and `hapax-type`, which in the topic of a type is the type; one without, or one that is malformed, is set aside
//! among the dead letters, with the reason. A partition with a batch that cannot be decoded is held back alone, and that is told.
//!
//! The client library panics over a header whose name is not UTF-8, and that is caught: with `panic = "abort"` it ends the program.
//!
//! # Promises and limits
//! * A message is sent once the broker has confirmed it with `acks=all`, by a producer with `enable.idempotence`. How many replicas have
//!   it then is the topic's `min.insync.replicas`. One to an endpoint that has never connected is not sent; the topic of a type is made by
//!   whoever publishes or subscribes first.
//! * A process has partitions, and what is in them, until they are dealt anew; leases do not run out. A process that dies has its partitions
//!   given to others after its [session](KafkaOptions::session), one that stops at once.
//! * *Acknowledged* is what is in front of the offset that the group has committed. What is acknowledged behind a message that is not, is
//!   given again if the process dies ([`offsets`](TransportCapabilities::offsets)). A process reads at most 4,096 messages ahead of the first
//!   that is not settled, in each partition.
//! * *Order:* messages of one key are given in the order in which the broker has them, as long as none is retried: see
//!   [`KafkaOptions::ordered_keys`].
//! * *Retries* are in place. What is put off is in the memory of its process, and holds back what is committed.
//! * *Delays:* none, see [`Delays::Never`]; give the endpoint a [`Schedule`](hapax_core::ports::Schedule).
//! * *Attempts* are noted before a message is given, of a batch at a time: after a crash, what the process had taken and not given yet counts as
//!   given too.
//! * *Where reading begins:* a subscription begins with what is published after it was made, and that place is noted; a partition that is added
//!   begins at its beginning; an endpoint that was away for so long that the broker has forgotten its offsets goes on where it has noted
//!   to be. A place that is not there any more is told as an error, by [`receive`](hapax_core::ports::Receiver::receive) and in the log, and then reading begins with what is left.
//! * *Evidence:* the ends of all partitions that the group reads, open transactions included, and the offsets that it has committed. What nobody is given, the end
//!   of a transaction or what was aborted, is passed over once nothing comes behind it.
//! * *Transactions* are not used, and messages of others' transactions are read whether committed or not, unless the feature `preview-kafka-transactions`
//!   is on and they are asked for (`KafkaOptions::transactions`): there is a dedup store for what they would be for.
//!
//! # What a cluster needs
//! Kafka 2.4 or later, for topics that are declared with the broker's own number of replicas; else [`KafkaOptions::replicas`] and 0.11. What a user has to
//! be permitted is in the chapter on Kafka (`docs/kafka.md`).
//!
//! # Threads
//! The client library has threads of its own: some for each handle of this, and some for each endpoint, and one for each broker of these. An
//! endpoint has one more, from its first call on.
//!
//! # Logs
//! hapax logs no body and no header's value, and never a password or a key.
//!
//! # Tested
//! Tansu 0.6, with TLS and SASL PLAIN by a proxy before it, and kfake where a broker is killed or asks for a password (PLAIN, SCRAM).
//! **Apache Kafka itself is untested**, and so are clusters.
//!
//! # Source
//! The Kafka protocol guide; librdkafka's `INTRODUCTION.md` and `CONFIGURATION.md` of 2.12; KIP-211 for how long offsets are kept; the Kafka protocol
//! binding of CloudEvents 1.0.2.

mod address;
mod asker;
mod commits;
mod dealt;
mod dispatcher;
mod errors;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod lane;
mod letters;
mod link;
mod marks;
mod member;
mod message;
mod names;
mod notes;
mod options;
mod passing;
mod producing;
mod receiver;
mod shelf;
mod state;
mod terms;
mod topology;
#[cfg(feature = "preview-kafka-transactions")]
mod transactions;
mod undecodable;
mod upkeep;

use std::{fmt, sync::Arc};

pub use crate::written_as::WrittenAs;
use async_trait::async_trait;
#[cfg(feature = "fuzzing")]
pub use fuzzing::{fuzz, fuzz_url};
use hapax_core::{
    Sender,
    ids::{EndpointName, TypeName},
    ports::{Connected, Delays, Transport, TransportCapabilities, TransportError},
};
use link::Link;
use marks::Offsets;
use names::Names;
pub use options::{KafkaOptions, Mechanism};
use receiver::EndpointQueue;
#[cfg(feature = "preview-kafka-transactions")]
pub use transactions::Transactions;

/// Queues on a Kafka cluster. Cloning gives another handle to the same clients.
#[derive(Clone)]
pub struct Kafka(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: KafkaOptions,
    #[cfg(feature = "preview-kafka-transactions")]
    transacting: Option<transactions::Transacting>,
}

impl Kafka {
    /// How it is opened.
    pub fn options() -> KafkaOptions {
        KafkaOptions::new()
    }

    /// Queues on the cluster at `url` (`kafka://USER:PASSWORD@HOST:PORT`, or several brokers with commas between).
    ///
    /// # Errors
    /// See [`KafkaOptions::open`].
    pub async fn open(url: impl AsRef<str>) -> Result<Self, TransportError> {
        Self::options().open(url).await
    }

    /// Sends messages from outside any handler. A message to an endpoint that has never connected fails for now.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender::new(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Transport for Kafka {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        TransportCapabilities {
            name: "kafka",
            lease: None,
            counts_deliveries: true,
            delays: Delays::Never,
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            durable: true,
            redelivery_max: options.redelivery_max.min(options.retention),
            offsets: true,
            marks: true,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        let asker = self.0.subscribe(endpoint, types).await?;
        let marks = Offsets { kafka: self.clone(), endpoint: endpoint.clone(), asker: asker.clone() };
        Ok(Connected {
            receiver: Arc::new(EndpointQueue::new(self.clone(), endpoint.clone(), types, asker)),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: Some(Arc::new(marks)),
        })
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("cluster", self.0.link.place()).finish_non_exhaustive()
    }
}
