//! How queues are opened: each bound with its default and the reason for it, and which of them a queue keeps from its declaration on.

use std::{fmt, sync::Arc, time::Duration};

use hapax_core::ports::{ErrorKind, TransportError};

use super::{Broker, Nats, dispatcher, link::Link, marks::Seen, names::Names};
use crate::written_as::WrittenAs;

/// Messages that an endpoint has ahead of their settling. Default 1,024: as many as it handles at a time unless told
/// otherwise.
const PREFETCH: u16 = 1024;
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 960 KiB: what a server
/// takes unless configured is 1 MiB, and headers are within it.
const MESSAGE_BYTES_MAX: usize = 960 << 10;
/// What a server can be configured to take, 64 MiB, less what headers may take.
const MESSAGE_BYTES_LIMIT: usize = (64 << 20) - HEADERS_BYTES;
/// Of what the server takes, kept for headers.
pub(super) const HEADERS_BYTES: usize = 64 << 10;
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long connecting, or a confirmation, may take. Default 30 s: a server in a cluster that elects a leader answers after some
/// seconds, and a write that hangs must end for its message to be tried again.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a message that was given and not settled is kept from others. Default 30 s, as the server's own: the endpoint extends it
/// three times within that, and a process that died has its messages given to others after it.
const LEASE: Duration = Duration::from_secs(30);
/// Shorter ones would end on the way.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// Longer ones would keep the messages of a process that died for a day.
const LEASE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// For how long the server knows ids. Default 2 min, as the server's own: its memory holds all of them. What it does not drop,
/// the endpoint does.
const DEDUP_WINDOW: Duration = Duration::from_secs(120);
/// The server takes no shorter one.
const DEDUP_WINDOW_MIN: Duration = Duration::from_millis(100);
/// How long the server may keep to itself what it has confirmed, before it has it on the disk. Default 2 min, as the server's own from
/// 2.10 on (2.9: 1 min).
const SYNC_INTERVAL: Duration = Duration::from_secs(120);
/// Prefix of everything that is declared.
const PREFIX: &str = "hapax";

/// How a [`Nats`] is opened. From [`Nats::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct NatsOptions {
    pub(super) prefetch: u16,
    pub(super) message_bytes_max: usize,
    pub(super) ordered_keys: bool,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) lease: Duration,
    pub(super) dedup_window: Duration,
    pub(super) sync_interval: Duration,
    pub(super) replicas: u8,
    pub(super) declare: bool,
    pub(super) written_as: WrittenAs,
    pub(super) connection_name: Option<String>,
    pub(super) credentials: Credentials,
    pub(super) tls: Tls,
    prefix: String,
}

/// What a file of credentials holds.
#[derive(Clone, Default)]
pub(super) struct Credentials(pub(super) Option<String>);

impl fmt::Debug for Credentials {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.0.is_some() { "given" } else { "none" })
    }
}

/// Beside what is compiled in.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// PEM.
    pub(super) authority: Option<String>,
    /// Certificate and key, PEM.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authority", &self.authority.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

impl NatsOptions {
    pub(super) fn new() -> Self {
        Self {
            prefetch: PREFETCH,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ordered_keys: false,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            lease: LEASE,
            dedup_window: DEDUP_WINDOW,
            sync_interval: SYNC_INTERVAL,
            replicas: 1,
            declare: true,
            written_as: WrittenAs::Plain,
            connection_name: None,
            credentials: Credentials::default(),
            tls: Tls::default(),
            prefix: PREFIX.to_owned(),
        }
    }

    /// Messages that an endpoint asks for ahead of their settling, at least one. Default 1,024. All of them are in memory, and none
    /// goes to another process of the endpoint while its lease lasts. They are divided among its queue and the types that it
    /// subscribes to, with one for each at least.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Largest message, in bytes, at most 63.9 MiB. Default 960 KiB. It is never more than what the server says it takes
    /// (`max_payload`) less 64 KiB for headers. Larger ones are refused before anything is saved.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Whether the messages of one partition key are given one after the other, in the order in which they came: each of the 16
    /// parts of a queue gives one message at a time, to all processes together. Default no. It is a property of a queue from
    /// its declaration on: every process has to say the same, and a queue that was declared otherwise is an error. A message
    /// that is retried holds up what comes behind it in its part.
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

