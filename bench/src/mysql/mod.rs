//! MariaDB: what is its own of the figures on a server.

mod anchor;
mod candidate;
mod own;
mod queue;
mod server;
mod text;

pub(crate) use own::{bench, run};
pub(crate) use server::Database;

use crate::sql::Kind;

pub(crate) const KIND: Kind = Kind {
    command: "mysql",
    title: "MariaDB",
    role: "mysql-worker",
    batches: "lists of 100",
    batched: "lists of 100, by hand",
    server_help: "  \
  --server URL     mysql://USER@HOST:PORT/DATABASE: the server, instead of one that is run for this; databases of its own
                   are made in it and removed",
    own_help: "  \
  --dir DIR        where a server that is run has its files, which are removed (default: the system's directory for
                   temporary files)",
    // Not that of the tests: with little memory and a short log its figures would be about those.
    server: || None,
    peers: &[],
};
