//! What an error of the client library means: whether anything was written, and what a person can do.

use std::time::Duration;

use azure_core::http::StatusCode;
use azure_data_cosmos::CosmosError;
use hapax_core::ports::{ErrorKind, StoreError};

const BEHIND: &str = "the service answered too late; it may be busy, or far away";

/// Of something that wrote nothing.
pub(super) fn of_read(operation: &'static str, error: CosmosError) -> StoreError {
    told(kind_of(&error), operation, error)
}

/// Of a write. The client library repeats what may have been written already, so a refusal of the last try says nothing
/// of those before it: only where each request was refused, or never left, was nothing written for sure.
pub(super) fn of_write(operation: &'static str, error: CosmosError) -> StoreError {
    let kind = if was_refused(&error) { kind_of(&error) } else { ErrorKind::UnknownOutcome };
    told(kind, operation, error)
}

/// A call that was given up.
pub(super) fn too_late(operation: &'static str, limit: Duration, writes: bool) -> StoreError {
    let kind = if writes { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable };
    StoreError::new(kind, operation, format!("no answer within {limit:?}: {BEHIND}"))
}

/// An operation of a batch that was rolled back with the whole of it.
pub(super) fn of_rolled_back(operation: &'static str, status: u16) -> StoreError {
    let (kind, why) = match StatusCode::from(status) {
        StatusCode::TooManyRequests => {
            (ErrorKind::Unavailable, "too many requests: give the container more throughput")
        }
        StatusCode::PayloadTooLarge => (ErrorKind::TooLarge, "larger than the service takes in one batch"),
        StatusCode::Forbidden | StatusCode::Unauthorized => {
            (ErrorKind::Denied, "the service denied it, or the logical partition has all of the 20 GB that it may have")
        }
        _ => (ErrorKind::UnknownOutcome, "the service did not carry the batch out"),
    };
    StoreError::new(kind, operation, format!("{why} (status {status})"))
}

/// What is stored cannot be read.
pub(super) fn malformed(operation: &'static str, what: impl std::fmt::Display) -> StoreError {
    StoreError::new(ErrorKind::Malformed, operation, what.to_string())
}

/// What a person has to change first.
pub(super) fn unfit(why: impl Into<String>) -> StoreError {
    StoreError::new(ErrorKind::Misconfigured, "opening the Cosmos DB store", why)
}

fn told(kind: ErrorKind, operation: &'static str, error: CosmosError) -> StoreError {
    let why = match kind {
        _ if is_full(&error) => {
            "the service keeps 20 GB in one logical partition, and this one is full until dedup entries are over: keep them for \
             less (`keeps`), or in a container of their own (`Layout::Apart`)"
        }
        ErrorKind::Denied => "the service denied it: look at the key, or at the roles of the identity",
        ErrorKind::TooLarge => "larger than the service takes",
        ErrorKind::Misconfigured => {
            "the service does not take the request: does the container still exist as it was opened?"
        }
        ErrorKind::UnknownOutcome => "there is no answer that says whether it was written",
        _ => "the service could not do it now",
    };
    StoreError::new(kind, operation, why).caused_by(error)
}

/// What the last status says of the call that it answers.
fn kind_of(error: &CosmosError) -> ErrorKind {
    let status = error.status();
    match status.status_code() {
        // Regions move, and tokens are fetched by the client itself: both are worth another try.
        _ if status.is_write_forbidden() || status.is_database_account_not_found() => ErrorKind::Unavailable,
        // What is over goes, and what came in between waits.
        _ if is_full(error) => ErrorKind::Unavailable,
        StatusCode::Unauthorized if !error.is_from_wire() => ErrorKind::Unavailable,
        StatusCode::Unauthorized | StatusCode::Forbidden => ErrorKind::Denied,
        StatusCode::PayloadTooLarge => ErrorKind::TooLarge,
        StatusCode::BadRequest | StatusCode::NotFound => ErrorKind::Misconfigured,
        _ => ErrorKind::Unavailable,
    }
}

/// Whether the logical partition has all that the service keeps in one.
fn is_full(error: &CosmosError) -> bool {
    /// "PartitionKeyQuotaOverLimit".
    const OVER_QUOTA: u16 = 1014;
    let status = error.status();
    status.status_code() == StatusCode::Forbidden && status.sub_status().is_some_and(|sub| sub.value() == OVER_QUOTA)
}

fn was_refused(error: &CosmosError) -> bool {
    let Some(diagnostics) = error.diagnostics() else { return false };
    let requests = diagnostics.requests();
    // Of requests that are not told of, nothing is known.
    requests.len() == diagnostics.request_count()
        && requests.iter().all(|request| {
            let refused = is_refusal(request.status().status_code()) && request.request_sent().definitely_sent();
            let once = request.local_shard_retry_count() == 0 && !request.timed_out();
            request.request_sent().definitely_not_sent() || (refused && once)
        })
}

/// Statuses with which the service says that it did nothing.
const fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BadRequest
            | StatusCode::Unauthorized
            | StatusCode::Forbidden
            | StatusCode::NotFound
            | StatusCode::PayloadTooLarge
            | StatusCode::TooManyRequests
    )
}
