//! The page as a browser and others ask it: over a real socket, on an SQLite file that a small real endpoint has left behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod acting;
mod bounds;
mod counting;
mod guarding;
mod hostile;
mod reading;
mod rig;
