//! How queues are opened: each bound with its default and the reason for it; many are the most or the least that the service takes.

use std::time::Duration;

use aws_sdk_sqs::Client;
use hapax_core::ports::{ErrorKind, TransportError};

use super::{Broker, Sqs, addresses::Addresses, letters::Looks, link::Link, names::Names};
use crate::written_as::WrittenAs;

/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 960 KiB: a queue takes 1 MiB
/// at most, and attributes are within it.
const MESSAGE_BYTES_MAX: usize = QUEUE_BYTES_MAX - OVERHEAD_BYTES;
/// What the service takes in a message, and in a call: 1 MiB.
pub(super) const QUEUE_BYTES_MAX: usize = 1 << 20;
/// Of what a queue takes, kept for attributes and for what is said beside a message that is set aside.
pub(super) const OVERHEAD_BYTES: usize = 64 << 10;
/// The service takes no less in a message.
const QUEUE_BYTES_MIN: usize = 1 << 10;
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long an answer may take. Default 10 s: the service answers within milliseconds, and a try that hangs leaves time for another.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a lease lasts. Default 30 s, as the service's own: long enough for any handler, extended while one runs; a process that dies
/// keeps its messages from others for as long as that.
const LEASE: Duration = Duration::from_secs(30);
/// Shorter ones would end while a message is on its way here.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// The service takes no longer one than twelve hours, and something is added for the way.
const LEASE_LIMIT: Duration = Duration::from_secs(11 * 3600);
/// How long the service keeps a message that nobody settles. Default 14 days, the longest that it takes: what is older is lost.
const RETENTION: Duration = Duration::from_secs(14 * 24 * 3600);
/// The service takes no less.
const RETENTION_MIN: Duration = Duration::from_secs(60);
/// How long the service waits for a message before it says that there is none. Default 20 s, the longest that it takes: each call
/// costs the same.
const WAIT: Duration = Duration::from_secs(20);
/// Calls for messages that are under way at a time while there are more messages than one brings, which is ten. Default 4: with answers
/// after ten milliseconds that is some thousands of messages a second.
const PARALLEL: u8 = 4;
/// More would have a receiver hold more messages than it asks for.
const PARALLEL_LIMIT: u8 = 64;
/// For how long who subscribes to a type is believed. Default 30 s: an account may ask for tags thirty times a second.
const SUBSCRIBERS_KNOWN: Duration = Duration::from_secs(30);
/// A queue whose redrive policy takes a message away after fewer deliveries is refused. Default 100: the endpoint's own limit is ten, and
/// what does not count there counts for the service.
const REDRIVE_MIN: u32 = 100;
/// Prefix of every name.
const PREFIX: &str = "hapax";

/// How an [`Sqs`] is opened. From [`Sqs::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SqsOptions {
    pub(super) message_bytes_max: usize,
    pub(super) ordered_keys: bool,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) wait: Duration,
    pub(super) parallel: u8,
    pub(super) subscribers_known: Duration,
    pub(super) redrive_min: u32,
    pub(super) declare: bool,
    pub(super) kms_key: Option<String>,
    pub(super) written_as: WrittenAs,
    prefix: String,
}

