//! The arguments of `hapax dead-letters`. What retries or discards names its letters or says `--all`: nothing is chosen by leaving words out.

use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use hapax::{
    ids::{EndpointName, Fingerprint, MessageId, TypeName},
    time::Timestamp,
};

use super::{Changing, Of};
use crate::ids::{header, id, moment, most, time};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// Lists them, oldest first
    List {
        #[command(flatten)]
        filtered: Filtered,
        /// Passes by so many
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: usize,
        /// Shows so many at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = most)]
        limit: usize,
    },
    /// Shows all letters about one message, with its body
    Show {
        /// The message's id
        #[arg(value_parser = id::<MessageId>)]
        id: MessageId,
        #[command(flatten)]
        of: Of,
    },
    /// Changes the message of a letter: its body, its headers, when it expires
    Edit(Box<Edit>),
    /// Gives messages to the endpoint again, or sends them on their way
    Retry {
        #[command(flatten)]
        chosen: Chosen,
        /// Also what was set aside longer ago than dedup entries are kept: make sure that it had no effect
        #[arg(long)]
        beyond_retention: bool,
        #[command(flatten)]
        changing: Changing,
    },
    /// Gives messages up
    Discard {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        changing: Changing,
    },
    /// Shows what was done with them, by whom
    Actions {
        /// Of this endpoint
        #[arg(long, short, value_name = "NAME", value_parser = id::<EndpointName>)]
        endpoint: Option<EndpointName>,
    },
}

/// Letters by what is known of them.
#[derive(Debug, Clone, Group)]
pub(crate) struct Filtered {
    #[command(flatten)]
    pub(crate) of: Of,
    /// The one with this fingerprint, of several about a message
    #[arg(long, value_name = "HEX", value_parser = id::<Fingerprint>)]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Of this message type
    #[arg(long = "type", value_name = "TYPE", value_parser = id::<TypeName>)]
    pub(crate) message_type: Option<TypeName>,
    /// Whose last error holds this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Set aside then or later: a time, or how long ago
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<Timestamp>,
    /// Set aside before
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) before: Option<Timestamp>,
}

/// Letters by their messages' ids, or all.
#[derive(Debug, Clone, Group)]
pub(crate) struct Chosen {
    /// The messages' ids
    #[arg(value_parser = id::<MessageId>, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<MessageId>,
    /// All that the options want
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) filtered: Filtered,
}

#[derive(Debug, Group)]
pub(crate) struct Edit {
    /// The message's id
    #[arg(value_parser = id::<MessageId>)]
    pub(crate) id: MessageId,
    #[command(flatten)]
    pub(crate) of: Of,
    /// The letter with this fingerprint, of several about the message
    #[arg(long, value_name = "HEX", value_parser = id::<Fingerprint>)]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The new body: a file, or - for the standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// Its type from now on
    #[arg(long = "type", value_name = "TYPE", value_parser = id::<TypeName>)]
    pub(crate) message_type: Option<TypeName>,
    /// Sets a header; several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    /// Removes a header; several times
    #[arg(long, value_name = "NAME")]
    pub(crate) remove_header: Vec<String>,
    /// Not worth handling after this time, such as 2026-11-29T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "never_expires")]
    pub(crate) expires: Option<Timestamp>,
    /// Worth handling at any time
    #[arg(long)]
    pub(crate) never_expires: bool,
    #[command(flatten)]
    pub(crate) changing: Changing,
}
