//! The world of faults and the invariants that hapax is checked against.
//!
//! The promise is a statement about what can be seen in the store and at the sink, whatever goes wrong in between. So the
//! parts are: something that goes wrong ([`World`], [`faults`]), something to look at ([`ledger`], [`Ghost`]), and
//! sentences about it ([`invariants`]). What runs in this world is the shipped [`SagaManager`](hapax_core::SagaManager)
//! and [`deliver`](hapax_core::deliver), unchanged.
//!
//! | you want to | look at |
//! | --- | --- |
//! | make a port fail | [`faults::Faulty`], [`Plan`] |
//! | stop a task at a chosen point of a port call, or at every one in turn | [`World::crash_at`] |
//! | check your own handlers | [`check`] |
//! | go through everything that can happen | [`explore`] |
//! | see in which configurations that is done | [`scenarios`] |
//! | interleave tasks, reproducibly | [`Scheduler`] |
//! | say what must never be seen | [`invariants`] |
//!
//! One thread only: a world, its tasks and its ghost belong to one run.
//!
//! Its enums are complete: whoever matches on what can happen is to be told when more can.
// Whoever builds the docs for everybody shows which feature something needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod broker;
pub mod check;
mod coverage;
pub mod explore;
pub mod faults;
mod ghost;
pub mod invariants;
pub mod ledger;
mod ports;
pub mod scenarios;
mod scheduler;
mod world;

pub use broker::{Queue, Sink};
pub use coverage::{Coverage, Seen};
pub use ghost::{Expectation, Fate, Ghost, Observation};
pub use ports::{Patience, WorldClock, WorldIds, WorldMetrics};
pub use scheduler::{Scheduler, Step};
pub use world::{Call, Fault, Plan, Point, Side, World, Write, yield_once};
