//! Queues on Redis Streams.
//!
//! What [`RedisStreams`] keeps on the server, under a prefix of its own (`hapax` unless told otherwise):
//!
//! | key | kind | holds |
//! | --- | --- | --- |
//! | `hapax:queue:ENDPOINT` | stream, with a consumer group `hapax` | the messages of an endpoint, each until it is settled |
//! | `hapax:later:ENDPOINT` | sorted set | which of them are put off, and until when |
//! | `hapax:uncounted:ENDPOINT` | hash | how many of a message's deliveries do not count |
//! | `hapax:topic:TYPE` | set | the endpoints that subscribe to a message type |
//! | `hapax:dead-letters:ENDPOINT` | stream | what the endpoint has set aside |
//! | `hapax:dead-letter-ids:ENDPOINT` | hash | which entry of it is which letter |
//! | `hapax:active:ENDPOINT` | string, with [`ordered_keys`](RedisStreamsOptions::ordered_keys) | who receives; its group is called `hapax-in-order` |
//!
//! A lease is what the group knows of a message: which consumer has it, since when, and how often it has been given. `XINFO
//! GROUPS`, `XINFO CONSUMERS` and `XPENDING` show it; what is put off is with a consumer called `later`. A message is deleted from its stream in
//! the moment in which it is acknowledged, and by nothing else: nothing is trimmed by length or age. What other consumers of the
//! group have acknowledged without deleting it is removed every ten seconds, as far as nothing before it is left.
//!
//! What takes several steps is one script in the server, so that a crash is before it or after it: taking messages, ending a
//! lease if it is still held, setting a message aside, an event for all its subscribers.
//!
//! # What a message looks like
//! An entry has a field for each header of [`plain`](hapax_core::envelope::plain), and `body`. So any program can send one:
//! `XADD hapax:queue:ENDPOINT * hapax-message-id .. hapax-type .. content-type application/json body ..`. CloudEvents are read as
//! well, in binary mode (`ce-id` and so on, and `body`) and in structured mode (`content-type application/cloudevents+json`, and
//! `body`), and written if [asked for](RedisStreamsOptions::written_as). One that is malformed, or has no id or no type, is set
//! aside among the dead letters, with the reason. Fields that begin with `x-hapax-` are ours: `x-hapax-due`, the first one, is a due time in
//! milliseconds. An event of another program goes to the endpoints in the set of its type; a program that subscribes puts a name
//! into that set, has a stream `hapax:queue:NAME`, and reads it.
//!
//! # Promises and limits
//! * A message is sent once the server has answered, and it answers once its disk has the message, if it is set so. **A server
//!   that may lose what it has confirmed is refused**: without `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite
//!   no`, unless [`RedisStreamsOptions::may_lose`] accepts it. It is asked at each connection. `durable` among the capabilities
//!   says what was found, and so does `marks`: a server that forgets an acknowledgement gives its message again.
//! * What is sent at the same time goes together, 8 MiB at a time unless one message alone has more. At most 65,536 messages or 256 MiB wait to be
//!   sent; what comes then fails for now. One whose caller has gone while it waits is not sent.
//! * A message to an endpoint that has never connected fails for now, and to a topic that nobody subscribes goes nowhere, as in
//!   every transport of hapax.
//! * A lease lasts as long as the options say and is extended while a message is handled. Who settles after another has taken the message
//!   over, or after the lease has run out, changes nothing.
//! * Nothing is handed over before it is asked for. A call gives at most 512 messages, and no more once they have 8 MiB: they are read one, two, four
//!   and so on at a time, 32 at most, and what is read with the last of them is given too.
//! * Leases, delays and due times end by the server's clock. One that is set forward ends them early, one that is set back
//!   late.
//! * Delays are of any length. Who waits is told at once of what is sent, and looks for what was put off, or left by one that
//!   died, every 240 ms; what has a due time is found when it is due. Where the server cannot tell, what is sent is looked for as often.
//! * A message keeps its place in the stream until it is settled; one that is retried or put off loses its turn. Two messages may be
//!   handled out of order by two processes unless [`ordered_keys`](RedisStreamsOptions::ordered_keys) is asked for.
//! * The server keeps all messages in memory. One that has no more (`maxmemory`) takes no messages until some are handled; one
//!   that would drop keys instead is refused.
//! * Replication of Redis is asynchronous: a replica that takes over may lack what was confirmed last, and what was acknowledged
//!   last comes again. No Sentinel is asked, and nodes of a cluster are refused.
//! * Subscriptions last until they are ended ([`RedisStreams::unsubscribe`]): an endpoint that no longer names a type still
//!   gets it.
//!
//! # What a server needs
//! Redis 7.0 or later. An endpoint has two connections beside the one for sending: one of them waits. An account needs
//! `INFO`, `CONFIG|GET` (else it is taken to lose what it does not tell), `SCRIPT|LOAD`, `EVALSHA`, `TIME`, and reading and writing
//! keys that begin with the prefix: `+@read +@write +@connection +time +info +evalsha +script|load +config|get ~hapax:*`.
//!
//! # Tested
//! Redis 7.0.15, one server, also over TLS with an authority of one's own and client certificates. Replicas, Sentinel, Redis Cluster,
//! Valkey, managed services and other versions are untested.
//!
//! # Source
//! Redis' documentation of streams (`XREADGROUP`, `XPENDING`, `XCLAIM`), of scripting and of persistence.

