//! PostgreSQL: what is its own of the figures on a server.

mod anchor;
mod candidate;
mod own;
mod peers;
mod queue;
mod server;

pub(crate) use own::{is_logical, run};
pub(crate) use server::{Database, Schema};

use crate::sql::Kind;

/// Where the server is, unless told otherwise.
const SERVER: &str = "HAPAX_TEST_POSTGRES";

pub(crate) const KIND: Kind = Kind {
    command: "postgres",
    title: "PostgreSQL",
    role: "postgres-worker",
    batches: "arrays of 100",
    batched: "arrays of 100, by hand",
    server_help: "  \
  --server URL     the server (default: $HAPAX_TEST_POSTGRES, or else postgres://postgres@127.0.0.1/test); schemas of its
                   own are made in it and removed",
    own_help: "  \
  --peers          other libraries in the rounds of p1, and their ratios; programs that cannot be run are told aloud
  --peer NAME,...  only these of them: graphile-worker, apalis, backbone-outbox, hexeract, outbox-postgres, restate
  --peers-dir DIR  where their programs are (default target/peers/release, where cargo xtask bench builds them)",
    server: || Some(std::env::var(SERVER).unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".into())),
    peers: &peers::NAMES,
};
