//! Two real processes on the same entities, in one table of DynamoDB or one database of Cosmos DB: at each call that the first
//! makes of a port it is killed (SIGKILL), and the second takes over; or it stands still, and goes on when the second has done
//! all of it. Then the books are made from what is stored alone.
#![allow(clippy::unwrap_used)]
#![cfg(any(feature = "dynamodb", feature = "cosmos"))]

#[path = "../process/books.rs"]
mod books;
#[cfg(feature = "cosmos")]
mod cosmos;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod kills;
#[path = "../process/stored.rs"]
mod stored;
#[path = "../process/tally.rs"]
mod tally;
