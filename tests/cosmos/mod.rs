mod conformance;
mod faults;
mod numbered;
mod start;
mod store;
mod worlds;
