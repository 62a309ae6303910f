//! What nobody is told: no body, no header of the user's and no state is in any line, span or error of hapax, nor in what a program may print of
//! what it is given; whatever goes wrong. Everything is heard, at all levels, by whomever of this process it is said.
#![allow(clippy::unwrap_used)]

#[path = "untold/databases.rs"]
mod databases;
#[path = "untold/ear.rs"]
mod ear;
#[path = "untold/endpoints.rs"]
mod endpoints;
#[path = "untold/ground.rs"]
mod ground;
