//! How a handler says that it failed.

use std::{error::Error, fmt};

use crate::ports::BoxError;

/// Why a handler failed. Any error converts into one that is retried, so `?` works; what can never succeed is said to be
/// [`permanent`](HandlerError::permanent) and goes to the dead letters at once.
///
/// Like `anyhow::Error` it is not itself an [`Error`], which is what allows the conversion.
pub struct HandlerError {
    permanent: bool,
    /// It is no error: a middleware has dropped the message, by this rule.
    skipped: Option<&'static str>,
    source: BoxError,
}

impl HandlerError {
    /// An error that no repeat will cure.
    pub fn permanent(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { permanent: true, skipped: None, source: error.into() }
    }

    /// An error that a repeat may cure, from text or a boxed error; any other converts by `?`.
    pub fn transient(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { permanent: false, skipped: None, source: error.into() }
    }

    /// How a run ends whose message is dropped by `rule`.
    pub(crate) fn skipped(rule: &'static str) -> Self {
        Self { permanent: false, skipped: Some(rule), source: rule.into() }
    }

    /// The rule by which the message is dropped, if it is.
    pub(crate) const fn rule(&self) -> Option<&'static str> {
        self.skipped
    }

    /// Whether no repeat will cure it.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// What went wrong.
    pub(crate) fn source(&self) -> &(dyn Error + 'static) {
        &*self.source
    }

    /// The error and everything that caused it, on one line.
    pub(crate) fn chain(&self) -> String {
        chain(&*self.source)
    }
}

/// An error and everything that caused it, on one line. Errors of some drivers end with the text of their cause, which is not said again.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let caused = error.to_string();
        if !text.ends_with(&caused) {
            text.push_str(": ");
            text.push_str(&caused);
        }
        cause = error.source();
    }
    text
}

impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::transient(error)
    }
}

/// So that `?` works on the way out of hapax too; whether it was permanent is not said any more.
impl From<HandlerError> for Box<dyn Error + Send + Sync> {
    fn from(error: HandlerError) -> Self {
        error.source
    }
}

/// As above.
impl From<HandlerError> for Box<dyn Error> {
    fn from(error: HandlerError) -> Self {
        error.source
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.chain(), if self.permanent { "permanent" } else { "transient" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("saving: {0}")]
    struct Repeats(#[source] fmt::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("saving")]
    struct Says(#[source] Repeats);

    #[test]
    fn what_an_error_says_of_its_cause_is_not_said_again() {
        let cause = fmt::Error.to_string();
        assert_eq!(chain(&Repeats(fmt::Error)), format!("saving: {cause}"));
        assert_eq!(chain(&Says(Repeats(fmt::Error))), format!("saving: saving: {cause}"));
    }
}
