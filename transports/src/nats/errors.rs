//! What NATS refuses or does not answer, as errors of the ports, with what to do.

use std::{error::Error, time::Duration};

use async_nats::{
    RequestErrorKind,
    jetstream::{self, ErrorCode},
};
use hapax_core::ports::{ErrorKind, TransportError};

/// What JetStream has answered, as an error of `operation` at `place`.
pub(super) fn refusal(operation: &'static str, place: &str, error: &jetstream::Error) -> TransportError {
    let (kind, why) = match error.error_code() {
        ErrorCode::STREAM_NAME_EXIST | ErrorCode::CONSUMER_NAME_EXIST | ErrorCode::CONSUMER_EXISTING_ACTIVE => (
            ErrorKind::Misconfigured,
            "has it already, declared in another way: use the options it was declared with, another prefix, or delete it once it is empty",
        ),
        ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED | ErrorCode::CONSUMER_WQ_CONSUMER_NOT_UNIQUE => (
            ErrorKind::Misconfigured,
            "has the queue, declared in another way: say of ordered_keys what it was declared with, or delete it once it is empty",
        ),
        ErrorCode::STREAM_SUBJECT_OVERLAP => (
            ErrorKind::Misconfigured,
            "gives these subjects to another stream: use another prefix, or delete that stream",
        ),
        ErrorCode::STREAM_NOT_FOUND | ErrorCode::CONSUMER_NOT_FOUND => {
            (ErrorKind::Misconfigured, "does not have it: let it be declared (NatsOptions::declare), or declare it")
        }
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            (ErrorKind::Misconfigured, "has no JetStream, or not for this account: start it with -js, or enable it")
        }
        _ => (ErrorKind::Unavailable, "does not do it"),
    };
    TransportError::new(kind, operation, format!("{place} {why}")).caused_by(error.clone())
}

/// What the client library could not do, and says why. `kind`: whether anything may have happened.
pub(super) fn failed<E>(kind: ErrorKind, operation: &'static str, place: &str, error: E) -> TransportError
where
    E: Error + Send + Sync + 'static,
{
    TransportError::new(kind, operation, format!("{place} does not do it")).caused_by(error)
}

/// Nobody is there who would answer a request of JetStream's.
pub(super) fn nobody(operation: &'static str, place: &str) -> TransportError {
    let why = "has no JetStream that answers: start it with -js, or enable it for this account";
    TransportError::new(ErrorKind::Misconfigured, operation, format!("{place} {why}"))
}

/// A request to JetStream that brought no answer.
pub(super) fn unanswered(
    operation: &'static str,
    place: &str,
    patience: Duration,
    error: jetstream::context::RequestError,
) -> TransportError {
    use jetstream::context::RequestErrorKind as Kind;
    match error.kind() {
        Kind::NoResponders => nobody(operation, place),
        Kind::TimedOut => late(operation, place, patience, false),
        _ => TransportError::new(ErrorKind::Unavailable, operation, away(place)).caused_by(error),
    }
}

/// Whether nobody is there to settle with.
pub(super) fn is_nobody(error: &async_nats::RequestError) -> bool {
    error.kind() == RequestErrorKind::NoResponders
}

/// The connection has ended.
pub(super) fn gone(operation: &'static str, place: &str, written: bool) -> TransportError {
    TransportError::new(cut_off(written), operation, away(place))
}

fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

fn away(place: &str) -> String {
    format!("{place} cannot be reached, or has ended the connection: check host and port, and that NATS runs there")
}

/// Nothing came back in time.
pub(super) fn late(operation: &'static str, place: &str, patience: Duration, written: bool) -> TransportError {
    let why = format!(
        "{place} did not answer within {patience:?}: it may be busy or without a leader, or this account may not do it (the log says so)"
    );
    TransportError::new(cut_off(written), operation, why)
}
