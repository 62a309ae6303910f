//! How queues are opened: each bound with its default and the reason for it. What cannot be asked for over AMQP has to be said here, and be true.

use std::time::Duration;

use hapax_core::ports::{ErrorKind, TransportError};

use super::{
    Broker, ServiceBus,
    address::{Address, Server},
    dispatcher::Publisher,
    letters::Letters,
    link::Link,
    names::Names,
};
use crate::written_as::WrittenAs;

/// Messages that the service hands out ahead of their settling, to one endpoint. Default 128: their locks run from when they are handed out,
/// and one that waits here for longer than a third of its lock costs a call to renew it.
const PREFETCH: u16 = 128;
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 192 KiB: the standard tier takes
/// 256 KiB with all properties, which may have 64.
const MESSAGE_BYTES_MAX: usize = 192 << 10;
/// What the premium tier takes, less what properties may take.
const MESSAGE_BYTES_LIMIT: usize = (100 << 20) - (64 << 10);
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long connecting, or a confirmation, may take. Default 30 s: the service may take as long when it moves a namespace.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the service locks a message that it hands out. Default a minute: what `az servicebus queue create` gives a queue unless told
/// otherwise.
const LOCK: Duration = Duration::from_secs(60);
/// What the service takes.
const LOCK_MIN: Duration = Duration::from_secs(5);
const LOCK_LIMIT: Duration = Duration::from_secs(300);
/// A lease ends here so long before its lock ends there: the way of the message is in between, by one clock on this side.
const LEASE_MARGIN: Duration = Duration::from_secs(2);
/// Prefix of every name.
const PREFIX: &str = "hapax";

/// How a [`ServiceBus`] is opened. From [`ServiceBus::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ServiceBusOptions {
    pub(super) prefetch: u16,
    pub(super) message_bytes_max: usize,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) lock: Duration,
    pub(super) written_as: WrittenAs,
    pub(super) connection_name: Option<String>,
    /// PEM.
    pub(super) authority: Option<String>,
    pub(super) ordered_keys: bool,
    addresses: Option<(String, String)>,
    prefix: String,
}

impl ServiceBusOptions {
    pub(super) fn new() -> Self {
        Self {
            prefetch: PREFETCH,
            message_bytes_max: MESSAGE_BYTES_MAX,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            lock: LOCK,
            written_as: WrittenAs::Plain,
            connection_name: None,
            authority: None,
            ordered_keys: false,
            addresses: None,
            prefix: PREFIX.to_owned(),
        }
    }

    /// Messages that the service hands out to an endpoint ahead of their settling, at least one. Default 128. All of them are in
    /// memory, and none goes to another process of the endpoint while its lock lasts.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Largest message, in bytes, at most 100 MiB less 64 KiB. Default 192 KiB, for the standard tier; the premium tier takes what a queue's
    /// `--max-message-size` says, of which properties may have 64 KiB. Larger ones are refused before anything is saved, and so are
    /// those whose body is larger as it is [written](Self::written_as): in a structured event one that is no JSON takes a third more.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Gives the messages of one partition key in the order in which they were sent, and one at a time. Default no. It takes queues with sessions
    /// (`--enable-session true`, which cannot be asked for over AMQP): **all processes that send to an endpoint have to say the same**, for the service
    /// refuses what is in no session. A partition key is a session, and what has none is in one of sixteen. An endpoint has as many sessions at a
    /// time as messages may be [handed out](Self::prefetch), 32 at most; one that is empty for a quarter of a second is left for the next. Not on other servers.
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

    /// How long connecting, opening a link to a queue, or a confirmation may take, each of them, at least 1 ms. Default 30 s. A message whose
    /// confirmation takes longer may have been sent.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.max(Duration::from_millis(1));
        self
    }

    /// How long the service locks a message that it hands out: the `--lock-duration` of the endpoints' queues, in whole seconds from 5 s to
    /// 5 min. Default a minute, as that is. It cannot be asked for over AMQP: **with more than a queue has, messages are handled twice at a time**. A lease
    /// ends two seconds earlier; it is extended while a handler runs.
    pub fn lock_duration(mut self, lock: Duration) -> Self {
        self.lock = Duration::from_secs(lock.as_secs()).clamp(LOCK_MIN, LOCK_LIMIT);
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// What the ids of connections begin with. Default `hapax`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into());
        self
    }

    /// Trusts servers whose certificate was signed by an authority in `pem` too, beside those of Mozilla's list. One or more certificates,
    /// as text. Needs `amqps://` and the feature `tls-ring`.
    pub fn certificate_authority(mut self, pem: impl Into<String>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// What stands before the name of a queue, and before that of a topic, in an address of AMQP. Default nothing, as in Service Bus, which
    /// takes nothing else. For other servers: RabbitMQ has `/amq/queue/`, and `/exchange/NAME/` of a direct exchange.
    pub fn addresses(mut self, queues: impl Into<String>, topics: impl Into<String>) -> Self {
        self.addresses = Some((queues.into(), topics.into()));
        self
    }

    /// The first word of the names of all queues and topics, 1 to 40 lower-case ASCII letters, digits and `-`. Default `hapax`. Endpoints
    /// see each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a lease lasts.
    pub(super) fn lease(&self) -> Duration {
        self.lock.saturating_sub(LEASE_MARGIN)
    }

    /// Queues of a namespace: `at` is its connection string, as the portal shows it under *Shared access policies*, or
    /// `amqps://NAME:KEY@NAMESPACE.servicebus.windows.net` with name and key of such a policy percent-encoded; both need the feature
    /// `tls-ring`. With `amqp://USER:PASSWORD@HOST:PORT` queues of a server that speaks AMQP 1.0 and nothing more: leases last as long as
    /// the connection there, and nothing is counted or held back until it is due.
    ///
    /// # Errors
    /// [`TransportError`] for a malformed address or prefix, for a server that cannot be reached or does not let this account in, and where
    /// [order](Self::ordered_keys) is asked of another server; the message names the remedy, and never the address.
    pub async fn open(self, at: impl AsRef<str>) -> Result<ServiceBus, TransportError> {
        const OPENING: &str = "opening Service Bus queues";
        let misconfigured = |why: String| TransportError::new(ErrorKind::Misconfigured, OPENING, why);
        let address = Address::parse(at.as_ref()).map_err(|why| misconfigured(why.to_owned()))?;
        if self.ordered_keys && address.server == Server::Plain {
            let why = "order by partition key takes sessions, which Service Bus alone has; leave `ordered_keys` out, or take a transport that has it";
            return Err(misconfigured(why.into()));
        }
        let (queues, topics) = self.addresses.clone().unwrap_or_default();
        let names = Names::new(&self.prefix, address.server, &queues, &topics).map_err(misconfigured)?;
        let link = Link::new(address, &self)?;
        let broker =
            Broker { link, names, options: self, publisher: Publisher::default(), letters: Letters::default() };
        broker.look_whether_it_is_there().await?;
        Ok(ServiceBus(broker.into()))
    }
}
