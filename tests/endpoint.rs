//! The endpoint end to end, on the reference store and queues inside the process, in paused time.
#![allow(clippy::unwrap_used)]

#[path = "endpoint/audit.rs"]
mod audit;
#[path = "endpoint/auditees.rs"]
mod auditees;
#[path = "endpoint/cipher.rs"]
mod cipher;
#[path = "endpoint/enqueued.rs"]
mod enqueued;
#[path = "endpoint/entities.rs"]
mod entities;
#[path = "endpoint/faults.rs"]
mod faults;
#[path = "endpoint/handle.rs"]
mod handle;
#[path = "endpoint/harness.rs"]
mod harness;
#[path = "endpoint/hub.rs"]
mod hub;
#[path = "endpoint/lanes.rs"]
mod lanes;
#[path = "endpoint/middleware.rs"]
mod middleware;
#[path = "endpoint/middleware_faults.rs"]
mod middleware_faults;
#[path = "endpoint/office.rs"]
mod office;
#[path = "endpoint/outage.rs"]
mod outage;
#[path = "endpoint/recoverability.rs"]
mod recoverability;
#[path = "endpoint/recurring.rs"]
mod recurring;
#[path = "endpoint/schedule.rs"]
mod schedule;
#[path = "endpoint/sealed.rs"]
mod sealed;
#[path = "endpoint/settling.rs"]
mod settling;
#[path = "endpoint/start.rs"]
mod start;
#[path = "endpoint/work.rs"]
mod work;
