//! How queues are opened: each bound with its default and the reason for it, and how much of what it has confirmed a server may lose.

use std::{fmt, sync::Arc, time::Duration};

use hapax_core::ports::{ErrorKind, TransportError};

use super::{
    Broker, RedisStreams, dispatcher,
    link::{Lane, Link},
    names::Names,
};
use crate::written_as::WrittenAs;

/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB, as in the
/// other queues; the server keeps all of them in memory, and nobody else is served while it copies one.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// A message is written at once and read at once; the server itself takes 512 MiB (`proto-max-bulk-len`).
const MESSAGE_BYTES_LIMIT: usize = 64 << 20;
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long connecting, or an answer, may take. Default 30 s: a server whose disk is busy answers no sooner.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a lease lasts. Default 30 s: long enough for any handler, extended while one runs; a process that dies keeps
/// its messages from others for as long as that.
const LEASE: Duration = Duration::from_secs(30);
/// Shorter ones would end while a message is on its way here.
const LEASE_MIN: Duration = Duration::from_millis(10);
/// Shorter, a queue could be gone between its declaration and its first receiver.
const UNUSED_MIN: Duration = Duration::from_secs(1);
/// Prefix of every key.
const PREFIX: &str = "hapax";

/// What a server may lose of what it has confirmed, when it or its machine dies.
///
/// The server is asked for its settings whenever it is connected to, and one that may lose more is refused. What a replica
/// may lack that takes over is another matter: see [the module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MayLose {
    /// Nothing: `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`.
    Nothing,
    /// What was confirmed, sent or acknowledged, in the last seconds: `appendonly yes` and any other `appendfsync`. Messages are lost
    /// then, and handled ones come again.
    Seconds,
    /// Everything: a server that keeps nothing on disk, or a snapshot now and then.
    Everything,
}

/// How a [`RedisStreams`] is opened. From [`RedisStreams::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct RedisStreamsOptions {
    pub(super) message_bytes_max: usize,
    pub(super) ordered_keys: bool,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) lease: Duration,
    pub(super) may_lose: MayLose,
    pub(super) declare: bool,
    pub(super) unused_max: Option<Duration>,
    pub(super) connection_name: Option<String>,
    pub(super) written_as: WrittenAs,
    pub(super) tls: Tls,
    prefix: String,
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

impl RedisStreamsOptions {
    pub(super) fn new() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_MAX,
            ordered_keys: false,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            lease: LEASE,
            may_lose: MayLose::Nothing,
            declare: true,
            unused_max: None,
            connection_name: None,
            written_as: WrittenAs::Plain,
            tls: Tls::default(),
            prefix: PREFIX.to_owned(),
        }
    }

    /// Largest message, in bytes, at most 64 MiB. Default 1 MiB. Larger ones are refused before anything is saved.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Whether one process at a time receives the messages of an endpoint, in the order in which they came. Default no. It is a
    /// property of a queue from its declaration on: every process has to say the same, and a queue that was declared
    /// otherwise is an error. When that process dies, another takes its place once the leases have run out. A message that is
    /// retried loses its place.
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

    /// How long connecting or an answer may take, at least 1 ms. Default 30 s. A message whose confirmation takes longer may have
    /// been sent.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.max(Duration::from_millis(1));
        self
    }

    /// How long a lease lasts unless it is extended, at least 10 ms. Default 30 s. Every process of an endpoint should say the
    /// same: one that says less takes messages over from the others that soon.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// What the server may lose of what it has confirmed. Default [`MayLose::Nothing`]; one that may lose more is refused. It is
    /// the server that decides: this only says what is accepted.
    pub const fn may_lose(mut self, accepted: MayLose) -> Self {
        self.may_lose = accepted;
        self
    }

    /// Whether queues and subscriptions that are missing are declared. Default yes. With no, they only have to be there, which
    /// is seen when an endpoint connects.
    pub const fn declare(mut self, declare: bool) -> Self {
        self.declare = declare;
        self
    }

    /// After how long without a receiver the queue of an endpoint is removed, with all that is in it; at least 1 s. Default never.
    /// For endpoints whose names are used once, such as addresses for the replies to one process. Its dead letters go so long
    /// after the last was added: keep them in a store.
    pub fn remove_unused(mut self, after: Duration) -> Self {
        self.unused_max = Some(after.max(UNUSED_MIN));
        self
    }

    /// What connections, and receivers in the consumer group, are called. Default `hapax`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into());
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// Trusts servers whose certificate was signed by an authority in `pem`, in place of those of Mozilla's list: for an authority
    /// of one's own. One or more certificates, as text. Needs `rediss://` and the feature `tls-ring`.
    pub fn certificate_authority(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Shows the server a certificate, with its key, both PEM. Needs `rediss://` and the feature `tls-ring`.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// The first word of the names of all keys, 1 to 40 ASCII letters, digits, `-`, `_` and `.`. Default `hapax`. Endpoints see
    /// each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Milliseconds after which what nobody uses is removed; 0 for never.
    pub(super) fn unused_millis(&self) -> u64 {
        self.unused_max.map_or(0, |unused| u64::try_from(unused.as_millis()).unwrap_or(u64::MAX / 2))
    }

    /// Queues on the server at `url` (`redis://USER:PASSWORD@HOST:PORT/DATABASE`, or `rediss://` with the feature `tls-ring`;
    /// `unix:///PATH` for a socket).
    ///
    /// # Errors
    /// [`TransportError`] for a malformed URL or prefix, for a server that cannot be reached or does not let this account
    /// in, and for one that may lose or evict what it has confirmed, or a key that these options give a time to live; the message names the
    /// remedy.
    pub async fn open(self, url: impl AsRef<str>) -> Result<RedisStreams, TransportError> {
        let names = Names::new(&self.prefix)
            .map_err(|problem| TransportError::new(ErrorKind::Misconfigured, "opening Redis queues", problem))?;
        let link = Link::new(url.as_ref(), &self)?;
        let lane = Lane::default();
        let found = link.open(&lane).await?.may_lose;
        Ok(RedisStreams(Arc::new(Broker {
            link,
            names,
            dispatches: dispatcher::dispatches(self.patience),
            options: self,
            lane,
            found,
        })))
    }
}
