//! What Service Bus refuses or does not answer, as errors of the ports, with what to do.

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

/// The link, its session or its connection has ended. Whatever the server says of it, it does not say what became of a message that is
/// `written`; and if one was too large, not which: others were on the link too.
pub(super) fn gone(operation: &'static str, place: &str, said: Option<&Said>, written: bool) -> TransportError {
    let Some(said) = said else {
        let why = format!("{place} cannot be reached, or has ended the connection");
        return TransportError::new(cut_off(written), operation, why);
    };
    let kind = match meaning(&said.condition).0 {
        Some(kind) if !written && kind != ErrorKind::TooLarge => kind,
        _ => cut_off(written),
    };
    TransportError::new(kind, operation, told(place, said))
}

pub(super) const fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

/// A message that the server has refused, and nothing else with it.
fn refusal(operation: &'static str, place: &str, said: &Said) -> TransportError {
    let kind = meaning(&said.condition).0.unwrap_or(ErrorKind::Unavailable);
    TransportError::new(kind, operation, told(place, said))
}

/// What a server says, and the remedy.
fn told(place: &str, said: &Said) -> String {
    let text = said.description.as_deref().unwrap_or_default();
    let (condition, remedy) = (condition(&said.condition), meaning(&said.condition).1);
    format!("{place} says {condition}: {}{remedy}", cut(text))
}

/// As much of it as is told.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(SAID_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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

/// What a condition means, where it means more than that it did not work, and the remedy.
fn meaning(condition: &ErrorCondition) -> (Option<ErrorKind>, &'static str) {
    let (kind, remedy) = match condition {
        ErrorCondition::LinkError(LinkError::MessageSizeExceeded) => {
            (ErrorKind::TooLarge, "; say what the queue takes (ServiceBusOptions::message_bytes_max)")
        }
        ErrorCondition::AmqpError(AmqpError::UnauthorizedAccess) => (ErrorKind::Denied, NO_LEAVE),
        ErrorCondition::AmqpError(AmqpError::NotFound) => (ErrorKind::Misconfigured, NO_ENTITY),
        ErrorCondition::AmqpError(AmqpError::NotAllowed | AmqpError::NotImplemented) => (
            ErrorKind::Misconfigured,
            "; with `ordered_keys` an endpoint's queue has to have sessions, and without it none",
        ),
        ErrorCondition::AmqpError(AmqpError::ResourceLimitExceeded) => (ErrorKind::Unavailable, "; it is full"),
        ErrorCondition::Custom(name) if name.contains("server-busy") => {
            (ErrorKind::Unavailable, "; it is asked more than its tier takes")
        }
        ErrorCondition::Custom(name) if name.contains("entity-disabled") => {
            (ErrorKind::Misconfigured, "; enable the entity")
        }
        ErrorCondition::Custom(name) if name.contains("auth-failed") => (ErrorKind::Denied, NO_LEAVE),
        _ => return (None, ""),
    };
    (Some(kind), remedy)
}

/// A send whose entity is not there: it may come.
pub(super) fn for_now(error: TransportError, operation: &'static str) -> TransportError {
    match error.kind() {
        ErrorKind::Misconfigured => TransportError::new(ErrorKind::Unavailable, operation, without(&error)),
        _ => error,
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
        OpenError::RemoteClosedWithError(said) => gone(operation, place, Some(said), false),
        OpenError::ProtocolHeaderMismatch(_) => TransportError::new(
            ErrorKind::Misconfigured,
            operation,
            format!("{place} does not speak AMQP 1.0 with SASL: look at host and port"),
        ),
        _ => gone(operation, place, None, false).caused_by(error),
    }
}

/// A connection on which TLS did not come about.
pub(super) fn of_tls(operation: &'static str, place: &str, error: std::io::Error) -> TransportError {
    if error.to_string().contains("invalid peer certificate") {
        let why = "shows a certificate that is not trusted, or is another host's: name its authority (ServiceBusOptions::certificate_authority), and the host as its certificate does";
        return TransportError::new(ErrorKind::Misconfigured, operation, format!("{place} {why}")).caused_by(error);
    }
    gone(operation, place, None, false).caused_by(error)
}

pub(super) fn of_begin(operation: &'static str, place: &str, error: &BeginError) -> TransportError {
    let said = match error {
        BeginError::LocalChannelMaxReached => {
            let why = format!("{place} takes no more sessions on one connection");
            return TransportError::new(ErrorKind::Unavailable, operation, why);
        }
        BeginError::RemoteEndedWithError(said) => Some(said),
        BeginError::ConnectionStopped(reason) => of_connection(reason),
        _ => None,
    };
    gone(operation, place, said, false).caused_by(plain(error))
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
            Some(said) => refusal(operation, place, said),
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
    cut(&error.to_string()).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fe2o3_amqp::types::messaging::{Accepted, Modified, Rejected, Released};

    use super::*;

    const SENDING: &str = "sending";

    fn said(condition: impl Into<ErrorCondition>) -> Said {
        Said::new(condition, Some("why".to_owned()), None)
    }

    #[test]
    fn of_what_was_on_a_link_that_ended_nothing_is_known_whatever_is_said_of_the_link() {
        for condition in [
            ErrorCondition::from(LinkError::MessageSizeExceeded),
            AmqpError::NotFound.into(),
            AmqpError::UnauthorizedAccess.into(),
            AmqpError::InternalError.into(),
        ] {
            let error = SendError::from(LinkStateError::RemoteClosedWithError(said(condition)));
            assert_eq!(of_send(SENDING, "it", &error, true).kind(), ErrorKind::UnknownOutcome);
        }
        assert_eq!(
            of_send(SENDING, "it", &SendError::NonTerminalDeliveryState, true).kind(),
            ErrorKind::UnknownOutcome
        );
    }

    #[test]
    fn a_link_that_ended_for_a_large_message_makes_no_other_one_too_large() {
        let error = LinkStateError::RemoteClosedWithError(said(LinkError::MessageSizeExceeded)).into();
        let told = of_send(SENDING, "it", &error, false);
        assert_eq!(told.kind(), ErrorKind::Unavailable);
        assert!(told.to_string().contains("message_bytes_max"), "{told}");
    }

    #[test]
    fn nothing_but_accepted_is_sent() {
        let rejected = |error| Outcome::Rejected(Rejected { error });
        let modified = Modified { delivery_failed: None, undeliverable_here: None, message_annotations: None };
        let kind = |outcome: Outcome| of_outcome(SENDING, "it", &outcome).map_err(|e| e.kind());
        assert_eq!(kind(Outcome::Accepted(Accepted {})), Ok(()));
        assert_eq!(kind(Outcome::Released(Released {})), Err(ErrorKind::Unavailable));
        assert_eq!(kind(Outcome::Modified(modified)), Err(ErrorKind::Unavailable));
        assert_eq!(kind(rejected(None)), Err(ErrorKind::Unavailable));
        assert_eq!(kind(rejected(Some(said(LinkError::MessageSizeExceeded)))), Err(ErrorKind::TooLarge));
        assert_eq!(kind(rejected(Some(said(AmqpError::InternalError)))), Err(ErrorKind::Unavailable));
    }

    #[test]
    fn what_a_server_says_is_told_in_part() {
        let long = Said::new(AmqpError::InternalError, Some("ü".repeat(10_000)), None);
        let error = SendError::from(LinkStateError::RemoteClosedWithError(long));
        let told = format!("{:?}", of_send(SENDING, "it", &error, true));
        assert!(told.len() < 4 * SAID_BYTES_MAX, "{} bytes", told.len());
    }
}
