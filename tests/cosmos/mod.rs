mod conformance;
mod faults;
mod full_partition;
mod numbered;
mod start;
mod store;
mod worlds;
