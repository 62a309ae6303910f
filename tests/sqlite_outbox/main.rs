//! The outbox over the user's own tables on SQLite: what is stored in a transaction is sent once that is committed, and
//! nothing else is.

#[path = "../outbox/around.rs"]
mod around;
#[path = "../outbox/care.rs"]
mod care;
#[path = "../outbox/claims.rs"]
mod claims;
mod columns;
#[path = "../outbox/failures.rs"]
mod failures;
#[path = "../outbox/import.rs"]
mod import;
#[path = "../outbox/inbox.rs"]
mod inbox;
#[path = "../outbox/logged.rs"]
mod logged;
#[path = "../outbox/ordered.rs"]
mod ordered;
#[path = "../outbox/place.rs"]
mod place;
#[path = "../outbox/promises.rs"]
mod promises;
mod rig;
#[path = "../outbox/rows.rs"]
mod rows;
#[path = "../outbox/savepoints.rs"]
mod savepoints;
mod server;
#[path = "../outbox/sink.rs"]
mod sink;
#[path = "../outbox/slow.rs"]
mod slow;
mod start;
#[path = "../outbox/stops.rs"]
mod stops;
#[path = "../outbox/storing.rs"]
mod storing;
#[path = "../outbox/tables.rs"]
mod tables;
#[path = "../outbox/upgrades.rs"]
mod upgrades;
#[path = "../outbox/woken.rs"]
mod woken;
