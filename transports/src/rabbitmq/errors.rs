//! What RabbitMQ refuses or does not answer, as errors of the ports, with what to do.

use hapax_core::ports::{ErrorKind, TransportError};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};

/// What the driver says, as an error of `operation` at `place`. `written`: something may have happened.
pub(super) fn error_of(operation: &'static str, place: &str, error: lapin::Error, written: bool) -> TransportError {
    let (kind, message) = kind_of(&error, place, written);
    TransportError::new(kind, operation, message).caused_by(error)
}

fn kind_of(error: &lapin::Error, place: &str, written: bool) -> (ErrorKind, String) {
    if let lapin::ErrorKind::ProtocolError(protocol) = error.kind() {
        match protocol.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                let why = "lets this account not do it: check user, password, virtual host and permissions (rabbitmqctl list_permissions)";
                return (ErrorKind::Denied, format!("{place} {why}"));
            }
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if written => {
                let why = "refuses a message of the call: if it is too large, allow as much as RabbitMqOptions::message_bytes_max (max_message_size), or less there";
                return (ErrorKind::UnknownOutcome, format!("{place} {why}"));
            }
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => {
                let why = "has it already, declared in another way: use the options it was declared with, another prefix, or delete it once it is empty";
                return (ErrorKind::Misconfigured, format!("{place} {why}"));
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                let why = "does not have it: let it be declared (RabbitMqOptions::declare), or declare it";
                return (ErrorKind::Misconfigured, format!("{place} {why}"));
            }
            _ => {}
        }
    }
    if error.to_string().contains("invalid peer certificate") {
        let why = "shows a certificate that is not trusted, or is another host's: name its authority (RabbitMqOptions::certificate_authority), and the host as its certificate does";
        return (ErrorKind::Misconfigured, format!("{place} {why}"));
    }
    (cut_off(written), away(place))
}

/// The server ends a channel on which something was not settled in its time, and says so in these words.
const TIMED_OUT: &str = "timed out";
/// And a channel on which a message came that it does not take, with the size and the limit.
const LARGER: &str = "larger than";

/// Messages come no longer: the channel, the connection or the queue is gone.
pub(super) fn ended(operation: &'static str, place: &str, cause: Option<lapin::Error>) -> TransportError {
    let is_late = cause.as_ref().is_some_and(|cause| is_refused_with(cause, TIMED_OUT));
    let why = match is_late {
        true => {
            "has waited for a settlement for longer than its consumer_timeout, and gives all that was given and not settled again: shorten the handler, or raise consumer_timeout of the server above what handlers take"
        }
        false => "has ended the connection, or the queue is gone",
    };
    let error = TransportError::new(ErrorKind::Unavailable, operation, format!("{place} {why}"));
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

/// Of a message that was alone on its channel: nothing was sent, and it never will be.
pub(super) fn too_large(
    operation: &'static str,
    place: &str,
    error: lapin::Error,
) -> Result<TransportError, lapin::Error> {
    if !is_refused_with(&error, LARGER) {
        return Err(error);
    }
    let why = "does not take a message of this size: allow as much as RabbitMqOptions::message_bytes_max there (max_message_size), or less here";
    Ok(TransportError::new(ErrorKind::TooLarge, operation, format!("{place} {why}")).caused_by(error))
}

fn is_refused_with(error: &lapin::Error, words: &str) -> bool {
    let lapin::ErrorKind::ProtocolError(protocol) = error.kind() else { return false };
    matches!(protocol.kind(), AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED))
        && protocol.get_message().as_str().contains(words)
}

/// The connection has ended.
pub(super) fn gone(operation: &'static str, place: &str, written: bool) -> TransportError {
    TransportError::new(cut_off(written), operation, away(place))
}

fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

fn away(place: &str) -> String {
    format!("{place} cannot be reached, or has ended the connection: check host and port, and that RabbitMQ runs there")
}

/// Nothing came back in time.
pub(super) fn late(
    operation: &'static str,
    place: &str,
    patience: std::time::Duration,
    written: bool,
) -> TransportError {
    let why = format!(
        "{place} did not answer within {patience:?}; if it is RabbitMQ, and short of memory or disk, it has stopped reading from publishers"
    );
    TransportError::new(cut_off(written), operation, why)
}
