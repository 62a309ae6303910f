//! A mark of a queue in a database: a number, behind that of each message that is in the queue.

use hapax_core::ports::{ErrorKind, Mark, TransportError};

pub(super) const MARKING: &str = "marking the end of a queue";
pub(super) const ASKING: &str = "asking whether messages are gone";

pub(super) fn mark(number: i64) -> Mark {
    Mark::new([u64::try_from(number).unwrap_or_default()])
}

/// # Errors
/// What another transport has given.
pub(super) fn number(mark: &Mark) -> Result<i64, TransportError> {
    let number = if let [number] = mark.places() { i64::try_from(*number).ok() } else { None };
    let why = || format!("{mark:?} is no mark of such a queue: ask the transport that gave it");
    number.ok_or_else(|| TransportError::new(ErrorKind::Malformed, ASKING, why()))
}