    /// How long connecting, a declaration or a confirmation may take, at least 1 ms. Default 30 s. A message whose
    /// confirmation takes longer may have been sent.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.max(Duration::from_millis(1));
        self
    }

    /// How long a message that was given is kept from others unless extended, from 0.1 s to a day. Default 30 s. A property of a
    /// queue: who declares it last decides.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, LEASE_LIMIT);
        self
    }

    /// For how long the server drops a message that it has had already, by its id; at least 0.1 s. Default 2 min. It saves the endpoint
    /// work and is no part of the promise: what comes later, the endpoint recognises. A property of a queue from its declaration on.
    pub fn dedup_window(mut self, window: Duration) -> Self {
        self.dedup_window = window.max(DEDUP_WINDOW_MIN);
        self
    }

    /// What the server's `sync_interval` is: how long what it has confirmed may be lost when its machine loses power. Default 2
    /// min, which is a server's unless configured; zero for `sync_interval: always`. It is told when this is opened; and
    /// [evidence](hapax_core::ports::Marks) that messages are gone has to be as old, since what was settled within it may come again.
    pub const fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// On how many servers of a cluster each queue is kept, 1 to 5. Default 1. A property of a queue from its declaration on.
    pub fn replicas(mut self, servers: u8) -> Self {
        self.replicas = servers.clamp(1, 5);
        self
    }

    /// Whether streams and consumers that are missing are declared. Default yes. With no, they have to be there, and as the promises of
    /// this transport need them, which is seen when this is opened and an endpoint connects; what is otherwise is refused by name. For accounts
    /// that may not configure: let another declare them once, with the same options, by connecting each endpoint.
    pub const fn declare(mut self, declare: bool) -> Self {
        self.declare = declare;
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// What the connection is called in the server's lists. Default `hapax`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into());
        self
    }

    /// Shows the server a token and signs its challenge, with what is in a file of credentials (`.creds`): its text. Users with a
    /// password, or with a token, are named in the URL.
    pub fn credentials(mut self, text: impl Into<String>) -> Self {
        self.credentials = Credentials(Some(text.into()));
        self
    }

    /// Trusts servers whose certificate was signed by an authority in `pem` too, beside those of Mozilla's list: for an authority
    /// of one's own. One or more certificates, as text. Needs `tls://` and the feature `tls-ring`.
    pub fn certificate_authority(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Shows the server a certificate, with its key, both PEM. Needs `tls://` and the feature `tls-ring`.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// The first word of the names of all streams and subjects, 1 to 40 ASCII letters, digits, `-` and `_`. Default `hapax`.
    /// Endpoints see each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Queues on the server at `url` (`nats://USER:PASSWORD@HOST:PORT`, or `tls://` with the feature `tls-ring`), or on a cluster: several
    /// with commas between.
    ///
    /// # Errors
    /// [`TransportError`] for a malformed URL or prefix, for a server that cannot be reached or does not let this account
    /// in, and for one that lacks something this needs; the message names the remedy.
    pub async fn open(self, url: impl AsRef<str>) -> Result<Nats, TransportError> {
        let names = Names::new(&self.prefix)
            .map_err(|problem| TransportError::new(ErrorKind::Misconfigured, "opening NATS queues", problem))?;
        let link = Link::open(url.as_ref(), &self).await?;
        let bytes_max = self.message_bytes_max.min(link.payload_max().saturating_sub(HEADERS_BYTES));
        let broker = Broker {
            link,
            names,
            dispatches: dispatcher::dispatches(self.patience),
            options: self,
            bytes_max,
            seen: Seen::default(),
        };
        broker.set_up().await?;
        broker.tell_what_is_kept();
        Ok(Nats(Arc::new(broker)))
    }
}
