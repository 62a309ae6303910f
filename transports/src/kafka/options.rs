//! How queues are opened: each bound with its default and the reason for it, and secrets that are in no text.

use std::{fmt, sync::Arc, time::Duration};

use hapax_core::ports::{ErrorKind, TransportError};

use super::{Broker, Kafka, link::Link, names::Names};
use crate::written_as::WrittenAs;

/// Messages that an endpoint has ahead of their settling. Default 1,024: as many as it handles at a time unless told
/// otherwise.
const PREFETCH: u16 = 1024;
/// Largest message, in bytes as [`Envelope::size`](hapax_core::envelope::Envelope::size) counts. Default 960 KiB: what a broker
/// takes unless configured is 1 MiB, and headers are within it.
const MESSAGE_BYTES_MAX: usize = 960 << 10;
/// More would be an answer that the client library refuses, 100,000,000 bytes, or a request that brokers do, 100 MiB unless configured; less what
/// headers may take, and whatever is beside a batch.
const MESSAGE_BYTES_LIMIT: usize = 95_000_000 - HEADERS_BYTES;
/// Kept for headers, and for what is said beside a message that is set aside.
pub(super) const HEADERS_BYTES: usize = 64 << 10;
/// A copy of a message may come as long after it as the queue lags behind. Default a day: a backlog that is older wants a
/// longer retention.
const REDELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long connecting, or a confirmation, may take. Default 30 s: a cluster that elects a leader answers after some
/// seconds, and a write that hangs must end for its message to be tried again.
const PATIENCE: Duration = Duration::from_secs(30);
/// The client library counts timeouts in milliseconds, in 31 bits.
const PATIENCE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long a process may be silent before its partitions go to others. Default 30 s, between the 10 s that clients once had
/// and the 45 s that they have now.
const SESSION: Duration = Duration::from_secs(30);
/// Shorter ones would end on the way. A broker takes none below its `group.min.session.timeout.ms`, 6 s unless configured.
const SESSION_MIN: Duration = Duration::from_secs(1);
/// A broker takes no longer one unless configured.
const SESSION_LIMIT: Duration = Duration::from_secs(1800);
/// How long a topic keeps messages. Default 14 days: what nobody reads within it is lost, and the broker's own default, 7 days, is
/// a holiday.
const RETENTION: Duration = Duration::from_secs(14 * 24 * 3600);
/// Partitions of a topic. Default 4: so many processes can share an endpoint's work; each costs the broker files and memory.
const PARTITIONS: u16 = 4;
/// A broker takes more, and is the slower for it.
const PARTITIONS_LIMIT: u16 = 4096;
/// Messages in a batch. Default 10,000, the client library's own: their bytes are what bounds it.
const BATCH: u32 = 10_000;
/// The client library takes no more.
const BATCH_LIMIT: u32 = 1_000_000;
/// Prefix of everything that is declared.
const PREFIX: &str = "hapax";

/// How a [`Kafka`] is opened. From [`Kafka::options`].
#[derive(Debug, Clone)]
#[must_use]
pub struct KafkaOptions {
    pub(super) prefetch: u16,
    pub(super) message_bytes_max: usize,
    pub(super) ordered_keys: bool,
    pub(super) redelivery_max: Duration,
    pub(super) patience: Duration,
    pub(super) session: Duration,
    pub(super) retention: Duration,
    pub(super) partitions: u16,
    /// As the broker's own default says, if nothing else was.
    pub(super) replicas: Option<u16>,
    pub(super) batch: u32,
    pub(super) declare: bool,
    pub(super) written_as: WrittenAs,
    pub(super) connection_name: Option<String>,
    pub(super) mechanism: Mechanism,
    pub(super) tls: Tls,
    #[cfg(feature = "preview-kafka-transactions")]
    pub(super) transactions: Option<super::Transactions>,
    /// As goes with transactions, if nothing was said.
    #[cfg(feature = "preview-kafka-transactions")]
    pub(super) read_committed: Option<bool>,
    prefix: String,
}

/// How a user shows who it is: the name and the password are in the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// `PLAIN`: the password is sent as it is, which wants TLS.
    Plain,
    /// `SCRAM-SHA-256`. Needs the feature `kafka-tls`.
    ScramSha256,
    /// `SCRAM-SHA-512`. Needs the feature `kafka-tls`.
    ScramSha512,
}

impl Mechanism {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Beside what the system trusts.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// PEM.
    pub(super) authority: Option<String>,
    /// Certificate and key, PEM.
    pub(super) client: Option<(String, String)>,
    pub(super) accepts_any: bool,
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authority", &self.authority.is_some())
            .field("client", &self.client.is_some())
            .field("accepts_any", &self.accepts_any)
            .finish()
    }
}

/// What must not be told.
#[derive(Clone, Default)]
pub(super) struct Secrets(pub(super) Vec<String>);

