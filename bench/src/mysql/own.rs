//! A server for the figures alone.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use hapax_servers::MySqlServer;

use super::server::{Database, connect};
use crate::{
    AnyError, Scratch,
    sql::{self, Options},
};

/// As much memory as PostgreSQL is given, a log that no run fills, and nothing is confirmed before it is on the disk. The rest
/// is the server's own choice; without a binary log a commit is one flush.
const SETTINGS: [&str; 4] =
    ["innodb-buffer-pool-size=1G", "innodb-log-file-size=2G", "innodb-flush-log-at-trx-commit=1", "skip-log-bin"];
/// It has to make a log first.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// As [`sql::bench`], on a server that is run for it unless one is named.
pub(crate) fn bench(options: &Options) -> Result<bool, AnyError> {
    if options.server.is_some() {
        return sql::bench::<Database>(options);
    }
    let scratch = Scratch::within(&options.dir)?;
    let (_server, url) = run(&scratch.0)?;
    sql::bench::<Database>(&Options { server: Some(url), ..options.clone() })
}

/// The server, which ends with what is given, and its URL.
pub(crate) fn run(folder: &Path) -> Result<(MySqlServer, String), AnyError> {
    let mut server = MySqlServer::create(folder, &SETTINGS)?;
    server.run()?;
    let url = server.url("mysql");
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
