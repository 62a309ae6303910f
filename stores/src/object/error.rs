//! What an error of a client library means: whether anything was written, and what a person can do.

use hapax_core::ports::{ErrorKind, StoreError};
use object_store::Error;

/// What services say, with the status 404 as for an object, when the place for objects itself is not there.
const NO_PLACE: [&str; 4] = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "bucket does not exist"];

pub(super) const EVICTING: &str = "evicting dedup entries";

/// A call that failed or had no answer in time.
#[derive(Debug)]
pub(super) enum Failure {
    Client(Error),
    TooLate,
    /// The folder for entries is not there any more.
    NoFolder,
    /// What was just written is not there.
    Vanished,
}

impl Failure {
    pub(super) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(Error::NotFound { .. }))
    }

    /// Whether a create says that somebody else's object is there. Statuses of other conflicts come as the same error, so this
    /// is no proof that there is one.
    pub(super) const fn is_already_there(&self) -> bool {
        matches!(
            self,
            Self::Client(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. })
        )
    }

    /// Whether it says that there is no place for objects, rather than that there is no object.
    pub(super) fn is_without_place(&self) -> bool {
        match self {
            Self::Client(Error::NotFound { source, .. }) => {
                let said = source.to_string();
                NO_PLACE.iter().any(|code| said.contains(code))
            }
            _ => false,
        }
    }

    /// Of what has written no entry and will write none.
    pub(super) fn of_read(self, place: &str, operation: &'static str) -> StoreError {
        let (kind, why) = match &self {
            Self::Client(Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => (
                ErrorKind::Denied,
                "is not allowed: give the role the rights to get, put, list and delete below the prefix",
            ),
            Self::Client(
                Error::NotImplemented { .. }
                | Error::NotSupported { .. }
                | Error::InvalidPath { .. }
                | Error::UnknownConfigurationKey { .. },
            ) => (ErrorKind::Misconfigured, "is not supported: set the client up for conditional puts"),
            Self::Client(Error::NotFound { .. }) => {
                (ErrorKind::Misconfigured, "found no place for objects: create the bucket, container or directory")
            }
            Self::TooLate => (ErrorKind::Unavailable, "had no answer in time"),
            Self::NoFolder => (ErrorKind::Unavailable, "has lost its folders: is the disk mounted?"),
            Self::Vanished => (ErrorKind::Unavailable, "does not show what was just written"),
            Self::Client(_) => (ErrorKind::Unavailable, "failed"),
        };
        self.into_error(kind, operation, format!("{place} {why}"))
    }

    /// Of the write of an entry: whatever the answer, an earlier try of the client library may have been applied.
    pub(super) fn of_write(self, place: &str, operation: &'static str) -> StoreError {
        let why = format!("{place} has not confirmed; the entry may be there or come: insert it again");
        self.into_error(ErrorKind::UnknownOutcome, operation, why)
    }

    /// Of an eviction that was under way.
    pub(super) fn of_eviction(self, place: &str) -> StoreError {
        let why = format!("{place} failed; old entries may be gone in part: what is left goes with the next call");
        self.into_error(ErrorKind::UnknownOutcome, EVICTING, why)
    }

    fn into_error(self, kind: ErrorKind, operation: &'static str, message: String) -> StoreError {
        let error = StoreError::new(kind, operation, message);
        match self {
            Self::Client(source) => error.caused_by(source),
            Self::TooLate | Self::NoFolder | Self::Vanished => error,
        }
    }
}
