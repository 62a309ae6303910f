//! What a driver's error means: whether anything was written, and what a person can do.

use std::sync::Arc;

use hapax_core::ports::{ErrorKind, StoreError};

pub(super) use super::super::rows::malformed;

/// SQLite's primary result codes that we tell apart (sqlite.org/rescode.html).
mod code {
    pub(super) const ERROR: i32 = 1;
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READONLY: i32 = 8;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const TOOBIG: i32 = 18;
    pub(super) const CONSTRAINT: i32 = 19;
    pub(super) const AUTH: i32 = 23;
    pub(super) const NOTADB: i32 = 26;
}

/// A statement that failed. One error may be the answer of all members of a group.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    error: Arc<sqlx::Error>,
    unknown: bool,
}

/// Where in its transaction a statement failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before the commit began, or where there was nothing to commit.
    Before,
    /// In `COMMIT`.
    Commit,
    /// In a statement that is its own transaction: in it, or in its commit.
    Either,
}

impl Failure {
    pub(super) fn new(error: sqlx::Error, place: Place) -> Self {
        let unknown = match place {
            Place::Before => false,
            Place::Commit => !wrote_nothing(&error),
            Place::Either => !primary_code(&error).is_some_and(is_of_a_statement),
        };
        Self { error: Arc::new(error), unknown }
    }

    /// Whether the write may have taken effect.
    pub(super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether others wait for the same lock in vain: trying the members of a group one by one would wait for each.
    pub(super) fn is_busy(&self) -> bool {
        is_busy(&self.error)
    }

    /// Whether the file itself was answering: not so when the worker thread is gone or the device fails.
    pub(super) fn is_of_a_statement(&self) -> bool {
        primary_code(&self.error).is_some_and(is_of_a_statement)
    }

    pub(super) fn store_error(&self, operation: &'static str, file: &str) -> StoreError {
        let (kind, text) = meaning(&self.error);
        if self.unknown {
            // The disk is to be looked after whether it was stored or not.
            let first = if is_of_the_disk(&self.error) { format!("{text}; ") } else { String::new() };
            let text = format!("{file}: {first}whether it was stored is not known; load again");
            return StoreError::new(ErrorKind::UnknownOutcome, operation, text).caused_by(self.error.clone());
        }
        StoreError::new(kind, operation, format!("{file}: {text}")).caused_by(self.error.clone())
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::new(error, Place::Before)
    }
}

/// Whether others keep the lock.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(code::BUSY | code::LOCKED))
}

/// Whether the disk did not do what SQLite asked of it: also where it is full, and that is not what the system said.
fn is_of_the_disk(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(code::IOERR)
}

/// A `COMMIT` that has failed has committed nothing. What was refused for want of a lock or of room is not in the log whole, so
/// that no later reader takes it. Any other failure of a commit may have come after its last frame had been written: an fsync
/// that failed leaves a commit that a recovery would find.
pub(super) fn wrote_nothing(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(code::BUSY | code::FULL))
}

/// Codes that SQLite gives before it commits, or with which a commit has written nothing that counts.
fn is_of_a_statement(code: i32) -> bool {
    use code::{AUTH, BUSY, CANTOPEN, CONSTRAINT, ERROR, FULL, LOCKED, NOTADB, PERM, READONLY, TOOBIG};
    [AUTH, BUSY, CANTOPEN, CONSTRAINT, ERROR, FULL, LOCKED, NOTADB, PERM, READONLY, TOOBIG].contains(&code)
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    const PRIMARY: i32 = 0xff;
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & PRIMARY)
}

fn meaning(error: &sqlx::Error) -> (ErrorKind, &'static str) {
    match primary_code(error) {
        Some(code::BUSY | code::LOCKED) => (
            ErrorKind::Unavailable,
            "another process has kept it locked for longer than the busy timeout: end that process or its transaction",
        ),
        Some(code::FULL) => (ErrorKind::Unavailable, "the disk is full: make room and it goes on, nothing is lost"),
        Some(code::IOERR) => (
            ErrorKind::Unavailable,
            "the disk may be full or failing: make room, or see what the system's log says of the disk, and it goes on",
        ),
        Some(code::READONLY) => {
            (ErrorKind::Denied, "it is read-only: let this process write the file and the directory that it is in")
        }
        Some(code::CANTOPEN) => (
            ErrorKind::Denied,
            "it cannot be opened: check that its directory exists and that this process may write there",
        ),
        Some(code::PERM | code::AUTH) => (ErrorKind::Denied, "the access was denied: check the file's permissions"),
        Some(code::NOTADB) => (ErrorKind::Malformed, "it is not an SQLite file: name another file"),
        Some(code::CORRUPT) => (ErrorKind::Malformed, "the file is damaged: restore it from a backup"),
        Some(code::TOOBIG) => (ErrorKind::TooLarge, "it is larger than SQLite takes"),
        Some(code::CONSTRAINT) => {
            (ErrorKind::Misconfigured, "a trigger or constraint in the file refuses it: remove it")
        }
        Some(code::ERROR) => (
            ErrorKind::Misconfigured,
            "hapax's tables are not as this version needs them: apply `Sqlite::migrate`, or undo what changed them",
        ),
        _ => (ErrorKind::Unavailable, "SQLite failed; the cause is in the source of this error"),
    }
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, error::Error, fmt};

    use hapax_core::ports::ErrorKind;
    use sqlx::error::DatabaseError;

    use super::{Failure, Place};

    /// What SQLite answers, by its extended code.
    #[derive(Debug)]
    struct Answer(&'static str);

    impl fmt::Display for Answer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Answer {}

    impl DatabaseError for Answer {
        fn message(&self) -> &str {
            self.0
        }
        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }
        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }
        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }
        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }
        fn kind(&self) -> sqlx::error::ErrorKind {
            sqlx::error::ErrorKind::Other
        }
    }

    /// Goal: whoever reads `disk I/O error` is told what to do. Method: a write and an fsync that the disk refuses (`SQLITE_IOERR_WRITE`,
    /// `SQLITE_IOERR_FSYNC`), before a commit and in it.
    #[test]
    fn a_disk_that_refuses_is_said_with_what_to_do() {
        for code in ["778", "1034"] {
            for (place, kind) in [(Place::Before, ErrorKind::Unavailable), (Place::Commit, ErrorKind::UnknownOutcome)] {
                let failure = Failure::new(sqlx::Error::Database(Box::new(Answer(code))), place);
                let error = failure.store_error("saving an entity", "shop.db");
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains("the disk may be full or failing: make room"), "{error}");
                assert_eq!(error.to_string().contains("is not known; load again"), failure.is_unknown(), "{error}");
            }
        }
    }
}
