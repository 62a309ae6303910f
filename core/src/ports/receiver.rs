//! The way in: copies under a lease, settled one by one. Effects do not rest on the lease, for a copy may always come again.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{DeadLetters, Dispatcher, Marks, TransportError};
use crate::{
    envelope::Envelope,
    ids::{EndpointName, TypeName},
};

/// Takes messages under a lease and tells the broker how they ended.
///
/// # Promises
/// 1. *Kept until settled:* a message is given again, to this or another receiver, until it is settled with
///    [`Settlement::Ack`] or [`Settlement::DeadLetter`]; when its lease runs out or its receiver dies, sooner or later. Where
///    the transport keeps [`offsets`](TransportCapabilities::offsets), also after that, as long as one before it is not settled.
/// 2. *Hidden under a lease:* while a lease lasts, the transport does not hand the message to others. Nothing rests on
///    this but speed (S45).
/// 3. *Late settles are refused:* a settle with a lost lease is [`Settled::LeaseLost`] and changes nothing.
/// 4. *Retry comes back:* a message settled with [`Settlement::Retry`] is given again, not before its delay.
/// 5. *Counted:* where [`TransportCapabilities::counts_deliveries`], [`Delivery::attempts`] grows by one each time the
///    message is given, also after a crash.
/// 6. *Not early:* a message is not given before its due time, where that is within what [`TransportCapabilities::delays`] says.
/// 7. *Given in order:* where [`TransportCapabilities::ordered_keys`], messages of one partition key sent one after the
///    other are given in that order as long as none is retried.
#[async_trait]
pub trait Receiver: fmt::Debug + Send + Sync {
    /// Waits for at least one message, however long there is none, and takes up to `max`. Cancel-safe: a message taken by a call that was
    /// dropped comes again.
    ///
    /// # Errors
    /// [`TransportError`] when the broker cannot be reached, within a time that the transport sets itself: nobody else can tell a call that is
    /// never answered from a queue in which there is nothing.
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, TransportError>;

    /// Starts the leases of `receipts` anew; a lease that is lost stays lost. With an error, each may go on as it was, or anew.
    async fn extend(&self, receipts: &[Receipt]) -> Result<(), TransportError>;

    /// Ends a delivery. With an error, the outcome is unknown: the message may come again.
    async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Result<Settled, TransportError>;
}

/// One copy of a message, under a lease.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The message.
    pub envelope: Arc<Envelope>,
    /// Proof of the lease.
    pub receipt: Receipt,
    /// How often the message has been given, this time included; 1 where the transport does not count.
    pub attempts: u32,
}

/// Proof of a lease, meaningful to the receiver that issued it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt(Token);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Token {
    Number(u64),
    Text(Arc<str>),
}

impl Receipt {
    /// A receipt that is a number in the transport.
    #[must_use]
    pub const fn number(number: u64) -> Self {
        Self(Token::Number(number))
    }

    /// A receipt that is text in the transport.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self(Token::Text(text.into()))
    }

    /// The number, if this receipt is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<u64> {
        match self.0 {
            Token::Number(number) => Some(number),
            Token::Text(_) => None,
        }
    }

    /// The text, if this receipt is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.0 {
            Token::Number(_) => None,
            Token::Text(text) => Some(text),
        }
    }
}

/// How a delivery ends. Complete: there is no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Done: never again.
    Ack,
    /// Give it again, not before the delay.
    Retry {
        /// How long to wait.
        delay: Duration,
        /// Whether this delivery counts as an attempt at the message. One that ended for want of a store, or because the
        /// endpoint stops, does not, and a transport that can takes it off its count; otherwise an outage would make
        /// poison of good messages.
        counts: bool,
    },
    /// Set it aside for a person.
    DeadLetter {
        /// Why.
        reason: String,
    },
}

/// Whether a settlement counted. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It did.
    Done,
    /// The lease was lost: somebody else has the message, or will.
    LeaseLost,
}

/// Connects endpoints to a broker.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// What this transport can do.
    fn capabilities(&self) -> TransportCapabilities;

    /// Opens the queue of `endpoint`, subscribed to `types`, declaring or checking what that needs.
    ///
    /// # Errors
    /// [`TransportError`] when the broker cannot be reached or is not set up in the way the promise needs.
    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError>;
}

/// One that others use as well, or that is chosen while the program runs.
#[async_trait]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn capabilities(&self) -> TransportCapabilities {
        (**self).capabilities()
    }

    async fn connect(&self, endpoint: &EndpointName, types: &[TypeName]) -> Result<Connected, TransportError> {
        (**self).connect(endpoint, types).await
    }
}

/// An endpoint's ends of a transport.
#[derive(Debug, Clone)]
pub struct Connected {
    /// Its queue.
    pub receiver: Arc<dyn Receiver>,
    /// Its way out.
    pub dispatcher: Arc<dyn Dispatcher>,
    /// The transport's own place for dead letters, where it has one.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// What shows that copies are gone, where it can be shown.
    pub marks: Option<Arc<dyn Marks>>,
}

/// What a transport can do; checked by its conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportCapabilities {
    /// Name for messages, for example `in-process`.
    pub name: &'static str,
    /// How long a lease lasts unless extended; `None` where it lasts as long as the connection.
    pub lease: Option<Duration>,
    /// It counts deliveries.
    pub counts_deliveries: bool,
    /// For how long it holds messages back until they are due.
    pub delays: Delays,
    /// It keeps the order of messages of one partition key.
    pub ordered_keys: bool,
    /// Largest message, in bytes as [`Envelope::size`] counts.
    pub message_bytes_max: usize,
    /// Messages survive the process.
    pub durable: bool,
    /// The longest time after which a copy of a message may still come.
    pub redelivery_max: Duration,
    /// It keeps an offset for each part of a queue, and not the end of each message: when a receiver dies, what it has settled is given
    /// again where something before it was not settled.
    pub offsets: bool,
    /// It shows when copies are gone: [`Connected::marks`].
    pub marks: bool,
}

/// For how long a transport holds a message back until it is due, counted from when it is given the message. Complete: there is no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delays {
    /// Not at all: whatever is sent is given at once.
    Never,
    /// So long at most. What is due later has to be kept by a [`Schedule`](super::Schedule) until then.
    UpTo(Duration),
    /// However long.
    Any,
}

impl Delays {
    /// Whether a message that is due after `wait` is held back until then.
    #[must_use]
    pub const fn hold(self, wait: Duration) -> bool {
        match self {
            Self::Never => wait.is_zero(),
            Self::UpTo(longest) => wait.as_nanos() <= longest.as_nanos(),
            Self::Any => true,
        }
    }
}