impl Secrets {
    /// `text` without any of them.
    pub(super) fn scrubbed(&self, text: &str) -> String {
        let secrets = self.0.iter().filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "..."))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl KafkaOptions {
    pub(super) fn new() -> Self {
        Self {
            prefetch: PREFETCH,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ordered_keys: false,
            redelivery_max: REDELIVERY_MAX,
            patience: PATIENCE,
            session: SESSION,
            retention: RETENTION,
            partitions: PARTITIONS,
            replicas: None,
            batch: BATCH,
            declare: true,
            written_as: WrittenAs::Plain,
            connection_name: None,
            mechanism: Mechanism::Plain,
            tls: Tls::default(),
            #[cfg(feature = "preview-kafka-transactions")]
            transactions: None,
            #[cfg(feature = "preview-kafka-transactions")]
            read_committed: None,
            prefix: PREFIX.to_owned(),
        }
    }

    /// Messages that an endpoint takes ahead of their settling, at least one. Default 1,024. All of them are in memory; the
    /// client library has up to 16 MiB more.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Largest message, in bytes, at most 94,934,464. Default 960 KiB. The topics that are declared take 64 KiB more, for headers;
    /// those that are there already keep their own `max.message.bytes`. Larger ones are refused before anything is saved.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_LIMIT);
        self
    }

    /// Whether a message that is to be tried again holds up what comes behind it in its partition. Default no: its partition is gone
    /// on with. Messages of one partition key are in one partition, and as long as none is retried they are given in order in any
    /// case.
    pub const fn ordered_keys(mut self, ordered: bool) -> Self {
        self.ordered_keys = ordered;
        self
    }

    /// The longest time after which a copy of a message may still come: how far the queue may fall behind. Default a day;
    /// endpoints must remember messages for longer, unless they go by [evidence](hapax_core::ports::Marks). It is never longer than the
    /// [retention](Self::retention) in effect.
    pub const fn redelivery_max(mut self, longest: Duration) -> Self {
        self.redelivery_max = longest;
        self
    }

    /// How long connecting, a declaration or a confirmation may take, from 1 ms to a day. Default 30 s. A message whose
    /// confirmation takes longer may have been sent.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience.clamp(Duration::from_millis(1), PATIENCE_LIMIT);
        self
    }

    /// How long a process may be silent before its partitions go to others, from 1 s to half an hour. Default 30 s. Brokers take none
    /// below their `group.min.session.timeout.ms`, 6 s unless configured. One that stops hands its partitions over at once.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = session.clamp(SESSION_MIN, SESSION_LIMIT);
        self
    }

    /// How long topics that are declared keep messages, read or not, at least a second. Default 14 days. What an endpoint has not read
    /// by then is lost, and it is told so.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(Duration::from_secs(1));
        self
    }

    /// Partitions of each topic that is declared, from 1 to 4096. Default 4: so many processes share an endpoint's work, and so many lanes there are
    /// for order. Topics that are there already keep theirs; more can be added to them at any time.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions.clamp(1, PARTITIONS_LIMIT);
        self
    }

    /// On how many brokers each topic that is declared is kept. Default what the broker says (`default.replication.factor`). Where
    /// messages must outlive a broker: 3, with the brokers' `min.insync.replicas` at 2.
    pub fn replicas(mut self, brokers: u16) -> Self {
        self.replicas = Some(brokers.max(1));
        self
    }

    /// Messages that go to a partition in one batch, from 1 to a million. Default 10,000. One, with brokers that count wrongly where the last
    /// batch of a partition ends, as Tansu 0.6 does: with them nothing could be shown of messages that came together.
    pub fn batch(mut self, messages: u32) -> Self {
        self.batch = messages.clamp(1, BATCH_LIMIT);
        self
    }

    /// Whether topics that are missing are declared. Default yes. With no, they only have to be there, which is seen when an endpoint connects
    /// or a message is sent: for users that may not create any. The chapter on Kafka lists them.
    pub const fn declare(mut self, declare: bool) -> Self {
        self.declare = declare;
        self
    }

    /// What messages that are sent look like. Default [`WrittenAs::Plain`]. All are read, whatever is said here.
    pub fn written_as(mut self, written_as: WrittenAs) -> Self {
        self.written_as = written_as;
        self
    }

    /// What the clients are called in the broker's logs. Default `hapax`.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into());
        self
    }

    /// How the user that the URL names shows who it is. Default [`Mechanism::Plain`].
    pub const fn mechanism(mut self, mechanism: Mechanism) -> Self {
        self.mechanism = mechanism;
        self
    }

    /// Trusts brokers whose certificate was signed by an authority in `pem`, and no others: for an authority of one's own. One
    /// or more certificates, as text. Needs `kafka+tls://` and the feature `kafka-tls`.
    pub fn certificate_authority(mut self, pem: impl Into<String>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Shows brokers a certificate, with its key, both PEM. Needs `kafka+tls://` and the feature `kafka-tls`.
    pub fn client_certificate(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// Takes any certificate of any broker: whoever is on the way can read and change everything, passwords included. For a
    /// try on one's own machine.
    pub const fn danger_accept_any_certificate(mut self) -> Self {
        self.tls.accepts_any = true;
        self
    }

    /// The first word of the names of all topics and groups, 1 to 40 ASCII letters, digits and `-`. Default `hapax`.
    /// Endpoints see each other under one prefix only.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Queues on the cluster at `url` (`kafka://USER:PASSWORD@HOST:PORT`, or `kafka+tls://` with the feature `kafka-tls`; several
    /// brokers with commas between).
    ///
    /// # Errors
    /// [`TransportError`] for a malformed URL or prefix, and for a cluster that cannot be reached or does not let this user
    /// in; the message names the remedy.
    pub async fn open(self, url: impl AsRef<str>) -> Result<Kafka, TransportError> {
        let names = Names::new(&self.prefix)
            .map_err(|problem| TransportError::new(ErrorKind::Misconfigured, "opening Kafka queues", problem))?;
        let link = Link::open(url.as_ref(), &self, names.nobodys()).await?;
        #[cfg(feature = "preview-kafka-transactions")]
        let transacting = super::transactions::opened(&self, &link, &names).await?;
        Ok(Kafka(Arc::new(Broker {
            link,
            names,
            options: self,
            #[cfg(feature = "preview-kafka-transactions")]
            transacting,
        })))
    }
}
