//! A server for peers that read the log, which the usual one may not write for them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use hapax_servers::PostgresServer;
use sqlx::{Connection, Executor, Row};

use super::server::connect;
use crate::AnyError;

/// As much memory and log as MariaDB is given for its figures; the rest is the server's own choice.
const SETTINGS: [&str; 4] = ["wal_level=logical", "shared_buffers=1GB", "max_wal_size=2GB", "max_connections=200"];
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Whether the server at `url` writes what a reader of its log needs.
pub(crate) fn is_logical(url: &str) -> Result<bool, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = connect(url).await?;
        let level: String = connection.fetch_one("SHOW wal_level").await?.try_get(0)?;
        connection.close().await?;
        Ok(level == "logical")
    })
}

/// The server, which ends with what is given, and its URL.
pub(crate) fn run(folder: &Path) -> Result<(PostgresServer, String), AnyError> {
    let mut server = PostgresServer::create(folder, &SETTINGS)?;
    server.run()?;
    let url = server.url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    loop {
        match runtime.block_on(connect(&url)) {
            Ok(_) => return Ok((server, url)),
            Err(error) if begun.elapsed() > STARTS_WITHIN => {
                return Err(format!("{error}; its log: {}", server.log()).into());
            }
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}
