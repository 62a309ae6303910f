//! Whether a run's file can still be written. A store that fails is tried again until it goes well, so that a full disk would
//! look like orders that take long; here it is told as what it is.

use std::{path::Path, time::Duration};

use sqlx::{
    Connection, Executor, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use crate::Refusal;

/// How often the disk is asked: little to somebody who waits for an answer, and to the disk one commit of thousands.
const EVERY: Duration = Duration::from_secs(3);
/// What is written to find out, in bytes: about what a busy commit needs. Less may still find room where that does not.
const PROBE_BYTES: u32 = 64 << 10;
/// How long others may keep the file locked meanwhile: they write, so there is room.
const BUSY: Duration = Duration::from_secs(2);

/// Makes the table that is written to find out. It is empty in between.
pub(crate) const CREATE_PROBE: &str = "CREATE TABLE orders_disk_probe (bytes BLOB NOT NULL) STRICT";

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    pub(super) const BUSY: i32 = 5;
    pub(super) const FULL: i32 = 13;
}

/// Waits until `file` cannot be written any more.
pub(crate) async fn full(file: &Path) -> Refusal {
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(refusal) = check(file).await {
            return refusal;
        }
    }
}

/// Writes to `file`, and takes it back.
pub(crate) async fn check(file: &Path) -> Result<(), Refusal> {
    match write(file).await {
        Err(e) if primary_code(&e) == Some(code::BUSY) => Ok(()),
        written => written.map_err(|e| refusal(file, &e)),
    }
}

async fn write(file: &Path) -> Result<(), sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY);
    let mut file = SqliteConnection::connect_with(&options.journal_mode(SqliteJournalMode::Wal)).await?;
    let insert = "INSERT INTO orders_disk_probe (bytes) VALUES (randomblob(?))";
    sqlx::query(insert).bind(PROBE_BYTES).execute(&mut file).await?;
    file.execute("DELETE FROM orders_disk_probe").await?;
    file.close().await
}

/// Why `file` cannot be used.
pub(crate) fn refusal(file: &Path, error: &sqlx::Error) -> Refusal {
    let said = error.as_database_error().map_or_else(|| error.to_string(), |e| e.message().to_owned());
    let remedy = match primary_code(error) {
        Some(code::FULL) => "make room on its disk, or name a file elsewhere (--store, or TMPDIR for a temporary one)",
        _ => "see to its disk and its permissions, or name a file elsewhere (--store, or TMPDIR for a temporary one)",
    };
    Refusal::new(format!("{} cannot be written: {said}; {remedy}", file.display()))
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    const PRIMARY: i32 = 0xff;
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & PRIMARY)
}
