//! The arguments of `hapax page`: nothing is changed and no body is shown unless that was asked for.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args as Group;

use super::Of;

#[derive(Debug, Group)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) of: Of,
    /// Where it is served; port 0 is a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,
    /// A name that it is also reached by; several times
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Whoever knows the token may retry and discard dead letters
    #[arg(long, requires = "token_file")]
    pub(crate) actions: bool,
    /// The file with the token: for actions, and for reading where the page is served to other hosts
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Shows bodies of single dead letters; without it their size
    #[arg(long)]
    pub(crate) bodies: bool,
    /// Where a process tells its numbers to Prometheus: for throughput and duplicates; several times
    #[arg(long, value_name = "URL")]
    pub(crate) metrics: Vec<String>,
    /// Who acts, for the record, where the reader does not say; default the user's name
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Appends a line of JSON about each action to this file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}
