//! DynamoDB for tests: dynoxide, in memory or in a file.
//!
//! `--file PATH` keeps the tables in an SQLite file: a killed emulator that is started again has every write that it had
//! confirmed. What was written lasts as long as the machine does; nothing is promised for a power cut.
//! SQLite takes one writer at a time, so it never answers with a transaction conflict or a throttle, and items whose time
//! to live is over stay. Credentials are not checked.

use std::process::ExitCode;

use dynoxide::Database;
use hapax_emulators::{Settings, conclude};

#[tokio::main]
async fn main() -> ExitCode {
    conclude(run().await)
}

async fn run() -> Result<(), String> {
    let settings = Settings::parse(std::env::args().skip(1), &["file"])?;
    let database = match settings.value("file") {
        Some(path) => Database::new(path).map_err(|error| format!("{path}: {error}"))?,
        None => Database::memory().map_err(|error| error.to_string())?,
    };
    let (listener, url) = settings.listen().await?;
    settings.announce(&url);
    tokio::select! {
        // Requests under way are cut off, as by a server that goes away.
        served = dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()) => served,
        () = settings.end() => Ok(()),
    }
}
