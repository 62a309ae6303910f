//! What writers are asked for.

use std::sync::Arc;

use hapax_core::ports::{StoreError, TransportError};
use tokio::sync::oneshot;

use super::{
    super::errors::transport_error,
    Queues,
    receiver::Handover,
    signals::{Looked, Position},
};

/// What a message or a lease takes in a group beside its bytes, generously.
const PART_BYTES: usize = 512;

/// What a writer is asked for.
pub(crate) enum Ask<Q: Queues> {
    /// Ends leases, or begins them anew.
    End(End),
    Send(Send),
    Take(Take<Q>),
    /// Write what is queued, then close.
    Close,
}

/// Told is how many leases were still held.
pub(crate) struct End {
    pub(crate) operation: &'static str,
    pub(crate) leases: Vec<Lease>,
    /// `None`: nobody asks what became of it.
    pub(crate) answer: Option<oneshot::Sender<Result<usize, TransportError>>>,
}

pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// It was given in the order of a key.
    pub(crate) ordered: bool,
    pub(crate) what: What,
}

impl Lease {
    fn size(&self) -> usize {
        match &self.what {
            What::SetAside { reason, .. } => 2 * reason.len() + 2 * PART_BYTES,
            _ => PART_BYTES,
        }
    }
}

pub(crate) enum What {
    Ack,
    Retry { delay: i64, uncounted: i64 },
    SetAside { endpoint: Arc<str>, reason: String },
    Extend { lease: i64 },
}

/// Messages of one call. Told are the queues they went to.
pub(crate) struct Send {
    pub(crate) operation: &'static str,
    pub(crate) messages: Vec<Message>,
    pub(crate) answer: oneshot::Sender<Result<Vec<i64>, TransportError>>,
}

pub(crate) struct Message {
    pub(crate) queue: Option<i64>,
    pub(crate) topic: Option<String>,
    pub(crate) due: i64,
    pub(crate) key: Option<String>,
    pub(crate) id: String,
    pub(crate) envelope: Vec<u8>,
}

impl Message {
    /// What it takes in a group, in bytes: twice its own, which are digits where a group is a text.
    pub(crate) fn size(&self) -> usize {
        let key = self.key.as_ref().map_or(0, String::len);
        2 * (self.envelope.len() + self.id.len() + key) + PART_BYTES
    }
}

pub(crate) struct Take<Q: Queues> {
    pub(crate) operation: &'static str,
    pub(crate) wanted: Wanted,
    /// Keys of which something was settled here; `None`: no order is asked for.
    pub(crate) freed: Option<Vec<Arc<str>>>,
    /// What becomes of the rows.
    pub(crate) handover: Handover<Q>,
    pub(crate) answer: oneshot::Sender<Result<(Handover<Q>, Looked), TransportError>>,
}

/// What a take gives, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) queue: i64,
    pub(crate) from: Position,
    pub(crate) max: usize,
    /// The last one aside.
    pub(crate) bytes_max: usize,
    pub(crate) token: i64,
    pub(crate) lease: i64,
}

impl<Q: Queues> Ask<Q> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::End(end) => end.leases.len(),
            Self::Send(send) => send.messages.len(),
            Self::Take(_) | Self::Close => 1,
        }
    }

    /// What it takes in a group, in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Send(send) => send.messages.iter().map(Message::size).sum(),
            Self::End(end) => end.leases.iter().map(Lease::size).sum(),
            Self::Take(_) | Self::Close => PART_BYTES,
        }
    }

    /// Nobody waits for it any more, and nothing of it has been written.
    pub(crate) fn is_left(&self) -> bool {
        match self {
            Self::End(end) => end.answer.as_ref().is_some_and(oneshot::Sender::is_closed),
            Self::Send(send) => send.answer.is_closed(),
            Self::Take(take) => take.answer.is_closed(),
            Self::Close => true,
        }
    }

    /// `error` of what is being done.
    pub(crate) fn fail(self, error: &dyn Fn(&'static str) -> StoreError) {
        let error = |operation| transport_error(operation, error(operation));
        match self {
            Self::End(End { operation, answer: Some(answer), .. }) => drop(answer.send(Err(error(operation)))),
            Self::Send(Send { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::Take(Take { operation, answer, .. }) => drop(answer.send(Err(error(operation)))),
            Self::End(End { operation, .. }) => tracing::debug!(error = %error(operation), "nobody waits for it"),
            Self::Close => {}
        }
    }
}

pub(crate) fn leases<Q: Queues>(group: &[Ask<Q>]) -> impl Iterator<Item = &Lease> {
    let leases = group.iter().filter_map(|ask| if let Ask::End(end) = ask { Some(&end.leases) } else { None });
    leases.flatten()
}

pub(crate) fn messages<Q: Queues>(group: &[Ask<Q>]) -> impl Iterator<Item = &Message> {
    let messages = group.iter().filter_map(|ask| if let Ask::Send(send) = ask { Some(&send.messages) } else { None });
    messages.flatten()
}
