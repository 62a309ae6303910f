//! What a store or a transport could not do, sorted by what a caller may do about it and not by the driver that said it.

use std::{error::Error, fmt};

use crate::handler_error::chain;

/// Any error a driver may raise.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// What kind of failure it was, as far as a caller may act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing was written; the same call may succeed later.
    Unavailable,
    /// The write may have happened, may still happen, or not: load again, never assume.
    UnknownOutcome,
    /// Nothing was written because it is over a limit; it never will be.
    TooLarge,
    /// What is stored cannot be read by this program: another version wrote it, or it is damaged.
    Malformed,
    /// Permission or authentication failed.
    Denied,
    /// The backend is not set up in the way the promise needs; the message says what to change.
    Misconfigured,
    /// What was to be opened is not there: no such file, table or container, or no schema of hapax in the database. A migration or
    /// `create_if_missing(true)` makes it.
    Absent,
}

macro_rules! port_error {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(thiserror::Error)]
        #[error("{operation}: {message}")]
        pub struct $name {
            kind: ErrorKind,
            operation: &'static str,
            message: String,
            #[source]
            source: Option<BoxError>,
        }

        impl $name {
            /// An error of `kind` in `operation` ("saving an entity"), with a message that names the remedy.
            #[must_use]
            pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
                Self { kind, operation, message: message.into(), source: None }
            }

            /// The same error with the driver's own as its source.
            #[must_use]
            pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
                self.source = Some(source.into());
                self
            }

            /// What a caller may act on.
            #[must_use]
            pub const fn kind(&self) -> ErrorKind {
                self.kind
            }

            /// Whether the same call may succeed later. An unknown outcome counts: after a fresh load.
            #[must_use]
            pub const fn is_transient(&self) -> bool {
                matches!(self.kind, ErrorKind::Unavailable | ErrorKind::UnknownOutcome)
            }

            /// Whether a write may have taken effect all the same.
            #[must_use]
            pub const fn is_unknown_outcome(&self) -> bool {
                matches!(self.kind, ErrorKind::UnknownOutcome)
            }
        }

        /// For people: a `main` that returns an error prints it so.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} ({:?})", chain(self), self.kind)
            }
        }
    };
}

port_error!(
    /// What an entity store, a dedup store or a place for dead letters could not do.
    StoreError
);
port_error!(
    /// What a transport could not do.
    TransportError
);
