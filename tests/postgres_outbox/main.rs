//! The outbox over the user's own tables on PostgreSQL: what is stored in a transaction is sent once that is committed, and
//! nothing else is.

mod care;
mod claims;
mod failures;
mod inbox;
mod ordered;
mod rig;
mod start;
mod stops;
mod storing;
