//! What the outboxes of all databases share: how a message becomes a row and what may go wrong with it.

mod row;
mod write;

pub(super) use row::Row;
pub(super) use write::Writes;
pub use write::{EnqueueError, FailedMessage, Routes};
