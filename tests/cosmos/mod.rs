mod conformance;
mod enqueue;
mod faults;
mod full_partition;
mod limits;
mod start;
mod store;
