//! Several tasks on several threads, with handles of their own, call a store on a few keys at the same time: what they are
//! told can have happened one call after the other, on every store that is compiled in. Calls that nobody waited for, or
//! whose answer was lost, may have happened at any time since they began, or never.
//!
//! `HAPAX_THOROUGH=1` makes many more rounds.
#![allow(clippy::unwrap_used)]

#[path = "linearizable/checker.rs"]
mod checker;
#[cfg(any(feature = "cosmos", feature = "dynamodb"))]
#[path = "machine/clouds.rs"]
mod clouds;
#[path = "linearizable/history.rs"]
mod history;
#[path = "machine/lying.rs"]
mod lying;
#[path = "machine/names.rs"]
mod names;
#[path = "machine/reference.rs"]
mod reference;
#[path = "linearizable/rounds.rs"]
mod rounds;
#[path = "machine/stores.rs"]
mod stores;
#[path = "linearizable/told.rs"]
mod told;
