//! What Redis refuses or does not answer, as errors of the ports, with what to do.

use std::time::Duration;

use ::redis::{ErrorKind as Driver, RedisError, ServerErrorKind};
use hapax_core::ports::{ErrorKind, StoreError, TransportError};

/// What the server answers to a script that it does not know.
pub(super) const NO_SCRIPT: &str = "NOSCRIPT";
/// What it answers where a queue was removed under its receiver.
const NO_GROUP: &str = "NOGROUP";

/// What the driver says, as an error of `operation` at `place`. `written`: something may have happened.
pub(super) fn error_of(operation: &'static str, place: &str, error: RedisError, written: bool) -> TransportError {
    let (kind, message) = kind_of(&error, place, written);
    TransportError::new(kind, operation, message).caused_by(error)
}

fn kind_of(error: &RedisError, place: &str, written: bool) -> (ErrorKind, String) {
    let said = |kind, why: &str| (kind, format!("{place} {why}"));
    let denied = "lets this account not do it: check user and password, and what it may do (redis-cli ACL LIST)";
    if matches!(error.kind(), Driver::AuthenticationFailed | Driver::Server(ServerErrorKind::NoPerm)) {
        return said(ErrorKind::Denied, denied);
    }
    match error.code().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => return said(ErrorKind::Denied, denied),
        // Scripts write what takes memory first, so nothing was.
        "OOM" => {
            let why = "is out of the memory it may take (maxmemory), and takes no message until some are handled";
            return said(ErrorKind::Unavailable, why);
        }
        "MISCONF" => {
            let why = "cannot write to its disk, and takes nothing until it can: see its log";
            return said(ErrorKind::Unavailable, why);
        }
        "READONLY" => return said(ErrorKind::Unavailable, "is a replica: connect to the server that it copies"),
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | NO_SCRIPT => {
            return said(ErrorKind::Unavailable, "is not ready yet");
        }
        "WRONGTYPE" => {
            let why = "has a key of that name that is no queue: use another prefix (RedisStreamsOptions::prefix)";
            return said(ErrorKind::Misconfigured, why);
        }
        NO_GROUP => return said(ErrorKind::Unavailable, "does not have the queue any more: it was removed"),
        _ => {}
    }
    if error.to_string().contains("invalid peer certificate") {
        let why = "shows a certificate that is not trusted, or is another host's: name its authority (RedisStreamsOptions::certificate_authority), and the host as its certificate does";
        return said(ErrorKind::Misconfigured, why);
    }
    if matches!(error.kind(), Driver::Server(_) | Driver::Extension | Driver::Parse | Driver::UnexpectedReturnType) {
        return said(cut_off(written), "did not do it, and says why below");
    }
    let why = "cannot be reached, or has ended the connection: check host and port, and that Redis runs there";
    said(if error.is_connection_refusal() { ErrorKind::Unavailable } else { cut_off(written) }, why)
}

/// Whether the queue was removed.
pub(super) fn is_no_group(error: &TransportError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.and_then(RedisError::code) == Some(NO_GROUP)
}

const fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

/// Nothing came back in time.
pub(super) fn late(operation: &'static str, place: &str, patience: Duration, written: bool) -> TransportError {
    TransportError::new(cut_off(written), operation, format!("{place} did not answer within {patience:?}"))
}

/// An answer that is none.
pub(super) fn malformed(operation: &'static str, place: &str) -> TransportError {
    TransportError::new(ErrorKind::Malformed, operation, format!("{place} answers what no Redis does"))
}

/// The same error, told of another message.
pub(super) fn again(error: &TransportError, operation: &'static str) -> TransportError {
    TransportError::new(error.kind(), operation, format!("{error:?}"))
}

pub(super) fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    StoreError::new(error.kind(), operation, "Redis could not do it").caused_by(error)
}
