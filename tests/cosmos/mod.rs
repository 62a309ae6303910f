mod conformance;
mod enqueue;
mod faults;
mod full_partition;
mod limits;
mod races;
mod start;
mod store;
