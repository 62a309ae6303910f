//! What a schedule in a database rests on, beyond the promises of the port: races, connections and servers that end, clocks that
//! were ahead; and endpoints in two processes that share one.
#![allow(clippy::unwrap_used)]

#[path = "schedules/endpoints.rs"]
mod endpoints;
#[path = "schedules/faults.rs"]
mod faults;
#[path = "schedules/place.rs"]
mod place;
#[path = "schedules/ports.rs"]
mod ports;
