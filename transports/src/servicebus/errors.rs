use std::{error::Error, time::Duration};

use fe2o3_amqp::{
    connection::{ConnectionStopReason, OpenError},
    link::{LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError, SessionStopReason},
    session::BeginError,
    types::{
        definitions::{AmqpError, Error as Said, ErrorCondition, LinkError},
        messaging::Outcome,
    },
};
use hapax_core::ports::{ErrorKind, StoreError, TransportError};

/// Of what a server says, in bytes: it may say much.
const SAID_BYTES_MAX: usize = 300;
const NO_ENTITY: &str = "; create it, or correct the address: `ServiceBus::az_commands` tells how";
const NO_LEAVE: &str =
    "; look at name and key of the shared access policy, and that it may Send and Listen, and at this host's clock";

/// Nothing came back in time.
pub(super) fn late(operation: &'static str, place: &str, patience: Duration, written: bool) -> TransportError {
    TransportError::new(cut_off(written), operation, format!("{place} did not answer within {patience:?}"))
}

/// The link, its session or its connection has ended.
pub(super) fn gone(operation: &'static str, place: &str, said: Option<&Said>, written: bool) -> TransportError {
    match said {
        Some(said) => refusal(operation, place, said, written),
        None => TransportError::new(
            cut_off(written),
            operation,
            format!("{place} cannot be reached, or has ended the connection"),
        ),
    }
}

pub(super) const fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

/// What a server says of a link, a session, a connection or a message that it refuses.
pub(super) fn refusal(operation: &'static str, place: &str, said: &Said, written: bool) -> TransportError {
    let (kind, remedy) = meaning(&said.condition, written);
    let mut text = said.description.clone().unwrap_or_default();
    let mut end = text.len().min(SAID_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    let condition = condition(&said.condition);
    TransportError::new(kind, operation, format!("{place} says {condition}: {text}{remedy}"))
}

fn condition(condition: &ErrorCondition) -> String {
    match condition {
        ErrorCondition::AmqpError(error) => format!("{error:?}"),
        ErrorCondition::ConnectionError(error) => format!("{error:?}"),
        ErrorCondition::SessionError(error) => format!("{error:?}"),
        ErrorCondition::LinkError(error) => format!("{error:?}"),
        ErrorCondition::Custom(name) => name.as_str().to_owned(),
        #[allow(unreachable_patterns)] // A feature of the driver adds one.
        _ => "an error of transactions".to_owned(),
    }
}

/// What a condition means, and the remedy.
fn meaning(condition: &ErrorCondition, written: bool) -> (ErrorKind, &'static str) {
    match condition {
        ErrorCondition::LinkError(LinkError::MessageSizeExceeded) => {
            (ErrorKind::TooLarge, "; say what the queue takes (ServiceBusOptions::message_bytes_max)")
        }
        ErrorCondition::AmqpError(AmqpError::UnauthorizedAccess) => (ErrorKind::Denied, NO_LEAVE),
        ErrorCondition::AmqpError(AmqpError::NotFound) => (ErrorKind::Misconfigured, NO_ENTITY),
        ErrorCondition::AmqpError(AmqpError::NotAllowed | AmqpError::NotImplemented) => {
            (ErrorKind::Misconfigured, "; queues with sessions are not supported yet")
        }
        ErrorCondition::AmqpError(AmqpError::ResourceLimitExceeded) => (ErrorKind::Unavailable, "; it is full"),
        ErrorCondition::Custom(name) if name.contains("server-busy") => {
            (ErrorKind::Unavailable, "; it is asked more than its tier takes")
        }
        ErrorCondition::Custom(name) if name.contains("entity-disabled") => {
            (ErrorKind::Misconfigured, "; enable the entity")
        }
        ErrorCondition::Custom(name) if name.contains("auth-failed") => (ErrorKind::Denied, NO_LEAVE),
        _ => (cut_off(written), ""),
    }
}

/// A send whose entity is not there: it may come.
pub(super) fn for_now(error: TransportError, operation: &'static str) -> TransportError {
    match error.kind() {
        ErrorKind::Misconfigured => TransportError::new(ErrorKind::Unavailable, operation, without(&error)),
        _ => again(&error, operation),
    }
}

fn without(error: &TransportError) -> String {
    let text = error.to_string();
    text.split_once(": ").map_or_else(|| text.clone(), |(_, said)| said.to_owned())
}

/// The same error, told of another message.
pub(super) fn again(error: &TransportError, operation: &'static str) -> TransportError {
    TransportError::new(error.kind(), operation, without(error))
}

pub(super) fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    StoreError::new(error.kind(), operation, "Service Bus could not do it").caused_by(error)
}

