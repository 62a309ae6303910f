//! Short lists of steps, each of which is checked, on every store that is compiled in: calls of the ports one after the
//! other, beside a reference that is plain data; and deliveries, copies, crashes and lost answers around the shipped
//! manager. A list that fails is shortened and printed, and its seed is kept in `proptest-regressions`.
//!
//! `HAPAX_THOROUGH=1` runs many more.
#![allow(clippy::unwrap_used)]

#[path = "machine/calls.rs"]
mod calls;
#[cfg(any(feature = "cosmos", feature = "dynamodb"))]
#[path = "machine/clouds.rs"]
mod clouds;
#[path = "machine/deliveries.rs"]
mod deliveries;
#[path = "machine/events.rs"]
mod events;
#[path = "machine/lossy.rs"]
mod lossy;
#[path = "machine/lying.rs"]
mod lying;
#[path = "machine/names.rs"]
mod names;
#[path = "machine/ports.rs"]
mod ports;
#[path = "machine/reference.rs"]
mod reference;
#[path = "machine/run.rs"]
mod run;
#[path = "machine/stores.rs"]
mod stores;
#[path = "machine/subject.rs"]
mod subject;
