//! What SQS refuses or does not answer, as errors of the ports, with what to do.

use std::{error::Error, io, time::Duration};

use aws_sdk_sqs::{error::ProvideErrorMetadata, types::BatchResultErrorEntry};
use hapax_core::ports::{ErrorKind, StoreError, TransportError};

/// What the service says of a call or of one entry of it.
pub(super) fn is_missing(code: &str) -> bool {
    code.contains("NonExistentQueue") || code.contains("QueueDoesNotExist")
}

/// Nothing was done, and the same may go well in a moment.
pub(super) fn is_busy(code: &str) -> bool {
    ["Throttl", "OverLimit", "RequestLimitExceeded", "TooManyRequests"].iter().any(|busy| code.contains(busy))
}

/// Whether anything was done is not known.
pub(super) fn is_unclear(code: &str) -> bool {
    ["InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout"].iter().any(|word| code.contains(word))
}

/// The lease that a receipt handle stands for is over, or its message is gone.
pub(super) fn is_lease_lost(code: &str, message: &str) -> bool {
    code.contains("ReceiptHandleIsInvalid")
        || code.contains("MessageNotInflight")
        || (code.contains("InvalidParameterValue") && message.contains("eceipt handle"))
        || (code.contains("InvalidParameterValue") && message.contains("VisibilityTimeout"))
}

/// What a refusal means, and the remedy.
fn meaning(code: &str, message: &str) -> (ErrorKind, &'static str) {
    let is = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if message.contains("must be shorter than") || is(&["BatchRequestTooLong"]) {
        return (
            ErrorKind::TooLarge,
            "; say what the queue takes (SqsOptions::message_bytes_max), or let it take more (MaximumMessageSize)",
        );
    }
    if is_busy(code) {
        return (ErrorKind::Unavailable, "; it is asked too often, or too many messages are under way");
    }
    if is_missing(code) {
        return (ErrorKind::Unavailable, "; start its endpoint once, or correct the address");
    }
    if is(&["KMS", "Kms"]) {
        return (ErrorKind::Denied, "; let the client's role use the queue's key, and look whether the key is enabled");
    }
    if is(&["AccessDenied", "NotAuthorized", "UnauthorizedOperation"]) {
        return (ErrorKind::Denied, "; give the client's role what `Sqs::policy_json` names");
    }
    let strangers = [
        "InvalidClientTokenId",
        "UnrecognizedClient",
        "Signature",
        "ExpiredToken",
        "MissingAuthenticationToken",
        "InvalidSecurity",
        "OptInRequired",
        "InvalidAccessKeyId",
    ];
    if is(&strangers) {
        return (ErrorKind::Denied, "; look at the client's credentials, and at this host's clock");
    }
    if is(&["QueueDeletedRecently"]) {
        return (
            ErrorKind::Unavailable,
            "; the service takes no queue of that name for a minute after one was deleted",
        );
    }
    (ErrorKind::Misconfigured, "")
}

/// An answer that refuses a whole call.
pub(super) fn refusal<E>(operation: &'static str, place: &str, refused: E) -> TransportError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let (kind, remedy) = meaning(refused.code().unwrap_or_default(), refused.message().unwrap_or_default());
    let said = refused.message().or_else(|| refused.code()).unwrap_or("an error without a name");
    TransportError::new(kind, operation, format!("{place} refuses: {said}{remedy}")).caused_by(refused)
}

/// An answer that refuses one message of a call. Never with the message's own text.
pub(super) fn entry_refusal(operation: &'static str, place: &str, refused: &BatchResultErrorEntry) -> TransportError {
    let code = refused.code();
    let (kind, remedy) = match meaning(code, refused.message().unwrap_or_default()) {
        (ErrorKind::Misconfigured, remedy) if !refused.sender_fault() => (ErrorKind::UnknownOutcome, remedy),
        meaning => meaning,
    };
    let said = refused.message().unwrap_or(code);
    TransportError::new(kind, operation, format!("{place} refuses it ({code}): {said}{remedy}"))
}

/// Nothing came back in time.
pub(super) fn late(operation: &'static str, place: &str, patience: Duration, written: bool) -> TransportError {
    TransportError::new(cut_off(written), operation, format!("{place} did not answer within {patience:?}"))
}

/// What came back does not say what became of it.
pub(super) fn untold(operation: &'static str, place: &str) -> TransportError {
    TransportError::new(ErrorKind::UnknownOutcome, operation, format!("{place} does not say what became of it"))
}

pub(super) const fn cut_off(written: bool) -> ErrorKind {
    if written { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
}

/// The same error, told of another message.
pub(super) fn again(error: &TransportError, operation: &'static str) -> TransportError {
    TransportError::new(error.kind(), operation, format!("{error:?}"))
}

pub(super) fn store_error(operation: &'static str, error: TransportError) -> StoreError {
    StoreError::new(error.kind(), operation, "SQS could not do it").caused_by(error)
}

/// Whether nobody was there to take the request.
pub(super) fn is_connection_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}
