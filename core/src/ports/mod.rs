//! What the heart asks of the world. [`SagaManager`](crate::SagaManager) and [`deliver`](crate::deliver) await nothing
//! else, so a model can answer every call and explore the shipped code.
//!
//! Each port states its promises as numbered sentences; each sentence has a conformance test of the same name in
//! `hapax_core::testing`. No method has a default, so that a wrapper cannot lose one.

mod backoff;
mod bodies;
mod body_record;
mod clock;
mod dead_letters;
mod dedup_store;
mod dispatcher;
mod entity_store;
mod error;
mod long_memory;
mod marks;
mod outbox_rows;
mod outbox_table;
mod queue_survey;
mod receiver;
mod schedule;
mod survey;

pub use backoff::{Backoff, Cause, Granted};
pub use bodies::{BODY_NAME_BYTES_MAX, Bodies, BodyCapabilities, BodyName, BodyReference, Got, NewBody, Staged};
pub use body_record::BodyRecord;
pub use clock::{Clock, Ids};
pub use dead_letters::{DeadLetter, DeadLetters, Page};
pub use dedup_store::{DedupCapabilities, DedupStore, Evicted, Known};
pub use dispatcher::{DispatchError, Dispatcher, Refused};
pub use entity_store::{EntityStore, Finished, Loaded, Pending, PendingEntry, Saved, StoreCapabilities, Stored};
pub(crate) use error::BoxError;
pub use error::{ErrorKind, StoreError, TransportError};
pub use long_memory::{Keep, LongMemory, Moment, Passed};
pub use marks::{Mark, Marks};
pub use outbox_rows::{OutboxRow, OutboxRows, RowStatus};
pub use outbox_table::{
    Care, Cared, Claim, Claimed, Claiming, Ended, Instance, OutboxState, OutboxTable, Outcome, Tick, Ticked,
};
pub use queue_survey::{Queue, QueueSurvey, QueuedMessage};
pub use receiver::{
    Connected, Delays, Delivery, Receipt, Receiver, Settled, Settlement, Transport, TransportCapabilities,
};
pub use schedule::{Due, Next, Schedule, ScheduleCapabilities, Take};
pub use survey::{Answer, Count, DedupEntries, Scheduled, ScheduledMessage, Survey};
