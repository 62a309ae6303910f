//! Why a request has no answer, and whether it may have taken effect all the same.

use std::time::Duration;

use crate::{ids::TypeName, ports::TransportError, time::Timestamp};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request cannot be encoded, its address is malformed, or the transport can never take it (too large, for example). It was
    /// not sent.
    #[error("the request cannot be sent as it is: {0}")]
    Invalid(String),
    /// So many requests wait as the client may have at a time. This one was not sent.
    #[error("{max} requests wait for answers already; ask for fewer at a time, or raise waiting_max")]
    TooMany {
        /// [`RequestSettings::waiting_max`](super::RequestSettings::waiting_max).
        max: usize,
    },
    /// The transport has refused the request for good. It was not sent.
    #[error("the transport has refused the request for good")]
    NotSent(#[source] TransportError),
    /// No answer came in time. **The outcome is unknown:** the request may have taken effect, may take effect later, or never. Under
    /// the same key it can be asked again. An endpoint that handles the request without answering it looks like this, and so does one
    /// that nobody runs.
    #[error(
        "no answer within {within:?}; the request may have taken effect or may yet: ask again under the same key to learn"
    )]
    TimedOut {
        /// How long it has waited.
        within: Duration,
        /// Why the transport never confirmed that it has the request, where it did not.
        #[source]
        unconfirmed: Option<TransportError>,
    },
    /// The endpoint has set the request aside, because its key was used before with another type or body. It has no effect. Known to
    /// clients that [look among the dead letters](super::RequestClientBuilder::dead_letters) only; for others it is
    /// [`TimedOut`](Self::TimedOut), and so it is where the endpoint [drops](crate::ReusedId::Drop) such messages.
    #[error("the idempotency key was used before for another request; use a new key")]
    KeyReused,
    /// The request is among the dead letters and no answer came: its handler has failed for good. Known to clients that
    /// [look there](super::RequestClientBuilder::dead_letters) only; for others it is [`TimedOut`](Self::TimedOut).
    ///
    /// It may have taken effect all the same: rarely, when another copy of it was handled in the same moment; and when a person has
    /// given it again since `time`. Under the same key it can be asked again, and is handled if it has not been.
    #[error("the request was set aside at {time}: {reason}")]
    SetAside {
        /// Why, as its dead letter says.
        reason: String,
        /// When, by the endpoint's clock.
        time: Timestamp,
    },
    /// The endpoint has answered, with a message of another type. The request has taken effect.
    #[error("the answer is of type `{got}`, not of type `{asked}`")]
    OtherType {
        /// Which was asked for.
        asked: &'static str,
        /// Which came.
        got: TypeName,
    },
    /// The endpoint has answered, but this program cannot read it. The request has taken effect.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// The client was stopped. **The outcome is unknown** if the request was asked before.
    #[error(
        "the client was stopped; the request may have taken effect or may yet: ask again under the same key to learn"
    )]
    Stopped,
}

impl RequestError {
    /// Whether the request may have taken effect, or may yet, without an answer that tells: ask again under the same key.
    #[must_use]
    pub const fn is_unknown_outcome(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::SetAside { .. } | Self::Stopped)
    }
}
