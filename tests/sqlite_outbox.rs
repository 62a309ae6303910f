//! The outbox over the user's own tables in an SQLite file.
#![allow(clippy::unwrap_used)]

#[path = "sqlite_outbox/main.rs"]
mod sqlite_outbox;
