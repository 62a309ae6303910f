//! How queues are opened: each bound with its default and the reason for it, and which of them a queue keeps from its declaration on.

use std::{fmt, sync::Arc, time::Duration};

use hapax_core::ports::{ErrorKind, TransportError};

use super::{Broker, RabbitMq, dispatcher, letters::Letters, link::Link, names::Names, publisher::Publisher};
use crate::written_as::WrittenAs;

/// Messages that the server hands out ahead of their settling, to one endpoint. Default 1,024: as many as an endpoint
/// handles at a time unless told otherwise.
const PREFETCH: u16 = 1024;
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 1 MiB, as in the
/// other queues; the server keeps all that are under way in memory.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// What RabbitMQ 3 takes unless configured, 128 MiB, less what headers may take. RabbitMQ 4 takes 16 MiB unless its `max_message_size` says more.
const MESSAGE_BYTES_LIMIT: usize = 127 << 20;
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long connecting, or a confirmation, may take. Default 30 s: a server that is short of memory or disk stops reading
/// from those who publish, and a write that hangs must end for its message to be tried again.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shorter, a queue could be gone between its declaration and its first receiver.
const UNUSED_MIN: Duration = Duration::from_secs(1);
/// What the server takes, in milliseconds as a signed number of 32 bits.
const UNUSED_LIMIT: Duration = Duration::from_secs(24 * 24 * 3600);
/// Prefix of everything that is declared.
const PREFIX: &str = "hapax";

/// How a [`RabbitMq`] is opened. From [`RabbitMq::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct RabbitMqOptions {
    pub(super) prefetch: u16,
    pub(super) message_bytes_max: usize,
    pub(super) ordered_keys: bool,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) declare: bool,
    pub(super) unused_max: Option<Duration>,
    pub(super) written_as: WrittenAs,
    pub(super) connection_name: Option<String>,
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

impl RabbitMqOptions {
    pub(super) fn new() -> Self {
        Self {
            prefetch: PREFETCH,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ordered_keys: false,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            declare: true,
            unused_max: None,
            written_as: WrittenAs::Plain,
            connection_name: None,
            tls: Tls::default(),
            prefix: PREFIX.to_owned(),
        }
    }

    /// Messages that the server hands out to an endpoint ahead of their settling, at least one. Default 1,024. All of them
    /// are in memory, and none goes to another process of the endpoint.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Largest message, in bytes, at most 127 MiB. Default 1 MiB. Larger ones are refused before anything is saved. Set it no higher than the
    /// server's `max_message_size`, of which the protocol tells nothing: what the server refuses has been saved, and is set aside among the dead letters, with its destination.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Whether one process at a time receives the messages of an endpoint, in the order in which they came (a single active
    /// consumer). Default no. It is a property of a queue from its declaration on: every process has to say the same, and a
    /// queue that was declared otherwise is an error. A message that is retried loses its place.
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

    /// Whether queues and exchanges that are missing are declared. Default yes. With no, they only have to be there, which is seen
    /// when this is opened and an endpoint connects: for accounts that may not configure. What they are like such an account
    /// cannot ask, nor what is bound to them: so let another declare them once, with the same options, by connecting each
    /// endpoint and listing its dead letters.
    pub const fn declare(mut self, declare: bool) -> Self {
        self.declare = declare;
        self
    }

    /// After how long without a receiver the queues of an endpoint are removed, with all that is in them; from 1 s to 24
    /// days. Default never. For endpoints whose names are used once, such as addresses for the replies to one process. It
    /// is a property of a queue from its declaration on. Their dead letters go so long after they were listed last, also of an
    /// endpoint that is busy: keep them in a store.
    pub fn remove_unused(mut self, after: Duration) -> Self {
        self.unused_max = Some(after.clamp(UNUSED_MIN, UNUSED_LIMIT));
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// What the connections are called in the server's lists. Default `hapax`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into());
        self
    }

    /// Trusts servers whose certificate was signed by an authority in `pem` too, beside those of Mozilla's list: for an authority
    /// of one's own. One or more certificates, as text. Needs `amqps://` and the feature `tls-ring`.
    pub fn certificate_authority(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Shows the server a certificate, with its key, both PEM. Where the server takes that for the account's name,
    /// `?auth_mechanism=external` in the URL. Needs `amqps://` and the feature `tls-ring`.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// The first word of the names of all queues and exchanges, 1 to 40 ASCII letters, digits, `-`, `_` and `.`. Default
    /// `hapax`. Endpoints see each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Queues on the server at `url` (`amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` with the feature `tls-ring`).
    ///
    /// # Errors
    /// [`TransportError`] for a malformed URL or prefix, for a server that cannot be reached or does not let this account
    /// in, and for one that lacks something this needs; the message names the remedy.
    pub async fn open(self, url: impl AsRef<str>) -> Result<RabbitMq, TransportError> {
        let names = Names::new(&self.prefix)
            .map_err(|problem| TransportError::new(ErrorKind::Misconfigured, "opening RabbitMQ queues", problem))?;
        let link = Link::new(url.as_ref(), &self)?;
        let publisher = Publisher::new(self.patience);
        let broker = Broker {
            link,
            names,
            dispatches: dispatcher::dispatches(self.patience),
            options: self,
            publisher,
            letters: Letters::default(),
        };
        broker.set_up().await?;
        Ok(RabbitMq(Arc::new(broker)))
    }
}
