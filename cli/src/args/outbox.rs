//! The arguments of `hapax outbox`. What retries or discards names its rows or says `--all`: nothing is chosen by leaving words out.

use std::time::Duration;

use clap::{Args as Group, Subcommand};
use hapax::{ids::MessageId, ports::RowStatus};

use super::{Changing, Of};
use crate::ids::{duration, id, most, status};

/// For how long rows that were sent are kept: see `RelayOptions::keep`.
const KEEP: &str = "7d";
/// And then in the archive.
const ARCHIVE: &str = "30d";

#[derive(Debug, Subcommand)]
pub(crate) enum Outbox {
    /// Lists what waits: in entities, and in outbox tables
    List {
        #[command(flatten)]
        of: Of,
        /// Rows of the tables with this status: waits, sent, failed or expired; default waits and failed
        #[arg(long, value_name = "STATUS", value_parser = status)]
        status: Option<RowStatus>,
        /// Only what waits in entities
        #[arg(long, conflicts_with_all = ["tables", "status"])]
        entities: bool,
        /// Only rows of outbox tables
        #[arg(long)]
        tables: bool,
        /// In entities: only what has waited for so long
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
        older_than: Duration,
        /// Passes by so many of each
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: usize,
        /// Shows so many of each at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = most)]
        limit: usize,
    },
    /// Has the relay try rows again that have failed
    Retry(RowsArgs),
    /// Gives rows up that have failed: they count as expired
    Discard(RowsArgs),
    /// Removes rows that were sent, or have expired, and have been kept for so long; also from the archive
    Purge {
        /// Only what has ended so long ago
        #[arg(long, value_name = "TIME", default_value = KEEP, value_parser = duration)]
        older_than: Duration,
        #[command(flatten)]
        changing: Changing,
    },
    /// Moves rows that were sent, or have expired, to the archive, and removes from there what is older than both times together
    Archive {
        /// Only what has ended so long ago
        #[arg(long, value_name = "TIME", default_value = KEEP, value_parser = duration)]
        older_than: Duration,
        /// Then it stays in the archive for so long, counted from then and not from when it is moved
        #[arg(long, value_name = "TIME", default_value = ARCHIVE, value_parser = duration)]
        keep: Duration,
        #[command(flatten)]
        changing: Changing,
    },
    /// Prints settings with which Debezium sends an outbox
    Debezium(Box<DebeziumArgs>),
}

/// Rows by their messages' ids, or all.
#[derive(Debug, Group)]
pub(crate) struct RowsArgs {
    /// The messages' ids
    #[arg(value_parser = id::<MessageId>, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<MessageId>,
    /// All that have failed
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) changing: Changing,
}

/// Prints the settings of a connector of Debezium with its outbox event router, as Kafka Connect takes them, for the outbox in a PostgreSQL
/// database. The database is not asked; the password in URL is not used. Open the outbox with `debezium(true)`. Untested against Debezium itself.
#[derive(Debug, Group)]
pub(crate) struct DebeziumArgs {
    /// postgres://USER@HOST:PORT/DATABASE; default --store
    #[arg(allow_hyphen_values = false)]
    pub(crate) url: Option<String>,
    /// By what a message gets its topic: destination or type
    #[arg(long, value_name = "COLUMN", default_value = "destination")]
    pub(crate) route_by: String,
    /// The topic, with ${routedByValue} and, by destination, ${kind} in it
    #[arg(long, value_name = "TEXT")]
    pub(crate) topic: Option<String>,
    /// A column that becomes a header; several times; default all
    #[arg(long, value_name = "COLUMN[=NAME]", conflicts_with = "no_headers")]
    pub(crate) header: Vec<String>,
    /// None but `id`
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// JSON bodies become JSON with a schema; needs what --sql prints
    #[arg(long)]
    pub(crate) expand_payload: bool,
    /// Default hapax-outbox
    #[arg(long, value_name = "NAME")]
    pub(crate) connector_name: Option<String>,
    /// Replication slot and publication; default SCHEMA_TABLE
    #[arg(long, value_name = "NAME")]
    pub(crate) slot: Option<String>,
    /// Placeholder of Kafka Connect; default ${env:HAPAX_DEBEZIUM_PASSWORD}
    #[arg(long, value_name = "TEXT")]
    pub(crate) password: Option<String>,
    /// Prints what the table needs first, as SQL, instead of the settings; nothing without --expand-payload
    #[arg(long)]
    pub(crate) sql: bool,
}
