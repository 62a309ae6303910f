//! Why an endpoint or a client did not start. What goes wrong later is told by its health and its metrics.

use std::fmt;

use crate::{handler_error::chain, ports::BoxError};

/// What kept an endpoint or a [`RequestClient`](crate::RequestClient) from starting.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<BoxError>,
}

/// What kind of problem it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something is missing, malformed or would break the promise; the message names the remedy.
    Misconfigured,
    /// The transport could not be reached or is not set up.
    Transport,
}

impl Error {
    pub(crate) const fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message, source: None }
    }

    pub(crate) fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of problem it was.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// For people: a `main` that returns an error prints it so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}
