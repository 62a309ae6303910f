//! The name of this module is in the names of its tests, by which they are left out where there is no emulator.

mod conformance;
mod enqueue;
mod every_call;
mod faults;
mod full_partition;
mod identity;
mod limits;
mod logged;
mod races;
mod start;
mod store;
mod upkeep;
