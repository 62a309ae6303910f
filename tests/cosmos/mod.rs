mod conformance;
mod faults;
mod full_partition;
mod limits;
mod start;
mod store;