/// A connection that could not be opened.
pub(super) fn of_open(operation: &'static str, place: &str, error: OpenError) -> TransportError {
    match &error {
        OpenError::SaslError { .. } => {
            TransportError::new(ErrorKind::Denied, operation, format!("{place} does not let this account in{NO_LEAVE}"))
        }
        OpenError::RemoteClosedWithError(said) => refusal(operation, place, said, false),
        OpenError::ProtocolHeaderMismatch(_) => TransportError::new(
            ErrorKind::Misconfigured,
            operation,
            format!("{place} does not speak AMQP 1.0 with SASL: look at host and port"),
        ),
        _ => gone(operation, place, None, false).caused_by(error),
    }
}

pub(super) fn of_begin(operation: &'static str, place: &str, error: BeginError) -> TransportError {
    let said = match &error {
        BeginError::RemoteEndedWithError(said) => Some(said),
        BeginError::ConnectionStopped(reason) => of_connection(reason),
        _ => None,
    };
    gone(operation, place, said, false)
}

pub(super) fn of_sender(operation: &'static str, place: &str, error: SenderAttachError) -> TransportError {
    let said = match &error {
        SenderAttachError::RemoteClosedWithError(said) => Some(said),
        SenderAttachError::SessionStopped(reason) => of_session(reason),
        _ => None,
    };
    gone(operation, place, said, false).caused_by(plain(&error))
}

pub(super) fn of_receiver(operation: &'static str, place: &str, error: ReceiverAttachError) -> TransportError {
    let said = match &error {
        ReceiverAttachError::RemoteClosedWithError(said) => Some(said),
        ReceiverAttachError::SessionStopped(reason) => of_session(reason),
        _ => None,
    };
    gone(operation, place, said, false).caused_by(plain(&error))
}

/// Why nothing comes any more.
pub(super) fn of_recv(operation: &'static str, place: &str, error: &RecvError) -> TransportError {
    let said = match error {
        RecvError::LinkStateError(state) => of_link(state),
        _ => None,
    };
    gone(operation, place, said, false).caused_by(plain(error))
}

/// Why a message was not confirmed. `written`: some of it may be there.
pub(super) fn of_send(operation: &'static str, place: &str, error: &SendError, written: bool) -> TransportError {
    match error {
        SendError::MessageSizeExceeded(_) => {
            let why = "it is larger than this queue takes: say what it takes (ServiceBusOptions::message_bytes_max)";
            TransportError::new(ErrorKind::TooLarge, operation, why)
        }
        SendError::MessageEncodeError => {
            TransportError::new(ErrorKind::Malformed, operation, "it cannot be encoded as a message of AMQP")
        }
        SendError::LinkStateError(state) => gone(operation, place, of_link(state), written).caused_by(plain(error)),
        _ => gone(operation, place, None, written).caused_by(plain(error)),
    }
}

/// What became of a message, as the server says.
pub(super) fn of_outcome(operation: &'static str, place: &str, outcome: &Outcome) -> Result<(), TransportError> {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        Outcome::Rejected(rejected) => Err(match &rejected.error {
            Some(said) => refusal(operation, place, said, false),
            None => TransportError::new(ErrorKind::Unavailable, operation, format!("{place} rejects it")),
        }),
        _ => {
            let why = format!("{place} does not take it now: it is full, or there is no such queue{NO_ENTITY}");
            Err(TransportError::new(ErrorKind::Unavailable, operation, why))
        }
    }
}

fn of_link(state: &LinkStateError) -> Option<&Said> {
    match state {
        LinkStateError::RemoteDetachedWithError(said) | LinkStateError::RemoteClosedWithError(said) => Some(said),
        LinkStateError::SessionStopped(reason) => of_session(reason),
        _ => None,
    }
}

fn of_session(reason: &SessionStopReason) -> Option<&Said> {
    match reason {
        SessionStopReason::EndedWithError(said) | SessionStopReason::RemoteEndedWithError(said) => Some(said),
        SessionStopReason::ConnectionStopped(reason) => of_connection(reason),
        _ => None,
    }
}

fn of_connection(reason: &ConnectionStopReason) -> Option<&Said> {
    match reason {
        ConnectionStopReason::ClosedWithError(said) | ConnectionStopReason::RemoteClosedWithError(said) => Some(said),
        _ => None,
    }
}

/// By its text alone: the driver's errors are no type of ours, and some cannot be shared.
fn plain(error: &dyn Error) -> String {
    error.to_string()
}
