//! Why a message cannot be read, for the letter about it: the same words for every broker.

use std::error::Error;

/// An error with its causes.
pub(crate) fn reason_of(problem: &dyn Error) -> String {
    let mut reason = problem.to_string();
    let mut cause = problem.source();
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    reason
}