impl SqsOptions {
    pub(super) fn new() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_MAX,
            ordered_keys: false,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            lease: LEASE,
            retention: RETENTION,
            wait: WAIT,
            parallel: PARALLEL,
            subscribers_known: SUBSCRIBERS_KNOWN,
            redrive_min: REDRIVE_MIN,
            declare: true,
            kms_key: None,
            written_as: WrittenAs::Plain,
            prefix: PREFIX.to_owned(),
        }
    }

    /// Largest message, in bytes, at most 960 KiB. Default that. Larger ones are refused before anything is saved, and so are those
    /// that do not fit with their attributes: a body that is no text takes a third more. Queues are declared so that they take 64 KiB more;
    /// where a queue takes 256 KiB (that was the most before August 2025), give 192 KiB.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_MAX);
        self
    }

    /// Whether queues keep the order of messages of one partition key: FIFO queues, whose names end in `.fifo`. Default no: standard
    /// queues. Every process of an endpoint has to say the same, and an endpoint that has a queue of the other kind already is an
    /// error. Messages are sent to whichever kind an endpoint has. A message that is retried holds up what comes behind it with its
    /// partition key.
    pub const fn ordered_keys(mut self, ordered: bool) -> Self {
        self.ordered_keys = ordered;
        self
    }

    /// The longest time after which a copy of a message may still come: how far the queue may fall behind. Default a day;
    /// endpoints must remember messages for longer.
    pub const fn redelivery_max(mut self, longest: Duration) -> Self {
        self.redelivery_max = longest;
        self
    }

    /// How long an answer may take, with all tries of a call, at least 1 ms. Default 10 s. A message whose confirmation takes longer may have
    /// been sent.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.max(Duration::from_millis(1));
        self
    }

    /// How long a lease lasts unless it is extended, from 1 s to 11 h. Default 30 s. It is said with each call for messages; the
    /// queue's own visibility time-out is not used.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, LEASE_LIMIT);
        self
    }

    /// How long the service keeps messages that nobody settles, dead letters included, from 60 s to 14 days. Default 14 days. **What is
    /// older is lost, and nobody is told.** A queue that keeps them for less is refused.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.clamp(RETENTION_MIN, RETENTION);
        self
    }

    /// How long the service waits for messages before it answers that there are none, in whole seconds from 1 to 20. Default 20 s. A
    /// receiver that is let go of gives back what comes within this time.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Duration::from_secs(wait.as_secs()).clamp(Duration::from_secs(1), WAIT);
        self
    }

    /// Calls for messages that are under way at a time, from 1 to 64, while there are more messages than one of them brings, which is
    /// ten. Default 4. No more messages are asked for than the endpoint has asked for.
    pub fn parallel(mut self, calls: u8) -> Self {
        self.parallel = calls.clamp(1, PARALLEL_LIMIT);
        self
    }

    /// For how long a process that publishes believes what it knows of subscribers. Default 30 s: within it, an endpoint that
    /// subscribes for the first time may not get what others publish.
    pub const fn subscribers_known(mut self, time: Duration) -> Self {
        self.subscribers_known = time;
        self
    }

    /// A queue whose redrive policy takes messages away after fewer deliveries than this is refused. Default 100. Where the service
    /// does it, nobody knows why a message is among the dead letters, and what an outage gave back counts. Queues are declared without
    /// such a policy.
    pub const fn redrive_min(mut self, deliveries: u32) -> Self {
        self.redrive_min = deliveries;
        self
    }

    /// Whether queues and subscriptions that are missing are declared. Default yes. With no, they only have to be there, which
    /// is seen when an endpoint connects.
    pub const fn declare(mut self, declare: bool) -> Self {
        self.declare = declare;
        self
    }

    /// The key of KMS that queues are encrypted with which are declared. Default the service's own.
    pub fn kms_key(mut self, key: impl Into<String>) -> Self {
        self.kms_key = Some(key.into());
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// The first word of the names of all queues, 1 to 24 ASCII letters, digits and `-`. Default `hapax`. Endpoints see
    /// each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// What the queues of endpoints have to take, in bytes.
    pub(super) fn queue_bytes_max(&self) -> usize {
        (self.message_bytes_max + OVERHEAD_BYTES).clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX)
    }

    /// Queues of the account and the region of `client`, which comes with region, credentials and TLS; its interceptors and its HTTP
    /// client are used, its repetitions and time limits are not.
    ///
    /// # Errors
    /// [`TransportError`] for a malformed prefix, for a service that cannot be reached, and for one that does not let this client in; the
    /// message names the remedy.
    pub async fn open(self, client: &Client) -> Result<Sqs, TransportError> {
        let names = Names::new(&self.prefix)
            .map_err(|problem| TransportError::new(ErrorKind::Misconfigured, "opening SQS queues", problem))?;
        let link = Link::new(client, self.patience);
        let broker = Broker { link, names, options: self, addresses: Addresses::default(), looks: Looks::default() };
        // In a box: the SDK's futures are deep, and whoever opens is in one of its own.
        Box::pin(broker.look_whether_it_is_there()).await?;
        Ok(Sqs(broker.into()))
    }
}