mod acks;
mod answer;
mod bell;
mod dispatcher;
mod errors;
#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod golden;
mod held;
mod lease;
mod letters;
mod link;
mod marks;
mod message;
mod names;
mod options;
mod receiver;
mod scripts;
mod survey;
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
use link::{Lane, Link};
use names::Names;
pub use options::{MayLose, RedisStreamsOptions};
use receiver::EndpointQueue;

/// Queues on a Redis server. Cloning gives another handle to the same connection.
#[derive(Clone)]
pub struct RedisStreams(Arc<Broker>);

struct Broker {
    link: Link,
    names: Names,
    options: RedisStreamsOptions,
    /// For sending, and for what is rare.
    lane: Lane,
    /// What the server may lose, as it said when it was first connected to.
    found: MayLose,
    dispatches: Dispatches,
}

impl RedisStreams {
    /// How it is opened.
    pub fn options() -> RedisStreamsOptions {
        RedisStreamsOptions::new()
    }

    /// Queues on the server at `url` (`redis://USER:PASSWORD@HOST:PORT/DATABASE`), which loses nothing that it has confirmed.
    ///
    /// # Errors
    /// See [`RedisStreamsOptions::open`].
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
impl Transport for RedisStreams {
    fn capabilities(&self) -> TransportCapabilities {
        let options = &self.0.options;
        TransportCapabilities {
            name: "redis",
            lease: Some(options.lease),
            counts_deliveries: true,
            delays: Delays::Any,
            ordered_keys: options.ordered_keys,
            message_bytes_max: options.message_bytes_max,
            durable: self.0.found < MayLose::Everything,
            redelivery_max: options.redelivery_max,
            offsets: false,
            marks: self.0.found == MayLose::Nothing,
        }
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        self.0.subscribe(endpoint, types).await?;
        let receiver = Arc::new(EndpointQueue::new(self, endpoint.clone(), types));
        let has_marks = self.0.found == MayLose::Nothing;
        Ok(Connected {
            receiver: receiver.clone(),
            dispatcher: Arc::new(self.clone()),
            dead_letters: Some(Arc::new(self.clone())),
            marks: has_marks.then_some(receiver as _),
        })
    }
}

impl fmt::Debug for RedisStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreams").field("server", &self.0.link.place()).finish_non_exhaustive()
    }
}
