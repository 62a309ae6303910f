//! What writers are asked for.

use std::sync::Arc;

use hapax_core::ports::TransportError;
use hapax_stores::sql::mysql::wire::Fault;
use sqlx::mysql::MySqlArguments;
use tokio::sync::oneshot;

use super::{
    super::errors::transport_error,
    arguments::{Bind, as_i64},
    receiver::Claim,
    signals::{Looked, Position},
};

/// What a message or a lease takes in a text beside its bytes, generously.
const PART_BYTES: usize = 512;

/// What a writer is asked for.
pub(super) enum Ask {
    /// Ends leases, or begins them anew.
    End(End),
    Send(Send),
    Take(Take),
    /// Write what is queued, then close.
    Close,
}

/// Told is how many leases were still held.
pub(super) struct End {
    pub(super) operation: &'static str,
    pub(super) leases: Vec<Lease>,
    /// `None`: nobody asks what became of it.
    pub(super) answer: Option<oneshot::Sender<Result<usize, TransportError>>>,
}

pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) token: i64,
    /// It was given in the order of a key.
    pub(super) ordered: bool,
    pub(super) what: What,
}

impl Lease {
    /// For [`super::statements::ack_alone`].
    pub(super) fn arguments(&self) -> MySqlArguments {
        let mut arguments = MySqlArguments::default();
        arguments.bind(self.id).bind(self.token);
        arguments
    }

    fn size(&self) -> usize {
        match &self.what {
            What::SetAside { reason, .. } => 2 * reason.len() + 2 * PART_BYTES,
            _ => PART_BYTES,
        }
    }
}

pub(super) enum What {
    Ack,
    Retry { delay: i64, uncounted: i64 },
    SetAside { endpoint: Arc<str>, reason: String },
    Extend { lease: i64 },
}

/// Messages of one call. Told are the queues they went to.
pub(super) struct Send {
    pub(super) operation: &'static str,
    pub(super) messages: Vec<Message>,
    pub(super) answer: oneshot::Sender<Result<Vec<i64>, TransportError>>,
}

pub(super) struct Message {
    pub(super) queue: Option<i64>,
    pub(super) topic: Option<String>,
    pub(super) due: i64,
    pub(super) key: Option<String>,
    pub(super) id: String,
    pub(super) envelope: Vec<u8>,
}

impl Message {
    /// For [`super::statements::send_alone`].
    pub(super) fn arguments(&self, queue: i64) -> MySqlArguments {
        let mut arguments = MySqlArguments::default();
        arguments.bind(queue).bind(self.due).bind(as_i64(self.envelope.len()));
        arguments.bind(self.key.as_ref().map(String::as_bytes)).bind(self.id.as_bytes()).bind(&self.envelope[..]);
        arguments
    }

    /// What it takes in a text, in bytes: each of its own is two digits there.
    pub(super) fn size(&self) -> usize {
        let key = self.key.as_ref().map_or(0, String::len);
        2 * (self.envelope.len() + self.id.len() + key) + PART_BYTES
    }
}

pub(super) struct Take {
    pub(super) operation: &'static str,
    pub(super) wanted: Wanted,
    /// Keys of which something was settled here; `None`: no order is asked for.
    pub(super) freed: Option<Vec<Arc<str>>>,
    /// What becomes of the rows.
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Result<(Claim, Looked), TransportError>>,
}

/// What a take gives, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) queue: i64,
    pub(super) from: Position,
    pub(super) max: usize,
    /// The last one aside.
    pub(super) bytes_max: usize,
    pub(super) token: i64,
    pub(super) lease: i64,
}

impl Ask {
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::End(end) => end.leases.len(),
            Self::Send(send) => send.messages.len(),
            Self::Take(_) | Self::Close => 1,
        }
    }

    /// Whether it gives a message the time of its transaction, which a take may pass before the commit. How long a take has
    /// waited for another says nothing of that.
    pub(super) fn dates(&self) -> bool {
        match self {
            Self::Send(_) => true,
            Self::End(end) => end.leases.iter().any(|lease| matches!(lease.what, What::Retry { .. })),
            Self::Take(_) | Self::Close => false,
        }
    }

    /// What it takes in a text, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Send(send) => send.messages.iter().map(Message::size).sum(),
            Self::End(end) => end.leases.iter().map(Lease::size).sum(),
            Self::Take(_) | Self::Close => PART_BYTES,
        }
    }

    /// Nobody waits for it any more, and nothing of it has been written.
    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::End(end) => end.answer.as_ref().is_some_and(oneshot::Sender::is_closed),
            Self::Send(send) => send.answer.is_closed(),
            Self::Take(take) => take.answer.is_closed(),
            Self::Close => true,
        }
    }

    pub(super) fn fail(self, fault: &Fault, place: &str) {
        let error = |operation| transport_error(operation, fault.store_error(operation, place));
        match self {
            Self::End(End { operation, answer: Some(answer), .. }) => drop(answer.send(Err(error(operation)))),
            Self::Send(Send { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::Take(Take { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::End(_) | Self::Close => tracing::debug!(place, ?fault, "what nobody waits for has failed"),
        }
    }
}

/// What is one statement without a transaction around it, since it is a group by itself.
pub(super) enum Alone<'g> {
    Ack(&'g Lease),
    Message(i64, &'g Message),
}

pub(super) fn alone(group: &[Ask]) -> Option<Alone<'_>> {
    let [ask] = group else { return None };
    match ask {
        Ask::End(End { leases, .. }) => match &leases[..] {
            [lease] if matches!(lease.what, What::Ack) => Some(Alone::Ack(lease)),
            _ => None,
        },
        Ask::Send(Send { messages, .. }) => match &messages[..] {
            [message] => Some(Alone::Message(message.queue?, message)),
            _ => None,
        },
        Ask::Take(_) | Ask::Close => None,
    }
}
