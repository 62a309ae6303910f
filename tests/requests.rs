//! Requests and their answers, across copies, lost messages, crashes and restarts: in paused time on the reference store and queues
//! inside the process, and with killed processes on files.
#![allow(clippy::unwrap_used)]

#[path = "requests/answers.rs"]
mod answers;
#[path = "requests/bad_days.rs"]
mod bad_days;
#[path = "requests/bank.rs"]
mod bank;
#[path = "requests/client.rs"]
mod client;
#[cfg(feature = "databases")]
#[path = "requests/killed.rs"]
mod killed;
#[path = "requests/refused.rs"]
mod refused;
#[path = "requests/restarts.rs"]
mod restarts;
#[cfg(feature = "databases")]
#[path = "process/stored.rs"]
mod stored;
#[cfg(feature = "databases")]
#[path = "process/tally.rs"]
mod tally;
#[cfg(feature = "databases")]
#[path = "process/tills.rs"]
mod tills;
#[path = "requests/wire.rs"]
mod wire;
